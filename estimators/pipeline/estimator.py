"""The pipeline estimator under the project's contract."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.base import BaseEstimator
from estimators.contract import (
    Array,
    Catalog,
    Columns,
    Mends,
    Refusal,
    Relation,
    Report,
    Scalar,
    Values,
)
from estimators.enumeration import Axis, divisors_of, enumerate_layouts, exactly, left_of
from estimators.inputs import Inputs
from estimators.pipeline import inputs as given
from estimators.pipeline.report import run_lines
from estimators.pipeline.rules import LAYOUT_RULES, NUMBER_OF_RANKS, PROBLEM_RULES
from estimators.pipeline.step import figures
from estimators.rules import Rule
from estimators.table_search import TableSearch

VERSION = 1

RELATION = Relation(
    "pipeline",
    grain="one row per configuration: a layout of one problem",
    keys=given.KEYS,
    measures=(
        "step_seconds",
        "bubble_seconds",
        "steady_compute_seconds",
        "steady_network_seconds",
        "gradient_reduction_seconds",
        "matmul_seconds",
    ),
    derived=(
        "parameters",
        "active_parameters",
        "tokens",
        "num_steps",
        "num_gpus",
        "internal_size",
        "layers_per_chunk",
        "bubble_layers",
        "num_microbatches",
        "step_flops",
        "matmul_tokens",
        "matmul_internal_size",
        "matmul_hidden_size",
        "steady_seconds",
        "utilization",
        "total_flops",
        "flops_per_expert",
        "training_seconds",
    ),
    runs=(*given.DEGREES, "virtual_pipeline", "gradient_reduction_seconds"),
)


def _enumerate(values: Mapping[str, Any], kept: Mapping[str, Scalar], _mends: Mends) -> Columns:
    """Return every layout of a problem; the rules prune as soon as they can be told."""
    ranks = values["num_gpus"] // values["num_experts"]
    left = left_of(ranks, given.DEGREES)

    def shared(whole: str) -> Any:
        return divisors_of(lambda known: np.gcd(left(known), values[whole]))

    stages = gcd(int(values["num_layers"]), int(ranks))
    axes = (
        Axis("pipeline_parallel", divisors_of(lambda _: stages)),
        Axis("data_parallel", divisors_of(left)),
        Axis("tensor_parallel", shared("internal_size")),
        Axis("tensor_parallel_external", exactly(left)),
        Axis(
            "virtual_pipeline",
            divisors_of(lambda known: values["num_layers"] // known["pipeline_parallel"]),
        ),
        Axis("microbatch_size", divisors_of(lambda _: values["global_batch_size"])),
    )
    return enumerate_layouts(values, axes, _rules(frozenset()), kept)


def _rules(_mends: Mends) -> tuple[Rule, ...]:
    return (*PROBLEM_RULES, NUMBER_OF_RANKS, *LAYOUT_RULES)


class Pipeline(BaseEstimator):
    """Bubble, steady phase and gradient reduction of a mixture-of-experts transformer.

    `source_version` readme gives the figures of the source's README, current those of its
    present program, which counts utilization and the network; mends apply to the latter only.
    """

    name = "pipeline"
    version = VERSION
    title = "Step time of a mixture-of-experts transformer (davidsj/ml_par_sim simple_transformer)"
    mends = ("P1", "P2", "P3", "P4")
    problem_columns = given.PROBLEM
    choice_columns = given.CHOICES
    input_columns = given.INPUTS
    aliases: Mapping[str, str] = MappingProxyType(given.ALIASES)
    relations = (RELATION,)
    search = TableSearch(
        "pipeline",
        VERSION,
        RELATION.name,
        problem=given.PROBLEM,
        choices=given.CHOICES,
        keys=given.KEYS,
        resolve=given.resolve_space,
        enumerate=_enumerate,
        rules=_rules,
        system_columns=(*given.DEVICE, "base_utilization"),
        other_inputs=given.INPUTS,
        optional=("accelerator",),
        independent=frozenset(
            {
                *("source_version", "accelerator", *given.DEVICE, "base_utilization"),
                *("precision_bits", "dataset_tokens"),
            }
        ),
    )
    time_parts = ("bubble_seconds", "steady_seconds", "gradient_reduction_seconds")
    reports: Mapping[str, Report] = MappingProxyType({RELATION.name: run_lines})

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of problem and layout."""
        return _rules(mends)

    def resolve(
        self, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        """Complete and check rows of input; see `contract.Estimator`."""
        inputs = Inputs(columns)
        given.resolve_problem(inputs, catalog, mends)
        given.resolve_layout(inputs)
        return inputs.finish((*given.PROBLEM, *relation.keys)), inputs.refusals

    def estimate(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
    ) -> None:
        """Fill `out`; see `contract.Estimator`."""
        found = figures(values, layouts, mends)
        for name, column in out.items():
            column[:] = layouts[name] if name in relation.keys else found[name]


PIPELINE = Pipeline()
