"""The rules that a layout keeps: named predicates, the same for batches and searches.

Source: arXiv 2410.00273 and its program; interleaving: arXiv 2104.04473, section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lcm, prod
from typing import Any

import numpy as np

from estimators.contract import Mends, Values
from estimators.roofline.strategies import ATTENTIONS
from estimators.rules import INTERLEAVING_NEEDS_STAGES, Rule, divides, divides_number, only

DEGREES = {
    "nvlink_tensor_parallel": "tensor_parallel",
    "nvlink_tensor_parallel_2": "tensor_parallel_2",
    "nvlink_context_parallel": "context_parallel",
    "nvlink_data_parallel": "data_parallel",
    "nvlink_pipeline_parallel": "pipeline_parallel",
}
"""Placement -> the degree it divides, in the order in which ranks fill a domain by default."""


def _per_replica(values: Values) -> Any:
    return values["global_batch_size"] // np.maximum(values["data_parallel"], 1)


def _microbatches(values: Values) -> Any:
    return _per_replica(values) // np.maximum(values["microbatch_size"], 1)


def _stage_layers(values: Values) -> Any:
    return values["num_layers"] // np.maximum(values["pipeline_parallel"], 1)


def _tokens(values: Values) -> Any:
    return values["microbatch_size"] * values["seq_len"]


def _divides_tokens(column: str) -> Rule:
    """Return the rule that a degree divides the tokens of a microbatch."""
    return divides_number(
        f"{column} divides the tokens of a microbatch",
        column,
        ("microbatch_size", "seq_len"),
        _tokens,
        lambda row: f"the {_tokens(row)} tokens of a microbatch",
    )


def _in(strategy: str, rule: Rule) -> Rule:
    return only("strategy", strategy, rule)


def _unused(column: str, neutral: int, *strategies: str) -> tuple[Rule, ...]:
    """Return the rules that keep `column` neutral in `strategies`."""
    rule = Rule(
        f"{column} is unused",
        column,
        (column,),
        lambda values: np.equal(values[column], neutral),
        lambda _: f"has no meaning in strategy {' and '.join(strategies)}",
        lambda _: f"use {neutral} or leave it out",
    )
    return tuple(_in(strategy, rule) for strategy in strategies)


def _context_divides(whole: str, tokens: Callable[[Values], Any]) -> Rule:
    """Return the rule that tensor and context axis together divide `tokens`."""
    return Rule(
        f"both axes divide {whole}",
        "context_parallel",
        ("context_parallel", "tensor_parallel", "seq_len", "microbatch_size"),
        lambda v: np.equal(
            tokens(v) % np.maximum(v["tensor_parallel"] * v["context_parallel"], 1), 0
        ),
        lambda row: (
            f"times `tensor_parallel` {row['tensor_parallel']} does not divide "
            f"{whole} {tokens(row)}"
        ),
        varies=("context_parallel", "tensor_parallel"),
    )


PROBLEM_RULES = (
    divides("num_heads", "hidden_size"),
    Rule(
        "attention fits the strategy",
        "attention",
        ("attention", "strategy"),
        lambda v: np.any(
            [
                np.equal(v["strategy"], strategy) & np.isin(v["attention"], known)
                for strategy, known in ATTENTIONS.items()
            ],
            axis=0,
        ),
        lambda row: f"is not modelled in strategy {row['strategy']}",
    ),
)

SPLIT_RULES = (
    divides("tensor_parallel", "num_heads"),
    divides("tensor_parallel", "hidden_size"),
    divides("tensor_parallel", "ffn_hidden_size"),
    _in("summa_2d", divides("tensor_parallel_2", "hidden_size")),
    _in("summa_2d", divides("tensor_parallel_2", "ffn_hidden_size")),
    divides("pipeline_parallel", "num_layers"),
    divides("data_parallel", "global_batch_size"),
    divides_number(
        "chunks divide the layers of a stage",
        "virtual_pipeline",
        ("num_layers", "pipeline_parallel"),
        _stage_layers,
        lambda row: f"the {_stage_layers(row)} layers of a stage",
    ),
    INTERLEAVING_NEEDS_STAGES,
)

ROW_RULES = (
    divides_number(
        "microbatch divides the replica's batch",
        "microbatch_size",
        ("global_batch_size", "data_parallel"),
        _per_replica,
        lambda row: f"the {_per_replica(row)} sequences of a replica",
    ),
    _in("tensor_1d", _divides_tokens("tensor_parallel")),
    _in("summa_2d", _divides_tokens("tensor_parallel_2")),
    _in("context_2d", _context_divides("the tokens of a microbatch", _tokens)),
    Rule(
        "interleaving takes microbatches in rounds of stages",
        "virtual_pipeline",
        (
            "virtual_pipeline",
            "pipeline_parallel",
            "microbatch_size",
            "global_batch_size",
            "data_parallel",
        ),
        lambda v: (
            np.less_equal(v["virtual_pipeline"], 1)
            | np.equal(_microbatches(v) % np.maximum(v["pipeline_parallel"], 1), 0)
        ),
        lambda row: (
            f"needs a multiple of {row['pipeline_parallel']} microbatches, not {_microbatches(row)}"
        ),
        lambda _: "use 1, or another `microbatch_size`",
    ),
)

EXACT_SEQUENCE = (
    _in("tensor_1d", divides("tensor_parallel", "seq_len")),
    _in("summa_2d", divides("tensor_parallel_2", "seq_len")),
    _in("context_2d", _context_divides("`seq_len`", lambda v: v["seq_len"])),
)
"""Mend R4: no token may be lost in a floored split."""

WHOLE_PANELS = _in(
    "summa_2d",
    Rule(
        "panels are whole on both axes",
        "summa_panels",
        ("summa_panels", "tensor_parallel", "tensor_parallel_2"),
        lambda v: np.equal(
            v["summa_panels"]
            % np.lcm(
                np.maximum(v["tensor_parallel"], 1).astype(np.int64),
                np.maximum(v["tensor_parallel_2"], 1).astype(np.int64),
            ),
            0,
        ),
        lambda row: (
            f"is not a multiple of both axes, {row['tensor_parallel']} and "
            f"{row['tensor_parallel_2']}"
        ),
        lambda row: f"use a multiple of {lcm(row['tensor_parallel'], row['tensor_parallel_2'])}",
    ),
)
"""Mend R11."""

BATCH_RULES = (
    *_unused("tensor_parallel_2", 1, "tensor_1d", "context_2d"),
    *_unused("context_parallel", 1, "tensor_1d", "summa_2d"),
    *_unused("summa_panels", 0, "tensor_1d", "context_2d"),
    _in(
        "summa_2d",
        Rule(
            "a SUMMA matmul has a panel",
            "summa_panels",
            ("summa_panels",),
            lambda v: np.greater_equal(v["summa_panels"], 1),
            lambda _: "is no number of panels: a SUMMA matmul has one or more",
            lambda _: "use 1 or more, or leave it out",
        ),
    ),
    _in("summa_2d", divides("summa_panels", "hidden_size")),
    Rule(
        "degrees multiply to the GPUs",
        "num_gpus",
        ("num_gpus", *DEGREES.values()),
        lambda v: np.equal(v["num_gpus"], prod(v[name] for name in DEGREES.values())),
        lambda row: (
            "is not the product of the degrees, "
            + " x ".join(str(row[name]) for name in DEGREES.values())
        ),
        varies=("num_gpus", "data_parallel"),
    ),
    *(divides(placement, degree) for placement, degree in DEGREES.items()),
    Rule(
        "placement fits the domain",
        "nvlink_size",
        ("nvlink_size", *DEGREES),
        lambda v: np.less_equal(prod(v[name] for name in DEGREES), v["nvlink_size"]),
        lambda row: (
            "is smaller than the members placed in one domain, "
            + " x ".join(str(row[name]) for name in DEGREES)
        ),
    ),
)


def split_rules(mends: Mends) -> tuple[Rule, ...]:
    """Return the rules of a split under `mends`."""
    return (*SPLIT_RULES, *EXACT_SEQUENCE) if "R4" in mends else SPLIT_RULES


def row_rules(mends: Mends) -> tuple[Rule, ...]:
    """Return the rules of a split with its microbatch and panels under `mends`."""
    return (*ROW_RULES, WHOLE_PANELS) if "R11" in mends else ROW_RULES
