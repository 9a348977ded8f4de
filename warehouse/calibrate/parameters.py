"""The constants that a calibration fits: by name, within their bounds, some tied together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import Catalog
from estimators.interval import place_of
from warehouse.calibrate.fit import MAX_PARAMETERS, Parameter, Steps, is_real
from warehouse.errors import InputError
from warehouse.evaluate.profiles import systems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXPOSED = "exposed_communication"
"""Name of one value for all overlap fractions of collectives that may change."""

OVERLAPS = ("tensor_overlap_fraction", "gradient_overlap_fraction", "parameter_overlap_fraction")
"""Constants behind `EXPOSED`: exposed share = 1 - overlap."""

DEFAULT_FIT = ("product_rate_factor", EXPOSED)
"""The constants that are fitted if none are named."""


@dataclass(frozen=True)
class _Constant:
    """One constant, with the value that the rows of a reference have."""

    name: str
    place: str
    default: float
    lowest: float
    highest: float
    has_effect: bool


def find_parameters(
    asked: Sequence[str], steps: Steps, catalog: Catalog, *, wide: bool
) -> tuple[Parameter, ...]:
    """Return the parameters that `asked` names.

    Parameters
    ----------
    asked
        Constants, `EXPOSED`, or constants joined by + that share one value.
    steps
        The rows that they are fitted to.
    wide
        Bound them by the limits of their columns instead of the range of table `step_constant`.

    Raises
    ------
    InputError
        If a name is unknown, is given twice or cannot be fitted to these rows.
    """
    if not asked or len(asked) > MAX_PARAMETERS:
        hint = "tie some together with +: they then share one value"
        raise InputError(f"`--fit` must name 1 to {MAX_PARAMETERS} constants", hint)
    parameters = []
    for text in asked:
        overlaps = [name for name in OVERLAPS if name in steps.estimator.constants]
        if text == EXPOSED and overlaps:
            found = [_constant(name, steps, catalog, wide=wide) for name in overlaps]
            free = [each for each in found if each.lowest < each.highest and each.has_effect]
            if free:
                parameters.append(_parameter(text, free))
            elif tuple(asked) != DEFAULT_FIT:
                raise InputError(
                    f"`--fit` {EXPOSED}: every overlap is held to one value by its range, or has "
                    "no effect on these rows",
                    "leave it out, or name one with --beyond-range",
                )
            continue
        own = [_constant(name.strip(), steps, catalog, wide=wide) for name in text.split("+")]
        for each in own:
            _refuse_fixed(each)
        parameters.append(_parameter(text, own))
    names = [name for each in parameters for name in each.places]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"`--fit` names `{name}` twice", "keep it once")
    return tuple(parameters)


def _constant(name: str, steps: Steps, catalog: Catalog, *, wide: bool) -> _Constant:
    table = catalog.tables["step_constant"]
    known = [one for one in steps.estimator.constants if is_real(one) and one in table]
    if name not in known:
        tied = [EXPOSED] if set(OVERLAPS) & set(known) else []
        hint = f"known: {', '.join((*tied, *known))}"
        raise InputError(f"`--fit` {name} is no constant that can be fitted", hint)
    systems_of_rows = dict.fromkeys(systems(steps.values))
    places = {place_of(steps.estimator, catalog, name, one): None for one in systems_of_rows}
    if len(places) > 1:
        held = ", ".join(str(place) for place in places)
        hint = "take rows of one with --rows accelerator=... or --rows framework=..."
        raise InputError(f"`--fit` {name} has several values among the rows: {held}", hint)
    [place] = places
    record: Mapping[str, Any] = table[str(place)]
    default = float(record["constant_value"])
    given = steps.values[name] != default
    if given.any():
        value = steps.values[name][given][0]
        raise InputError(
            f"`--fit` {name}: the rows give it themselves, as {value:g}",
            "remove the column, or fit another constant",
        )
    lowest, highest = float(record["lowest_value"]), float(record["highest_value"])
    if wide:
        lowest, highest = _limits(name)
    return _Constant(
        name,
        str(place),
        default,
        lowest,
        highest,
        _has_effect(name, steps, default, lowest, highest),
    )


def _limits(name: str) -> tuple[float, float]:
    column = COLUMNS[name]
    lowest = column.minimum if column.minimum is not None else column.above
    if lowest is None or column.maximum is None:
        raise InputError(
            f"`--beyond-range`: column `{name}` has no limits", "leave --beyond-range out"
        )
    return float(lowest), float(column.maximum)


def _has_effect(name: str, steps: Steps, *values: float) -> bool:
    """Return whether any step changes with the constant."""
    times = steps.predict({name: np.array(values)})
    return bool(np.any(np.abs(times - times[0]) > 1e-12 * np.abs(times[0])))


def _refuse_fixed(each: _Constant) -> None:
    if each.lowest == each.highest:
        raise InputError(
            f"`--fit` {each.name}: table step_constant admits {each.lowest:g} only for "
            f"{each.place}",
            "use --beyond-range to leave it, or fit another constant",
        )
    if not each.has_effect:
        raise InputError(
            f"`--fit` {each.name} has no effect on any of the rows",
            "fit another constant, or take other rows",
        )


def _parameter(name: str, constants: Sequence[_Constant]) -> Parameter:
    lowest = max(each.lowest for each in constants)
    highest = min(each.highest for each in constants)
    if lowest >= highest:
        hint = "fit them one by one, or use --beyond-range"
        raise InputError(f"`--fit` {name}: the ranges of the constants do not overlap", hint)
    return Parameter(
        name,
        {each.name: each.place for each in constants},
        {each.name: each.default for each in constants},
        lowest,
        highest,
    )
