"""A readable report of one configuration: the problem, the layout, the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from estimators.columns import COLUMNS
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from estimators.contract import Scalar
    from warehouse.evaluate.one import Shown

STEP_PARTS = {
    "compute_seconds": "arithmetic",
    "memory_seconds": "memory",
    "tensor_comm_seconds": "tensor exchange",
    "pipeline_comm_seconds": "stage transfers",
    "bubble_seconds": "bubble",
    "data_comm_seconds": "gradient exchange",
}
"""Part of a step in view ``configuration`` -> what people call it; the same for every estimator."""

PARTS = (*STEP_PARTS, "steady_seconds", "gradient_reduction_seconds")
"""Parts of a step, shown with their share of it."""


def report(shown: Shown, published: Shown | None = None) -> list[str]:
    """Return the lines of the report.

    Parameters
    ----------
    published
        The same configuration by the published formulas, shown where it differs.
    """
    lines = []
    source = shown.estimator.reports.get(shown.relation.name)
    if source is not None:
        lines += [*source(shown.values), ""]
    lines += [f"{shown.estimator.name}: {shown.estimator.title}"]
    if shown.estimator.mends:
        mends = [mend for mend in shown.estimator.mends if mend in shown.mends]
        lines += [f"mends: {', '.join(mends) or 'none, as published'}"]
    given = shown.given
    lines += _section("Problem", shown.problem, given)
    lines += _section("Layout", shown.layout, given)
    lines += ["", "Results"]
    width = max(len(name) for name in shown.results)
    for name, value in shown.results.items():
        words = in_words(name, value) + _share(name, shown.results)
        before = published.results[name] if published else value
        if _differs(value, before):
            words += f"  (as published: {_distinct(name, value, before)})"
        lines.append(f"  {name:{width}}  {words}")
    return lines


def _section(title: str, values: Mapping[str, Scalar], given: frozenset[str]) -> list[str]:
    present = {name: value for name, value in values.items() if value is not None}
    if not present:
        return []
    width = max(len(name) for name in present)
    marks = {name: "" if name in given else " *" for name in present}
    rows = [
        f"  {name:{width}}  {in_words(name, value)}{marks[name]}" for name, value in present.items()
    ]
    return [
        "",
        f"{title} (* not given: a default, or looked up)" if any(marks.values()) else title,
        *rows,
    ]


def _share(name: str, results: Mapping[str, Any]) -> str:
    step = results.get("step_seconds")
    if name not in PARTS or not step or results[name] is None:
        return ""
    return f"  {results[name] / step * 100:.1f} %"


def _distinct(name: str, value: Any, before: Any) -> str:
    """Return `before` in words; with all digits if fewer would make it look like `value`."""
    words = in_words(name, before)
    if words != in_words(name, value):
        return words
    unit = COLUMNS[name].unit if name in COLUMNS else ""
    return f"{before!r} {unit}".strip()


def _differs(value: Any, before: Any) -> bool:
    if isinstance(value, float) and isinstance(before, float):
        return abs(value - before) > 1e-12 * max(abs(value), abs(before))
    return bool(value != before)
