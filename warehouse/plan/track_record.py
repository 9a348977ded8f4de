"""The estimator's errors on the published steps that are most like a plan.

Steps are alike if the same program ran the same kind of model (dense, or a mixture of experts),
with products in the same number format, on GPUs of the same architecture. If fewer than `ENOUGH`
steps are alike, conditions are dropped in the order of `_RELAXED`. The user's own runs never count
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from estimators.catalog import product_behind, product_of
from warehouse.database.cache import cached
from warehouse.plan.errors import state_of_measured
from warehouse.plan.queries import of_estimator

if TYPE_CHECKING:
    from estimators.contract import Catalog
    from warehouse.plan.candidates import QueryCache
    from warehouse.plan.question import TrainingRun

Line = Mapping[str, Any]

ENOUGH = 5
"""Least number of steps for a mean error. An assumption: fewer steps are often similar rows of one
table."""

_ONE_SIDED = 0.5
"""Ratio of the mean error to the mean size of errors above which a bias is stated."""

DENSE, MIXTURE = "dense models", "mixtures of experts"
SIXTEEN_BITS = "16 bits"

_CONDITIONS = ("kind", "architecture", "program", "number_format")
_RELAXED = (
    _CONDITIONS,
    ("kind", "architecture", "program"),
    ("kind", "architecture", "number_format"),
    ("kind", "architecture"),
    ("kind", "number_format"),
    ("kind",),
    (),
)
"""Sets of conditions in order: the first set that enough steps meet is used."""


@dataclass(frozen=True)
class TrackRecord:
    """The errors of the time on the published steps that are most like a plan.

    Attributes
    ----------
    wanted, found
        The steps that are like the plan, `num_like` in number, and the compared steps, in words.
        They differ if too few steps are like the plan.
    unmeasured
        The accelerator of the plan if no published step is on it, else empty.
    mean_error, middle_error, worst_error
        Mean size of the relative error of the time: of all compared steps, of the group in the
        middle, and of the worst group. The bias is negative where the estimates are too fast.
    inside_fraction, all_inside_fraction
        Share of the times inside the interval of their estimate: of the compared steps, and of the
        `num_all` published steps of all kinds.
    """

    wanted: str
    found: str
    num_like: int
    accelerators: Sequence[str]
    unmeasured: str
    num_steps: int
    num_groups: int
    mean_error: float
    middle_error: float
    worst_error: float
    worst_group: str
    bias: float
    num_too_fast: int
    groups: Sequence[Line]
    inside_fraction: float | None
    num_all: int
    all_inside_fraction: float | None

    def bias_in_words(self) -> str:
        """Return the bias in words, if the errors have one."""
        if self.num_steps > 1 and self.num_too_fast in (0, self.num_steps):
            return f", all {self.num_steps:,} too {'fast' if self.num_too_fast else 'slow'},"
        if abs(self.bias) >= self.mean_error * _ONE_SIDED:
            return f" (bias {100 * self.bias:+.1f} %)"
        return ""


def track_record(run: TrainingRun, ask: QueryCache) -> TrackRecord | None:
    """Return the errors on the published steps most like a run; None where none is compared."""
    steps = compared_steps(run, ask)
    catalog = run.catalog
    lines: list[Line] = [{**step, **kind_of(step, catalog)} for step in steps]
    # steps of programs without constants say little about the others
    modelled = [line for line in lines if line["is_own_framework"]]
    if not modelled:
        return None
    wanted = kind_of(run.problem, catalog)
    product = str(product_of(catalog, run.problem["accelerator"]))

    def alike(names: Sequence[str]) -> list[Line]:
        return [
            line for line in modelled if all(line[n] == wanted[n] for n in names if n in wanted)
        ]

    conditions = next(names for names in _RELAXED if len(alike(names)) >= ENOUGH or not names)
    compared = sorted(alike(conditions), key=_group)
    groups = [_errors_of(name, list(steps)) for name, steps in groupby(compared, key=_group)]
    sizes = [line["time_mean_absolute_relative_error"] for line in groups]
    worst = max(groups, key=lambda line: float(line["time_mean_absolute_relative_error"]))
    errors = [line["time_relative_error"] for line in compared]
    return TrackRecord(
        _in_words(wanted, _CONDITIONS),
        _in_words(wanted, conditions),
        len(alike(_CONDITIONS)),
        sorted({str(line["accelerator"]) for line in compared}),
        "" if product in {line["accelerator"] for line in lines} else product,
        len(compared),
        len(groups),
        mean(map(abs, errors)),
        median(sizes),
        max(sizes),
        worst["published_group"],
        mean(errors),
        sum(error < 0 for error in errors),
        groups,
        _inside(compared),
        len(lines),
        _inside(lines),
    )


def kind_of(values: Mapping[str, Any], catalog: Catalog) -> dict[str, str]:
    """Return the properties that decide whether steps are alike, by the names of `_CONDITIONS`.

    The program is left out where an estimator has none.
    """
    product = product_behind(catalog, values.get("accelerator"))
    row = catalog.known("accelerator", str(product)) or {}
    precision = str(values.get("precision") or "")
    program = values.get("framework")
    return {
        **({} if program is None else {"program": str(program)}),
        "kind": MIXTURE if int(values.get("num_experts") or 1) > 1 else DENSE,
        "architecture": str(row.get("architecture") or values.get("accelerator")),
        "number_format": precision.upper() if precision in ("fp8", "fp4") else SIXTEEN_BITS,
    }


def _in_words(kind: Mapping[str, str], names: Sequence[str]) -> str:
    words = kind["kind"] if "kind" in names else "models of every kind"
    if "number_format" in names:
        words += f" in {kind['number_format']}"
    if "program" in names and "program" in kind:
        words += f" with {kind['program']}"
    if "architecture" in names:
        words += f" on {kind['architecture']} GPUs"
    return words


def _group(line: Line) -> str:
    table = str(line["reference"]).removeprefix("published_")
    return str(line["published_group"]) if table == "measurement" else table


def _errors_of(name: str, lines: Sequence[Line]) -> Line:
    sizes = [abs(line["time_relative_error"]) for line in lines]
    return {
        "published_group": name,
        "time_mean_absolute_relative_error": mean(sizes),
        "time_max_absolute_relative_error": max(sizes),
        "time_bias": mean(line["time_relative_error"] for line in lines),
        "num_rows": len(lines),
    }


def _inside(lines: Sequence[Line]) -> float | None:
    known = [line["is_inside_interval"] for line in lines if line["is_inside_interval"] is not None]
    return mean(map(float, known)) if known else None


# ---- the steps ----


def compared_steps(run: TrainingRun, ask: QueryCache) -> list[Line]:
    """Return every published step that has an estimate, with its error.

    If the estimator can evaluate published steps, all are evaluated, once per installation.
    Otherwise the stored ones count.
    """
    is_evaluated = run.estimator.source.takes_published_steps
    state = {} if is_evaluated else state_of_measured(run, ask)
    facts: tuple[object, ...] = (run.estimator.name, sorted(run.mends))

    def make() -> list[dict[str, Any]]:
        from warehouse.plan.evaluated_steps import evaluated_steps, with_kinds  # takes polars

        if is_evaluated:
            return evaluated_steps(run)
        errors = ask(stored_steps(run)) if state["num_cells"] > 0 else []
        return with_kinds(errors) if errors else []

    if not is_evaluated:
        facts = (*facts, sorted(state.items()))
    steps: list[Line] = cached("track-record", facts, make)
    return steps


def stored_steps(run: TrainingRun) -> str:
    """Return the query of those published steps that are stored, with their errors."""
    return f"""\
select
    reference,
    published_row,
    time_relative_error,
    is_inside_interval
from published_comparison
where
    {of_estimator(run)}
    and time_relative_error is not null
    and not is_own_run
order by reference, published_row"""
