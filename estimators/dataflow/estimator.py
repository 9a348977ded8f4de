"""The dataflow estimator under the project's contract."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.contract import Catalog, Columns, Mends, Relation, Scalar, Values
from estimators.dataflow import inputs as given
from estimators.dataflow.rules import LAYOUT_RULES, PROBLEM_RULES
from estimators.dataflow.run import (
    Degrees,
    Problem,
    counts_of,
    derived,
    efficient_microbatch_sizes,
    report,
    totals,
)
from estimators.enumeration import Axis, divisors_of, exactly, left_of
from estimators.estimator import Source
from estimators.inputs import Inputs
from estimators.rules import Rule
from estimators.search import SearchedEstimator

_ELEMENTS = ("sent_elements", "received_elements", "network_elements")
RELATION = Relation(
    "dataflow",
    grain="one row per configuration: a layout of one problem",
    keys=given.KEYS,
    measures=(
        "forward_flops",
        "backward_flops",
        "forward_sent_elements",
        "backward_sent_elements",
        "forward_received_elements",
    ),
    derived=(
        "parameters",
        "effective_parameters",
        "tokens",
        "num_steps",
        "num_clusters",
        "resolved_ffn_hidden_size",
        "resolved_num_heads",
        "efficient_microbatch_sizes",
        "total_flops",
        "backward_received_elements",
        "forward_network_elements",
        "backward_network_elements",
        *(f"total_{name}" for name in _ELEMENTS),
        *(
            f"{who}_{what}_bytes_per_second"
            for who in ("cluster", "fleet")
            for what in ("sent", "received", "network")
        ),
        "fleet_flops_per_second",
        "training_seconds",
    ),
    compression=dict.fromkeys(("data_parallel", "pipeline_parallel", "expert_parallel"), "rle"),
)


class Dataflow(SearchedEstimator):
    """FLOPs and elements on the network, counted operation by operation.

    Its time is a lower bound: it has neither bubble nor communication.
    """

    name = "dataflow"
    version = 1
    title = (
        "FLOPs and traffic between clusters (davidsj/ml_par_sim transformer); "
        "its time is a lower bound"
    )
    problem_columns = given.PROBLEM
    choice_columns = given.CHOICES
    input_columns = given.INPUTS
    optional_columns = given.OPTIONAL
    system_columns = ("cluster_flops_per_second", "base_utilization")
    required_in_space: Mapping[str, str] = MappingProxyType(
        {"num_clusters": "say how many clusters the run has"}
    )
    independent = frozenset(
        {
            *("use_glu", "dataset_tokens", "accelerator", "gpus_per_cluster"),
            *("cluster_flops_per_second", "network_bytes_per_element", "forward_only"),
            "activation_recompute",
        }
    )
    aliases: Mapping[str, str] = MappingProxyType(given.ALIASES)
    neutral_choices: Mapping[str, Scalar] = MappingProxyType(given.NEUTRAL_CHOICES)
    relations = (RELATION,)
    source = Source(reports={RELATION.name: report})

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of problem and layout."""
        del mends  # there are none
        return (*PROBLEM_RULES, *LAYOUT_RULES)

    def complete_problem(self, inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
        """Fill and check problem and choices."""
        del mends
        given.resolve_problem(inputs, catalog)

    def complete_layout(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check layouts."""
        del relation, catalog, mends
        given.resolve_layout(inputs)

    def axes(self, values: Values) -> tuple[Axis, ...]:
        """Return the degrees: each divides its share of the model and of the clusters left."""
        tokens = values["seq_len"] // values["num_experts"]
        left = left_of(values["num_clusters"], given.KEYS)

        def within(*wholes: int) -> Any:
            common = int(np.gcd.reduce(np.array(wholes, dtype=np.int64)))
            return divisors_of(lambda known: np.gcd(left(known), common))

        return (
            Axis("data_parallel", within(values["global_batch_size"])),
            Axis("pipeline_parallel", within(values["num_layers"])),
            Axis("expert_parallel", within(values["num_experts"])),
            Axis("sequence_parallel", within(tokens)),
            Axis("tensor_parallel", within(values["ffn_hidden_size"], values["num_heads"])),
            Axis("tensor_parallel_external", exactly(left)),
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
        """Return counts and, where they are wanted, the figures of the run that follow."""
        del mends, catalog
        problem, degrees = Problem.of(values), Degrees.of(layouts)
        counts = counts_of(problem, degrees)
        results: dict[str, Any] = totals(problem, counts)
        if not set(wanted) <= {*relation.keys, *results}:
            results |= derived(problem, degrees, counts, results)
        if "efficient_microbatch_sizes" in wanted:
            results["efficient_microbatch_sizes"] = efficient_microbatch_sizes(values, layouts)
        return results


DATAFLOW: SearchedEstimator = Dataflow()
