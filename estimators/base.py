"""Neutral defaults of the contract, so that an estimator defines only its capabilities."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.contract import (
    Array,
    Catalog,
    Columns,
    Formula,
    IdleChoices,
    Mends,
    Operations,
    Refusal,
    Relation,
    Report,
    Scalar,
    Search,
    SourceTable,
    Values,
)
from estimators.factored import Gathered
from estimators.inputs import Inputs
from estimators.rules import Rule
from estimators.timings import TimedKernels

PLANNED = ("model", "accelerator", "num_gpus", "global_batch_size", "seq_len")
"""Problem columns that a plan sets."""

BATCH_RULE = (
    "2,048^2 tokens at 1e25 FLOPs, growing with the sixth root of the FLOPs, "
    "rounded to a power of two"
)
"""Source: davidsj/ml_par_sim run_optimizer2.ipynb."""


class BaseEstimator:
    """An estimator without capabilities: subclasses add theirs.

    `estimators.contract.Estimator` describes the attributes. A subclass defines `complete`, or
    else `resolve`, and `figures`, or else `estimate`.
    """

    name: str
    version: int
    title: str
    precedence: int = 0
    mends: tuple[str, ...] = ()
    problem_columns: tuple[str, ...]
    choice_columns: tuple[str, ...] = ()
    input_columns: tuple[str, ...] = ()
    aliases: Mapping[str, str] = MappingProxyType({})
    neutral_choices: Mapping[str, Scalar] = MappingProxyType({})
    idle_choices: tuple[IdleChoices, ...] = ()
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
    searched_by_default: Mapping[str, tuple[Scalar, ...]] = MappingProxyType({})
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

    @property
    def timed_kernels(self) -> tuple[TimedKernels, ...]:
        """No file of timings."""
        return ()

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

    def takes_range(self, constant: str, columns: Columns) -> Array:
        """Return all rows."""
        del constant
        return np.ones(_height(columns), dtype=bool)

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

    def independent_share(
        self, relation: Relation, columns: Columns, mends: Mends, catalog: Catalog
    ) -> Array:
        """Return 0: no part of the step has an independent error."""
        del relation, mends, catalog
        return np.zeros(_height(columns))

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
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        """Return results by name, among them all `wanted` ones that are no key.

        Parameters
        ----------
        values
            Scalars of a cell, or arrays as long as the layouts.
        catalog
            The reference tables, for measured figures that `values` name.
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
        catalog: Catalog,
    ) -> None:
        """Fill `out`; see `contract.Estimator`."""
        found = self.figures(relation, values, layouts, mends, out.keys(), catalog)
        for name, column in out.items():
            figure = layouts[name] if name in relation.keys else found[name]
            if isinstance(figure, Gathered):
                figure.write(column)
            else:
                column[:] = figure

    def forget(self) -> None:
        """Do nothing: no figures of a cell are kept; see `contract.Estimator`."""


def _height(columns: Columns) -> int:
    return len(next(iter(columns.values()), ()))
