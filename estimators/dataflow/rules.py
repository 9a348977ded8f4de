"""The rules that a dataflow layout keeps, in the source's order.

Source: davidsj/ml_par_sim transformer.py @520dcff. The smallest efficient microbatch is computed in
whole numbers; the source computes it in doubles, and may be one step too high.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from estimators.contract import Array, Values
from estimators.divisors import divisors
from estimators.factored import distinct
from estimators.rules import Rule, divides, divides_number

MAX_BATCH_TOKENS = 4096 * 2048
"""Most tokens of an expert in a batch, as in the source's program; its text says half of it."""

MIN_TOKENS = 1024
MIN_WIDTH = 1024
"""Tokens, and columns, that a product needs to keep a processor busy."""

MICROBATCHES_PER_STAGE = 4
"""Microbatches a stage that keep the bubble small."""

Number = Callable[[Values], Any]


def at_least_one(number: Any) -> Any:
    """Return `number`, or one instead of zero: a refused row must not divide by zero."""
    return np.maximum(number, 1)


def expert_tokens(values: Values) -> Any:
    """Return the tokens of a sequence that an expert takes."""
    return values["seq_len"] // at_least_one(values["num_experts"])


def replica_batch(values: Values) -> Any:
    """Return the sequences of a replica in a batch."""
    return values["global_batch_size"] // at_least_one(values["data_parallel"])


def fewest(values: Values) -> Any:
    """Return the fewest sequences of a replica that give a product enough tokens."""
    return -(-MIN_TOKENS * values["sequence_parallel"] // at_least_one(expert_tokens(values)))


def most(values: Values) -> Any:
    """Return the most sequences of a replica that leave the bubble small."""
    stages = values["pipeline_parallel"]
    batch = values["global_batch_size"]
    limit = np.where(
        np.greater(stages, 1), batch // at_least_one(MICROBATCHES_PER_STAGE * stages), batch
    )
    return limit // at_least_one(values["data_parallel"])


def smallest_efficient(values: Values) -> Array:
    """Return the least divisor of each replica's batch that is at least `fewest`, or infinity."""
    batch, least = np.broadcast_arrays(
        np.asarray(replica_batch(values), dtype=np.float64),
        np.asarray(fewest(values), dtype=np.float64),
    )
    found = np.full(batch.shape, np.inf)
    usable = np.isfinite(batch) & (batch >= 1) & (batch < 2**31) & np.isfinite(least)
    for number in distinct(batch[usable]):
        rows = usable & (batch == number)
        known = divisors(int(number))
        place = np.searchsorted(known, least[rows])
        found[rows] = np.append(known.astype(np.float64), np.inf)[place]
    return found


def _unless_skipped(rule: Rule) -> Rule:
    """Return a rule that `skip_efficiency_check` switches off."""
    return replace(
        rule,
        needs=(*rule.needs, "skip_efficiency_check"),
        holds=lambda v: np.asarray(v["skip_efficiency_check"], dtype=bool) | rule.holds(v),
    )


def _narrow(degree: str, width: str, number: Number, *needs: str) -> Rule:
    """Return the rule that a degree leaves at least `MIN_WIDTH` columns of a width."""
    return _unless_skipped(
        Rule(
            f"{degree} leaves matmuls wide",
            degree,
            (degree, *needs),
            lambda v: np.less_equal(MIN_WIDTH * v[degree], number(v)),
            lambda row: f"leaves fewer than {MIN_WIDTH} columns of {width} {number(row):g}",
        )
    )


EFFICIENCY_RULES = (
    _unless_skipped(
        Rule(
            "a batch stays below the noise scale",
            "global_batch_size",
            ("global_batch_size", "seq_len", "num_experts"),
            lambda v: np.less_equal(v["global_batch_size"] * expert_tokens(v), MAX_BATCH_TOKENS),
            lambda row: (
                f"times {expert_tokens(row):g} tokens an expert is more than {MAX_BATCH_TOKENS} "
                "tokens a batch"
            ),
            lambda _: "",
        )
    ),
    _unless_skipped(
        Rule(
            "the bubble is small",
            "pipeline_parallel",
            ("pipeline_parallel", "global_batch_size", "data_parallel"),
            lambda v: (
                np.less_equal(v["pipeline_parallel"], 1)
                | np.less_equal(MICROBATCHES_PER_STAGE * v["pipeline_parallel"], replica_batch(v))
            ),
            lambda row: (
                f"needs {MICROBATCHES_PER_STAGE * row['pipeline_parallel']:g} microbatches a "
                f"replica, which has {replica_batch(row):g} sequences"
            ),
            lambda _: "",
        )
    ),
    _unless_skipped(
        Rule(
            "an efficient microbatch exists",
            "data_parallel",
            (
                *("data_parallel", "pipeline_parallel", "sequence_parallel"),
                *("global_batch_size", "seq_len", "num_experts"),
            ),
            lambda v: np.less_equal(smallest_efficient(v), most(v)),
            lambda row: (
                f"leaves no efficient microbatch: no divisor of the {replica_batch(row):g} "
                f"sequences of a replica lies between {fewest(row):g} (for {MIN_TOKENS} tokens a "
                f"matmul) and {most(row):g} (for a small bubble)"
            ),
            lambda _: "",
        )
    ),
    _narrow(
        "tensor_parallel", "`ffn_hidden_size`", lambda v: v["ffn_hidden_size"], "ffn_hidden_size"
    ),
    _narrow(
        "tensor_parallel",
        "all heads,",
        lambda v: v["num_heads"] * v["head_size"],
        *("num_heads", "head_size"),
    ),
    _narrow("tensor_parallel_external", "`hidden_size`", lambda v: v["hidden_size"], "hidden_size"),
)


def _expert_tokens_divide(degree: str) -> Rule:
    """Return the rule that a degree divides the tokens of an expert."""
    return divides_number(
        f"{degree} divides the tokens of an expert",
        degree,
        ("seq_len", "num_experts"),
        expert_tokens,
        lambda row: f"the {expert_tokens(row):g} tokens of an expert",
    )


DEGREE_RULES = (
    divides("pipeline_parallel", "num_layers"),
    divides("expert_parallel", "num_experts"),
    _expert_tokens_divide("sequence_parallel"),
    _expert_tokens_divide("tensor_parallel_external"),
    divides("tensor_parallel_external", "hidden_size"),
    divides("tensor_parallel", "ffn_hidden_size"),
    divides("tensor_parallel", "num_heads"),
)


def _local(values: Values) -> dict[str, Any]:
    """Return the sizes of a cluster's part of a tensor by symbol.

    E experts, e those of a cluster, t their tokens, u tokens that the outer tensor axis leaves,
    d residual width, f feed-forward width, h width of a head, a heads, A their width, k width of
    the keys.
    """
    external = at_least_one(values["tensor_parallel_external"])
    inner = at_least_one(values["tensor_parallel"])
    heads = values["num_heads"] // inner
    shared = np.asarray(values["multi_query_attention"], dtype=bool)
    return {
        "E": values["num_experts"],
        "e": values["num_experts"] // at_least_one(values["expert_parallel"]),
        "t": expert_tokens(values) // at_least_one(values["sequence_parallel"]),
        "u": expert_tokens(values) // external,
        "d": values["hidden_size"] // external,
        "f": values["ffn_hidden_size"] // inner,
        "h": values["head_size"],
        "a": heads,
        "A": heads * values["head_size"],
        "k": np.where(shared, values["head_size"], heads * values["head_size"]),
    }


SCATTERED = (
    *("data_parallel", "sequence_parallel", "tensor_parallel", "tensor_parallel_external"),
    "expert_parallel",
)
NEEDS = (
    *("num_experts", "seq_len", "hidden_size", "ffn_hidden_size", "num_heads", "head_size"),
    *("multi_query_attention", "sequential_attention_ffn", "data_parallel", "expert_parallel"),
    *("sequence_parallel", "tensor_parallel", "tensor_parallel_external"),
)


def _scatters(what: str, column: str, sizes: str, degrees: tuple[str, ...], when: str = "") -> Rule:
    """Return the rule that a cluster's part of a tensor is scattered evenly over ranks.

    Parameters
    ----------
    sizes
        Symbols of `_local` whose product is the part's elements.
    degrees
        Degrees whose product is the ranks.
    when
        A flag without which the tensor does not exist.
    """

    def number(values: Values) -> Any:
        local = _local(values)
        return reduce(mul, [local[symbol] for symbol in sizes])

    def ranks(values: Values) -> Any:
        return reduce(mul, [values[degree] for degree in degrees])

    def holds(values: Values) -> Any:
        even = np.equal(number(values) % at_least_one(ranks(values)), 0)
        return even | ~np.asarray(values[when], dtype=bool) if when else even

    def reason(row: Values) -> str:
        others = [f"`{n}` {row[n]}" for n in SCATTERED if n != column and row[n] > 1]
        given = f"with {', '.join(others)} " if others else ""
        return (
            f"{given}does not scatter {what} evenly: {number(row):g} elements over "
            f"{ranks(row):g} ranks"
        )

    return Rule(f"{what} scatter evenly", column, NEEDS, holds, reason, lambda _: "")


_COPIES = ("data_parallel", "sequence_parallel")
_OUTER = ("tensor_parallel_external",)
_INNER = ("tensor_parallel",)
_EXPERTS = ("sequence_parallel", "expert_parallel")

SCATTER_RULES = (
    _scatters("attention weights", "data_parallel", "edA", _COPIES),
    _scatters(
        *("shared key weights", "data_parallel", "edh"),
        (*_COPIES, *_INNER),
        "multi_query_attention",
    ),
    _scatters("feed-forward weights", "data_parallel", "edf", _COPIES),
    _scatters("queries", "tensor_parallel_external", "etA", _OUTER),
    _scatters("keys of an expert", "sequence_parallel", "euk", _EXPERTS[:1]),
    _scatters("keys of all experts", "expert_parallel", "Euk", _EXPERTS),
    _scatters("softmax sums", "tensor_parallel_external", "eta", _OUTER),
    _scatters("attention's output", "tensor_parallel", "etd", _INNER, "sequential_attention_ffn"),
    _scatters("feed-forward activations", "tensor_parallel_external", "etf", _OUTER),
    _scatters("the layer's output", "tensor_parallel", "etd", _INNER),
)

PROBLEM_RULES = (divides("num_experts", "seq_len"),)
LAYOUT_RULES = (
    divides("data_parallel", "global_batch_size"),
    *EFFICIENCY_RULES,
    *DEGREE_RULES,
    *SCATTER_RULES,
)
