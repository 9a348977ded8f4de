"""Neutral defaults of the contract, so that an estimator's file is its content."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import (
    Array,
    Catalog,
    Columns,
    Formula,
    Mends,
    Operations,
    Refusal,
    Relation,
    Report,
    Scalar,
    Search,
    Values,
)
from estimators.enumeration import Axis, enumerate_layouts
from estimators.factored import Gathered
from estimators.inputs import Inputs
from estimators.rules import Rule
from estimators.search import TableSearch
from estimators.source_tables import SourceTable

PLANNED = ("model", "accelerator", "num_gpus", "global_batch_size", "seq_len")
"""Problem columns that a plan sets."""

BATCH_RULE = "2,048^2 tokens at 1e25 FLOPs, with the sixth root of the FLOPs, to a power of two"
"""Source: davidsj/ml_par_sim run_optimizer2.ipynb."""


class BaseEstimator:
    """An estimator without capabilities: subclasses add theirs.

    `estimators.contract.Estimator` describes the attributes. A subclass defines `complete`, or
    else `resolve`, and `figures`, or else `estimate`.
    """

    name: str
    version: int
    title: str
    mends: tuple[str, ...] = ()
    problem_columns: tuple[str, ...]
    choice_columns: tuple[str, ...] = ()
    input_columns: tuple[str, ...] = ()
    aliases: Mapping[str, str] = MappingProxyType({})
    neutral_choices: Mapping[str, Scalar] = MappingProxyType({})
    relations: tuple[Relation, ...]
    search: Search | None = None
    optional_columns: tuple[str, ...] = ()
    """Problem columns that may stay missing."""

    time_parts: tuple[str, ...] = ()
    memory_parts: tuple[str, ...] = ()
    formulas: Mapping[str, Formula] = MappingProxyType({})
    rates: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    shape_columns: tuple[str, ...] = ()
    needed_shape: tuple[str, ...] = ()
    searched_choices: Mapping[str, tuple[Scalar, ...]] = MappingProxyType({})
    batch_rule: str = BATCH_RULE
    operations: Operations | None = None
    reports: Mapping[str, Report] = MappingProxyType({})
    source_tables: Mapping[str, SourceTable] = MappingProxyType({})
    takes_published_steps: bool = False
    published_studies: tuple[str, ...] = ()

    @property
    def can_plan(self) -> bool:
        """Whether it searches the layouts of a step of a model on a number of GPUs."""
        has_step = bool(self.time_parts) and "step_seconds" in self.relations[0].outputs
        has_columns = set(PLANNED) <= set(self.problem_columns)
        return self.search is not None and has_step and has_columns

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return no rule."""
        del mends
        return ()

    def constant_places(
        self, catalog: Catalog, framework: Scalar, accelerator: Scalar
    ) -> tuple[str, ...]:
        """Return one place: constants hold for all systems."""
        del catalog, framework, accelerator
        return ("",)

    def consistent_choices(self, choices: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the choices unchanged."""
        return dict(choices)

    def layer_parameters(self, values: Values) -> tuple[float, float]:
        """Return NaN: a model without layers."""
        del values
        return math.nan, math.nan

    def default_batch(self, values: Values, tokens: float) -> int:
        """Return the batch by `BATCH_RULE`, with 6 FLOPs a token and active parameter."""
        _, active = self.layer_parameters(values)
        flops = 6 * active * tokens
        sequences = 2048**2 * (flops / 1e25) ** (1 / 6) / int(values["seq_len"] or 1)
        return int(2 ** max(round(math.log2(sequences)), 0))

    def least_flops(self, values: Columns) -> Array:
        """Return NaN: no bound is known."""
        return np.full(_height(values), np.nan)

    def peak_flops_per_second(self, values: Columns) -> Array:
        """Return the rate of the matrix units, NaN where the problem has none."""
        unknown = np.full(_height(values), np.nan)
        return np.asarray(values.get("matrix_flops_per_second", unknown), dtype=np.float64)

    def least_seconds(self, values: Columns) -> Array:
        """Return the seconds of `least_flops` at the peak of all GPUs."""
        unknown = np.full(_height(values), np.nan)
        with np.errstate(all="ignore"):
            rate = self.peak_flops_per_second(values) * values.get("num_gpus", unknown)
            return np.asarray(self.least_flops(values) / rate)

    def complete(self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends) -> None:
        """Fill defaults of a batch of rows, and refuse faulty rows."""
        raise NotImplementedError(f"{self.name} has neither `complete` nor `resolve`")

    def figures(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        wanted: Collection[str],
    ) -> Mapping[str, Any]:
        """Return results by name, among them all `wanted` ones that are no key.

        Parameters
        ----------
        values
            Scalars of a cell, or arrays as long as the layouts.
        """
        raise NotImplementedError(f"{self.name} has neither `figures` nor `estimate`")

    def resolve(
        self, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        """Complete and check rows of input; see `contract.Estimator`."""
        inputs = Inputs(columns, relation.real)
        self.complete(inputs, relation, catalog, mends)
        names = (*self.problem_columns, *self.choice_columns, *relation.keys)
        return inputs.finish(names, self.optional_columns), inputs.refusals

    def estimate(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
    ) -> None:
        """Fill `out`; see `contract.Estimator`."""
        found = self.figures(relation, values, layouts, mends, out.keys())
        for name, column in out.items():
            figure = layouts[name] if name in relation.keys else found[name]
            if isinstance(figure, Gathered):
                figure.write(column)
            else:
                column[:] = figure


class SearchedEstimator(BaseEstimator):
    """An estimator whose cells a search makes: by default with layouts as one table.

    A subclass defines `complete_problem`, `complete_layout` and `axes`; its rules prune the
    layouts. The problem, its rules and its layouts are those of batches and of searches alike.
    """

    search: Search

    system_columns: tuple[str, ...] = ()
    """Problem columns that a study gives under [system]."""

    required_in_space: Mapping[str, str] = MappingProxyType({})
    """Problem column that a study must give -> the hint where it does not."""

    searched_by_default: Mapping[str, tuple[Scalar, ...]] = MappingProxyType({})
    """Choice -> the values that a study takes without naming it."""

    independent: frozenset[str] = frozenset()
    """Problem columns and choices that no layout depends on."""

    def __init__(self) -> None:
        self.search = self.make_search()

    def make_search(self) -> Search:
        """Return the search over the rows of the first relation."""
        return TableSearch(self, self.relations[0])

    @property
    def space_inputs(self) -> tuple[str, ...]:
        """Those of `input_columns` that a study may give."""
        return self.input_columns

    def complete_problem(self, inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
        """Fill and check problem and choices."""
        raise NotImplementedError(f"{self.name} has no `complete_problem`")

    def complete_space(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check problem and choices of a search over `relation`."""
        del relation
        self.complete_problem(inputs, catalog, mends)
        for name, hint in self.required_in_space.items():
            inputs.require((name,), hint)
            inputs.check((name,))

    def complete_layout(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check the layouts of a batch, whose problems are complete."""

    def complete(self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends) -> None:
        """Fill and check problems, choices and layouts of a batch."""
        self.complete_problem(inputs, catalog, mends)
        self.complete_layout(inputs, relation, catalog, mends)

    def search_rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules that prune a search."""
        return self.rules(mends)

    def axes(self, values: Values) -> tuple[Axis, ...]:
        """Return the axes that the layouts of a problem are grown by, in order."""
        raise NotImplementedError(f"{self.name} has neither `axes` nor `layouts_of`")

    def layouts_of(
        self, relation: Relation, values: Values, kept: Mapping[str, Scalar], mends: Mends
    ) -> Columns:
        """Return every layout of a cell.

        Parameters
        ----------
        values
            Problem and choices; absent optional ones are None.
        kept
            Key -> the one value that a study holds it to.
        """
        del relation
        table = enumerate_layouts(values, self.axes(values), self.search_rules(mends), kept)
        return {
            name: column.astype(COLUMNS[name].dtype, copy=False) for name, column in table.items()
        }


def _height(columns: Columns) -> int:
    return len(next(iter(columns.values()), ()))
