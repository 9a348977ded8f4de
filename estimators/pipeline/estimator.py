"""The pipeline estimator under the project's contract."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import gcd
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.contract import Catalog, Columns, Mends, Relation, Values
from estimators.enumeration import Axis, divisors_of, exactly, left_of
from estimators.estimator import Source, Step
from estimators.inputs import Inputs
from estimators.pipeline import inputs as given
from estimators.pipeline.step import Problem, figures, layouts_of, report
from estimators.rules import Rule
from estimators.search import SearchedEstimator

_PHASES = ("steady_compute_seconds", "steady_network_seconds", "gradient_reduction_seconds")

RELATION = Relation(
    "pipeline",
    grain="one row per configuration: a layout of one problem",
    keeps_leading=True,
    keys=given.KEYS,
    measures=(
        "step_seconds",
        *_PHASES,
    ),
    derived=(
        "bubble_seconds",
        "matmul_seconds",
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
    compression={
        "step_seconds": "uncompressed",
        **dict.fromkeys((*given.DEGREES, "virtual_pipeline", *_PHASES), "rle"),
    },
)


class Pipeline(SearchedEstimator):
    """Bubble, steady phase and gradient reduction of a mixture-of-experts transformer.

    `source_version` = readme gives the figures of the source's README; current gives those of its
    present program, which also counts utilization and the network. Mends apply to current only.
    """

    name = "pipeline"
    version = 1
    title = "Step time of a mixture-of-experts transformer (davidsj/ml_par_sim simple_transformer)"
    mends = ("P1", "P2", "P3", "P4")
    problem_columns = given.PROBLEM
    input_columns = given.INPUTS
    optional_columns = ("accelerator",)
    system_columns = (*given.DEVICE, "base_utilization")
    independent = frozenset(
        {
            *("source_version", "accelerator", *given.DEVICE, "base_utilization"),
            *("precision_bits", "dataset_tokens"),
        }
    )
    aliases: Mapping[str, str] = MappingProxyType(given.ALIASES)
    relations = (RELATION,)
    step = Step(parts=("bubble_seconds", "steady_seconds", "gradient_reduction_seconds"))
    source = Source(reports={RELATION.name: report})

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of problem and layout."""
        del mends  # they change no rule
        return (*given.PROBLEM_RULES, given.NUMBER_OF_RANKS, *given.LAYOUT_RULES)

    def complete_problem(self, inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
        """Fill and check the problem."""
        given.resolve_problem(inputs, catalog, mends)

    def complete_space(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check the problems of a search, with their GPUs."""
        super().complete_space(inputs, relation, catalog, mends)
        given.resolve_ranks(inputs, mends)

    def complete_layout(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check layouts."""
        del relation, catalog, mends
        given.resolve_layout(inputs)

    def axes(self, values: Values) -> tuple[Axis, ...]:
        """Return the degrees, then the chunks of a stage and the size of a microbatch."""
        ranks = values["num_gpus"] // values["num_experts"]
        left = left_of(ranks, given.DEGREES)
        stages = gcd(int(values["num_layers"]), int(ranks))

        def in_width(known: Values) -> Any:
            return np.gcd(left(known), values["internal_size"])

        def in_stage(known: Values) -> Any:
            return values["num_layers"] // known["pipeline_parallel"]

        return (
            Axis("pipeline_parallel", divisors_of(lambda _: stages)),
            Axis("data_parallel", divisors_of(left)),
            Axis("tensor_parallel", divisors_of(in_width)),
            Axis("tensor_parallel_external", exactly(left)),
            Axis("virtual_pipeline", divisors_of(in_stage)),
            Axis("microbatch_size", divisors_of(lambda _: values["global_batch_size"])),
        )

    def figures(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        wanted: Collection[str],
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        """Return stored results, and those that are wanted."""
        del relation, catalog
        problem = Problem.of(values, mended_errata=mends)
        return figures(problem, layouts_of(problem, layouts), wanted)


PIPELINE: SearchedEstimator = Pipeline()
