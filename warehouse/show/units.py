"""Tables for people: short headings, GB, TFLOP/s and percent, no empty or neutral columns.

Storage and programs have base units and full names. Tables take headings, units and neutral values
from the dictionary's columns. A column that only a query defines is written by its name: `best_x`
as x, others by the unit at the end of the name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from estimators.columns import COLUMNS
from estimators.columns.forms import DAYS, IDENTIFIER, PLAIN, Form, form_of_name
from warehouse.show.values import Figure, Row, by_column, kinds_of

if TYPE_CHECKING:
    from estimators.contract import UnevenStages

STEP_PARTS = {
    "compute_seconds": "arithmetic",
    "memory_seconds": "memory",
    "tensor_comm_seconds": "tensor collectives",
    "pipeline_comm_seconds": "stage transfers",
    "bubble_seconds": "bubble",
    "data_comm_seconds": "gradient collectives",
}
"""Part of a step in view ``configuration`` -> what people call it; the same for every estimator."""

ROUNDING = 1e-9
"""Share of a step below which a time is a rounding error: the order of a sum changes it by about
1e-16, and no modelled part is that short."""

_SLOW = "slow_"
"""Prefix of the slow end of a time."""

_BEST = "best_"

_INNER_DEGREES = (
    *("tensor_parallel_external", "context_parallel", "sequence_parallel", "expert_parallel"),
    "expert_tensor_parallel",
)

_PIPELINE = (
    *("microbatch_group", "schedule", "pipeline_layout"),
    *("layers_in_first_stage", "layers_in_last_stage"),
)


def column_headed(heading: str) -> str | None:
    """Return the column that tables show under `heading`, in any case, or None.

    A heading with another unit than storage is not accepted: its figures differ from the stored
    ones.
    """
    wanted = heading.strip().casefold()
    plain = (column for column in COLUMNS.values() if column.form is PLAIN)
    return next((column.name for column in plain if column.heading.casefold() == wanted), None)


def names_of_column(name: str) -> list[str]:
    """Return the name of a column, and its headings in every unit."""
    names: list[str] = [name]
    form: Form | None = _form(name)
    while form is not None:
        names.append(_heading(name, form))
        form = form.smaller
    return names


def layout_in_words(layout: Mapping[str, Any]) -> str:
    """Return a layout in one line, as the SQL macro of that name: `dp4 tp8 pp16 micro1`.

    Degrees of 1 and other values that mean unused are left out; "(nvlink tp8)" has the parts of the
    degrees inside one NVLink domain.
    """
    tensor = _joined(layout, "tensor_parallel", "tensor_parallel_2")
    has_choice_of_zero = layout.get("uses_sequence_parallel") is not None
    microbatches = "microbatch_size" if _used(layout, "microbatch_size") else "num_microbatches"
    words = (
        layout.get("strategy"),
        _word(layout, "data_parallel"),
        f"tp{tensor}" if tensor else None,
        *(_word(layout, name) for name in _INNER_DEGREES),
        "seq" if layout.get("uses_sequence_parallel") else None,
        _word(layout, "pipeline_parallel"),
        _word(layout, "virtual_pipeline"),
        *(_word(layout, name) for name in _PIPELINE),
        *(COLUMNS[name].short for name in ("counts_embedding", "counts_loss") if layout.get(name)),
        _word(layout, microbatches),
        _word(layout, "zero_stage") if has_choice_of_zero else None,
        _word(layout, "summa_panels"),
        _word(layout, "activation_recompute"),
        _word(layout, "attention") if layout.get("attention") != "flash" else None,
        _domain_in_words(layout),
    )
    return " ".join(word for word in words if word)


def stages_in_words(stages: UnevenStages | None) -> str:
    """Return how pipeline stages differ, `7 x 8, 5 layers: --flag 5`; "" where they do not."""
    if stages is None:
        return ""
    runs = [(size, len(list(run))) for size, run in groupby(stages.layers)]
    sizes = ", ".join(f"{times} x {size}" if times > 1 else str(size) for size, times in runs)
    flags = f": {' '.join(stages.flags)}" if stages.flags else ""
    return f"{sizes} layers{flags}"


def _domain_in_words(layout: Mapping[str, Any]) -> str | None:
    """Return the parts of the degrees that lie in one NVLink domain, in brackets."""
    tensor = _joined(layout, "nvlink_tensor_parallel", "nvlink_tensor_parallel_2")
    found = {
        "dp": layout.get("nvlink_data_parallel"),
        "tp": tensor,
        "cp": layout.get("nvlink_context_parallel"),
        "pp": layout.get("nvlink_pipeline_parallel"),
    }
    words = [f"{short}{value}" for short, value in found.items() if value not in (None, "", 1, "1")]
    return f"(nvlink {' '.join(words)})" if words else None


def _joined(layout: Mapping[str, Any], first: str, second: str) -> str:
    """Return the degrees of both axes as `8x4`."""
    degrees = (layout.get(first), _used(layout, second))
    return "x".join(str(degree) for degree in degrees if degree is not None)


def _word(layout: Mapping[str, Any], name: str) -> str | None:
    value = plain_value(_used(layout, name))
    return f"{COLUMNS[name].short}{value}" if value else None


def plain_value(value: Any) -> str:
    """Return a value of a layout in text: a whole number without a point; "" if it is missing."""
    if value is None or value != value:  # NaN
        return ""
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value)


def _used(layout: Mapping[str, Any], name: str) -> Any:
    """Return a value of the layout, None where it means unused."""
    value = layout.get(name)
    neutral = COLUMNS[name].neutral
    return None if neutral is not None and value == neutral else value


def unless_rounding(seconds: float, step_seconds: float) -> float:
    """Return a part of a step, or 0 if it is only a rounding error."""
    return 0.0 if abs(seconds) < ROUNDING * step_seconds else seconds


def with_digits(value: float, digits: int, sign: str = "-") -> str:
    """Return a figure with this many digits, zeros at its end too: 2.00 next to 2.04.

    Larger figures are whole, with a comma at each thousand; a zero is `0`. Sign `+` is put before
    every figure.
    """
    if value == 0:
        return format(0, sign)
    rounded = abs(float(f"{value:.{digits}g}"))
    is_whole = rounded >= 10 ** (digits - 1)
    return format(value, f"{sign},.0f" if is_whole else f"{sign}#.{digits}g")


def informative_columns(
    columns: Sequence[str], rows: Sequence[Row], drop: Collection[str] = ()
) -> list[int]:
    """Return the places of the columns that are neither dropped nor unused, ids last."""
    values = by_column(rows, len(columns))
    places = [
        place
        for place, name in enumerate(columns)
        if name not in drop and not _is_unused(name, values[place])
    ]
    return sorted(places, key=lambda place: columns[place].endswith("_id"))


def for_people(
    columns: Sequence[str],
    rows: Sequence[Row],
    headings: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[str], list[Row]]:
    """Return headings and rows as people read them; `headings` replaces usual ones, by column."""
    names, table = [], []
    for name, values in zip(columns, by_column(rows, len(columns)), strict=True):
        form = _fitting(name, values)
        names.append(headings.get(name, _heading(name, form)))
        table.append(_written(form, values))
    return names, [list(row) for row in zip(*table, strict=True)]


def in_words(name: str, value: Any) -> str:
    """Return one value as people write it, with its unit."""
    if value is None:
        return "-"
    if isinstance(value, (bool, str)):
        return str(_plain(value))
    form = _fitting(name, [value])
    if form is IDENTIFIER:
        return str(value)
    if form is not PLAIN:
        return form.in_text(value)
    unit = COLUMNS[name].unit if name in COLUMNS else ""
    number = f"{value:,}" if isinstance(value, int) else _short(value)
    return f"{number} {unit}".strip()


def _short(value: float) -> str:
    is_whole = value == int(value) if abs(value) < 1e15 else False
    return f"{value:,.0f}" if is_whole and abs(value) < 1e9 else f"{value:.4g}"


def _is_unused(name: str, values: Sequence[Any]) -> bool:
    column = COLUMNS.get(name)
    if column is None or not values:
        return False
    num_missing = values.count(None)
    if num_missing == len(values):
        return column.is_optional
    neutral = column.neutral
    return neutral is not None and num_missing + values.count(neutral) == len(values)


def interval_in_words(name: str, low: float, high: float, like: float) -> str:
    """Return both ends of an interval in the unit in which people write the value `like`."""
    form = _fitting(name, [like])
    return f"{form.figure(low)} to {form.in_text(high)}"


def run_time_in_words(seconds: float) -> str:
    """Return the time of a whole run in days, or in hours or minutes if it is short."""
    return DAYS.fitting([seconds]).in_text(seconds)


def run_times_in_words(low: float, high: float, like: float | None = None) -> str:
    """Return an interval of times of a whole run [s], in the unit of `like` or of its high end."""
    form = DAYS.fitting([high if like is None else like])
    return f"{form.figure(low)} to {form.in_text(high)}"


def sweep_time_in_words(seconds: float) -> str:
    """Return the time of a sweep in seconds, or in minutes, hours or days if it is long."""
    return f"{max(seconds, 1):,.0f} s" if seconds < 100 else run_time_in_words(seconds)


def size_in_words(num_bytes: float) -> str:
    """Return the size of a file in MB, or in GB from one GB on."""
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.0f} MB"


def _heading(name: str, form: Form) -> str:
    """Return the heading of a column whose values are written in a form."""
    if name in COLUMNS:
        column = COLUMNS[name]
        return column.heading if form is column.form else form.heading(name)
    of = name.removeprefix(_BEST)
    if of != name and of in COLUMNS:
        return f"best {_heading(of, form)}"
    return form.heading(name)


def _form(name: str) -> Form:
    plain = name.removeprefix(_BEST).removeprefix(_SLOW)
    column = COLUMNS.get(name) or COLUMNS.get(plain)
    return form_of_name(name) if column is None else column.form


def _fitting(name: str, values: Sequence[Any]) -> Form:
    """Return the form in which to write the values of a column."""
    form = _form(name)
    return form if form.smaller is None else form.fitting(values)


def _written(form: Form, values: Sequence[Any]) -> list[Any]:
    """Return the values of a column in a form."""
    kinds = kinds_of(values)
    if form is IDENTIFIER or (form is PLAIN and kinds <= {str, float}):
        return list(values)
    present = [value for value in values if value is not None]
    texts: Iterator[Any]
    if form is not PLAIN:
        texts = map(Figure, form.figures(present))
    elif kinds == {int}:
        texts = map(Figure, map("{:,}".format, present))
    else:
        texts = map(_plain, present)
    return [None if value is None else next(texts) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return Figure(f"{value:,}") if isinstance(value, int) else value
