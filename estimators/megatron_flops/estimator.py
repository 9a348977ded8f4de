"""The megatron_flops estimator under the project's contract.

Equations 2 to 4 of arXiv 2104.04473 know neither a layout nor memory: a cell is a problem and a
choice of recomputation, and has one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.base import BaseEstimator
from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    Mends,
    Refusal,
    Relation,
    Scalar,
    Values,
)
from estimators.factored import Factored
from estimators.inputs import Inputs
from estimators.megatron_flops import inputs as given
from estimators.megatron_flops.formulas import figures
from estimators.rules import Rule
from estimators.table_search import TableSearch
from estimators.training_step.spellings import SPELLINGS

NAME = "megatron_flops"
VERSION = 1
CHOICES = ("activation_recompute",)
SEARCHED: Mapping[str, tuple[Scalar, ...]] = MappingProxyType(
    {"activation_recompute": ("none", "full")}
)

RELATION = Relation(
    NAME,
    grain="one row per problem and recomputation",
    keys=(),
    measures=("step_seconds",),
    derived=(
        *("parameters", "step_flops", "model_flops", "mfu", "hfu", "tokens_per_second_per_gpu"),
        *("num_steps", "total_flops", "training_seconds"),
        *("approximate_training_seconds", "approximation_error"),
    ),
    stored_in="megatron_flops_row",  # the macro of sql/macros.sql has the name
    spellings={"activation_recompute": SPELLINGS["activation_recompute"]},
)

_ONE_ROW = Factored({"row": {"row": np.zeros(1)}}, {"row": None})
"""A layout without a column of its own."""


class OneRow(TableSearch):
    """A search whose cells have no layouts: each is one row."""

    def count(self, cell: Cell) -> int:
        """Return 1; see `contract.Search`."""
        del cell
        return 1

    def layouts(self, cell: Cell, max_rows: int) -> Iterator[Columns]:
        """Yield the only row; see `contract.Search`."""
        del cell, max_rows
        yield _ONE_ROW


def _no_table(_values: Mapping[str, Any], _kept: Mapping[str, Scalar], _mends: Mends) -> Columns:
    return {}


def _no_rules(_mends: Mends) -> tuple[Rule, ...]:
    return ()


class MegatronFlops(BaseEstimator):
    """Parameters, FLOPs and time of a GPT at a given rate, or at most at the peak rate."""

    name = NAME
    version = VERSION
    title = "Parameters, FLOPs and time of a GPT (arXiv 2104.04473, equations 2 to 4)"
    problem_columns = given.PROBLEM
    choice_columns = CHOICES
    input_columns = given.OTHER_INPUTS
    aliases: Mapping[str, str] = MappingProxyType(given.ALIASES)
    relations = (RELATION,)
    search = OneRow(
        NAME,
        VERSION,
        RELATION.name,
        problem=given.PROBLEM,
        choices=CHOICES,
        keys=(),
        resolve=given.resolve_problem,
        enumerate=_no_table,
        rules=_no_rules,
        system_columns=given.SYSTEM,
        other_inputs=given.OTHER_INPUTS,
        optional=given.OPTIONAL,
        searched=SEARCHED,
    )
    shape_columns = given.SHAPE
    needed_shape = given.NEEDED
    searched_choices = SEARCHED

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of shape and rate."""
        del mends  # there are none
        return (*given.SHAPE_RULES, *given.RATE_RULES)

    def resolve(
        self, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        """Complete and check rows of input; see `contract.Estimator`."""
        inputs = Inputs(columns, relation.real)
        given.resolve_problem(inputs, catalog, mends)
        return inputs.finish((*given.PROBLEM, *CHOICES), given.OPTIONAL), inputs.refusals

    def estimate(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
    ) -> None:
        """Fill `out`; see `contract.Estimator`."""
        del relation, layouts, mends  # there is one of the first and none of the others
        recomputes = np.equal(values["activation_recompute"], "full")
        with np.errstate(all="ignore"):
            found = figures(values, recomputes)
        for name, column in out.items():
            column[:] = found[name]


MEGATRON_FLOPS = MegatronFlops()
