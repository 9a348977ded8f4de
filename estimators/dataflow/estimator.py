"""The dataflow estimator under the project's contract."""

from __future__ import annotations

from collections.abc import Mapping
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
from estimators.dataflow import inputs as given
from estimators.dataflow.report import run_lines
from estimators.dataflow.rules import LAYOUT_RULES, PROBLEM_RULES
from estimators.dataflow.run import derived, efficient_microbatch_sizes, totals
from estimators.enumeration import Axis, divisors_of, enumerate_layouts, exactly, left_of
from estimators.inputs import Inputs
from estimators.rules import Rule
from estimators.table_search import TableSearch

VERSION = 1

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
    runs=("data_parallel", "pipeline_parallel", "expert_parallel"),
)


def _enumerate(values: Mapping[str, Any], kept: Mapping[str, Scalar], _mends: Mends) -> Columns:
    """Return every layout of a problem; the rules prune as soon as they can be told."""
    tokens = values["seq_len"] // values["num_experts"]
    left = left_of(values["num_clusters"], given.KEYS)

    def within(*wholes: int) -> Any:
        common = int(np.gcd.reduce(np.array(wholes, dtype=np.int64)))
        return divisors_of(lambda known: np.gcd(left(known), common))

    axes = (
        Axis("data_parallel", within(values["global_batch_size"])),
        Axis("pipeline_parallel", within(values["num_layers"])),
        Axis("expert_parallel", within(values["num_experts"])),
        Axis("sequence_parallel", within(tokens)),
        Axis("tensor_parallel", within(values["ffn_hidden_size"], values["num_heads"])),
        Axis("tensor_parallel_external", exactly(left)),
    )
    return enumerate_layouts(values, axes, _rules(frozenset()), kept)


def _rules(_mends: Mends) -> tuple[Rule, ...]:
    return (*PROBLEM_RULES, *LAYOUT_RULES)


def _resolve_space(inputs: Inputs, catalog: Catalog, _mends: Mends) -> None:
    given.resolve_space(inputs, catalog)


class Dataflow(BaseEstimator):
    """FLOPs and elements on the network, counted operation by operation.

    Its time is a lower bound: neither bubble nor communication is in it.
    """

    name = "dataflow"
    version = VERSION
    title = (
        "FLOPs and traffic between clusters (davidsj/ml_par_sim transformer); "
        "its time is a lower bound"
    )
    problem_columns = given.PROBLEM
    choice_columns = given.CHOICES
    input_columns = given.INPUTS
    aliases: Mapping[str, str] = MappingProxyType(given.ALIASES)
    neutral_choices: Mapping[str, Scalar] = MappingProxyType(given.NEUTRAL_CHOICES)
    relations = (RELATION,)
    search = TableSearch(
        "dataflow",
        VERSION,
        RELATION.name,
        problem=given.PROBLEM,
        choices=given.CHOICES,
        keys=given.KEYS,
        resolve=_resolve_space,
        enumerate=_enumerate,
        rules=_rules,
        system_columns=("cluster_flops_per_second", "base_utilization"),
        other_inputs=given.INPUTS,
        optional=given.OPTIONAL,
        neutral=given.NEUTRAL_CHOICES,
        independent=frozenset(
            {
                *("use_glu", "dataset_tokens", "accelerator", "gpus_per_cluster"),
                *("cluster_flops_per_second", "network_bytes_per_element", "forward_only"),
                "activation_recompute",
            }
        ),
    )
    reports: Mapping[str, Report] = MappingProxyType({RELATION.name: run_lines})

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of problem and layout."""
        return _rules(mends)

    def resolve(
        self, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        """Complete and check rows of input; see `contract.Estimator`."""
        del mends  # there are none
        inputs = Inputs(columns)
        given.resolve_problem(inputs, catalog)
        given.resolve_layout(inputs)
        names = (*given.PROBLEM, *given.CHOICES, *relation.keys)
        return inputs.finish(names, given.OPTIONAL), inputs.refusals

    def estimate(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
    ) -> None:
        """Fill `out`; see `contract.Estimator`."""
        del mends
        found = totals(values, layouts)
        if not out.keys() <= {*relation.keys, *found}:
            found |= derived(values, layouts, found)
        if "efficient_microbatch_sizes" in out:
            found["efficient_microbatch_sizes"] = efficient_microbatch_sizes(values, layouts)
        for name, column in out.items():
            column[:] = layouts[name] if name in relation.keys else found[name]


DATAFLOW = Dataflow()
