"""The megatron_flops estimator under the project's contract.

Equations 2 to 4 of arXiv 2104.04473 have neither layout nor memory: a cell is a problem and a
choice of recomputation, and has one row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.contract import Catalog, Cell, Columns, Mends, Relation, Scalar, Search, Values
from estimators.factored import Factored
from estimators.inputs import Inputs
from estimators.megatron_flops import inputs as given
from estimators.megatron_flops.formulas import Run, figures
from estimators.rules import Rule
from estimators.search import SearchedEstimator, TableSearch
from estimators.structure import equals
from estimators.training_step.spellings import SPELLINGS

NAME = "megatron_flops"

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
"""A layout without columns."""


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


class MegatronFlops(SearchedEstimator):
    """Parameters, FLOPs and time of a GPT at a given rate, or at most at the peak rate."""

    name = NAME
    version = 1
    title = "Parameters, FLOPs and time of a GPT (arXiv 2104.04473, equations 2 to 4)"
    problem_columns = given.PROBLEM
    choice_columns = ("activation_recompute",)
    input_columns = given.OTHER_INPUTS
    optional_columns = given.OPTIONAL
    system_columns = given.SYSTEM
    aliases: Mapping[str, str] = MappingProxyType(given.ALIASES)
    relations = (RELATION,)
    shape_columns = given.SHAPE
    needed_shape = given.NEEDED
    searched_choices: Mapping[str, tuple[Scalar, ...]] = MappingProxyType(
        {"activation_recompute": ("none", "full")}
    )
    searched_by_default = searched_choices

    def make_search(self) -> Search:
        """Return the search whose cells have one row."""
        return OneRow(self, RELATION)

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of shape and rate."""
        del mends  # there are none
        return (*given.SHAPE_RULES, *given.RATE_RULES)

    def complete_problem(self, inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
        """Fill and check shape, rate, run and recomputation."""
        del mends
        given.resolve_problem(inputs, catalog)

    def figures(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        wanted: Collection[str],
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        """Return every result."""
        del relation, layouts, mends, wanted, catalog
        with np.errstate(all="ignore"):
            return figures(Run.of(values), equals(values["activation_recompute"], "full"))


MEGATRON_FLOPS: SearchedEstimator = MegatronFlops()
