"""How uneven stages are placed, in the flags of the program.

`placement.default_sizes` places layers by shape where no choice does. Programs assert even stages
unless their flags say otherwise. Table `framework_flag.csv` has the flags of the programs that have
some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.contract import UnevenStages
from estimators.own_tables import rows_of
from estimators.structure import number
from estimators.training_step.pipelines import case_columns, cases_of, layers_of_output
from estimators.training_step.placement import IN_A_V, Case, fault, place
from estimators.training_step.problem import Layout, Problem

if TYPE_CHECKING:
    from estimators.values import Scalar, Values

COLUMNS = {
    "counts_embedding": "counts_embedding",
    "counts_loss": "counts_loss",
    "first": "layers_in_first_stage",
    "last": "layers_in_last_stage",
    "layout": "pipeline_layout",
}
"""Field of `placement.Case` that places layers -> its column."""


def uneven_stages(values: Values) -> UnevenStages | None:
    """Return how the stages of a resolved layout differ; None if they do not, or choices say how.

    `values` are scalars.
    """
    problem = Problem.of(values)
    columns = case_columns(
        problem.shape, problem.choices, Layout.of(values), layers_of_output(problem)
    )
    [(case, _)], _ = cases_of(columns, 1)
    if case.ranks == 1 or any(getattr(case, field) for field in COLUMNS):
        return None
    ranks = case.ranks * (2 if case.schedule in IN_A_V else 1)
    plain = case._replace(ranks=ranks, schedule="1f1b")
    sizes = place(plain).layers[:2].sum(axis=0).astype(int).ravel().tolist()
    if len(set(sizes)) == 1:
        return None
    choices = stated(plain, sizes) if case.schedule == "1f1b" else {}
    return UnevenStages(tuple(sizes), _flags(values, choices))


def stated(case: Case, sizes: Sequence[int]) -> dict[str, Scalar]:
    """Return the choices that place layers on stages as given, by column; the simplest ones."""
    for choices in _ways(case, sizes):
        other = case._replace(**choices)
        if not fault(other) and place(other).layers[:2].sum(axis=0).ravel().tolist() == sizes:
            return {COLUMNS[field]: value for field, value in choices.items()}
    return {}


def _ways(case: Case, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield choices that may place layers, the simplest first."""
    yield {"counts_loss": True}
    yield {"counts_embedding": True}
    yield {"counts_embedding": True, "counts_loss": True}
    of_rank = np.reshape(sizes, (case.chunks, case.ranks)).sum(axis=0).tolist()
    yield {"last": of_rank[-1]}
    yield {"first": of_rank[0]}
    yield {"first": of_rank[0], "last": of_rank[-1]}
    yield {"layout": text_of(sizes, case.mtp_layers)}


def text_of(sizes: Sequence[int], num_mtp: int) -> str:
    """Return the `pipeline_layout` of stages with these layers."""
    first, *middle, last = sizes
    runs = [(size, len(list(run))) for size, run in groupby(middle)]
    groups = [
        f"({_letters('t', size)}|)*{times}" if times > 1 else f"{_letters('t', size)}|"
        for size, times in runs
    ]
    end = _letters("t", last) + _letters("m", num_mtp)
    return f"E{_letters('t', first)}|{''.join(groups)}{end}L"


def _letters(letter: str, times: int) -> str:
    return letter * times if times < 3 else f"{letter}*{times}"


def _flags(values: Values, choices: dict[str, Scalar]) -> tuple[str, ...]:
    """Return the flags of choices with their values; none if the program lacks one of them."""
    release = number(values["framework_release"], np.inf)
    known = {
        row["input"]: row["flag"]
        for row in rows_of("training_step/framework_flag")
        if row["framework"] == values["framework"] and release >= float(row["from_release"])
    }
    if not choices.keys() <= known.keys():
        return ()
    return tuple(
        known[name] if value is True else f"{known[name]} {_quoted(value)}"
        for name, value in choices.items()
    )


def _quoted(value: Scalar) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
