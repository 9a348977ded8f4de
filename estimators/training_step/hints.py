"""Hints for layouts that break a rule: the nearest values that keep it."""

from __future__ import annotations

from math import gcd

import numpy as np

from estimators.contract import Values
from estimators.divisors import divisors
from estimators.rules import Explanation, nearest
from estimators.training_step.attention import FLASH_BLOCK


def divisor_of(column: str, whole: str) -> Explanation:
    """Return the hint of a column that must divide another."""

    def hint(row: Values) -> str:
        return f"use {nearest(_divisors(row[whole]), row[column])}"

    return hint


def key_head_shares(row: Values) -> str:
    """Return tensor degrees that divide the key heads, or are multiples of them."""
    heads, degree = int(row["num_kv_heads"]), int(row["tensor_parallel"])
    below = degree // max(heads, 1) * heads
    multiples = [count for count in (below, below + heads) if count > heads]
    return f"use {nearest([*_divisors(heads), *multiples], degree)}"


def sequence_shares(row: Values) -> str:
    """Return context degrees whose ranks get two shares of whole blocks."""
    seq_len = int(row["seq_len"])
    degrees = [n for n in _divisors(seq_len // 2) if seq_len >= 2 * FLASH_BLOCK * n]
    return f"use {nearest([*degrees, 1], row['context_parallel'])}"


def sequence_parallel(row: Values) -> str:
    """Return the hint to use false, or tensor degrees over which it can split."""
    context = max(int(row["context_parallel"]), 1)
    degrees = [n for n in _divisors(int(row["seq_len"]) // context) if n > 1]
    if int(row["seq_len"]) % context or not degrees:
        return "use false"
    return f"use false, or `tensor_parallel` {nearest(degrees, row['tensor_parallel'])}"


def product_of_degrees(row: Values) -> str:
    """Return the product itself, or the replicas that the other degrees leave."""
    others = int(row["tensor_parallel"] * row["context_parallel"] * row["pipeline_parallel"])
    product = f"use {others * int(row['data_parallel'])}"
    replicas, rest = divmod(int(row["num_gpus"]), max(others, 1))
    if rest == 0 and replicas:
        return f"{product}, or `data_parallel` {replicas}"
    return f"{product}, or degrees that divide {row['num_gpus']}"


def chunks_of_stages(row: Values) -> str:
    """Return chunks that divide the layers of a stage, or stages that divide the layers."""
    layers, stages = int(row["num_layers"]), max(int(row["pipeline_parallel"]), 1)
    if stages == 1:
        return "use 1 on one stage"
    most = -(-layers // stages)
    short = most * stages - layers
    chunks = [number for number in _divisors(most) if short <= most // number + 1]
    if chunks in ([], [1]):
        return f"use 1, or `pipeline_parallel` {nearest(_divisors(layers), stages)}"
    return f"use {nearest(chunks, row['virtual_pipeline'])}"


def expert_shares(row: Values) -> str:
    """Return degrees that divide the width of an expert; 1 where there are none."""
    width = int(row["expert_ffn_hidden_size"]) if row["num_experts"] > 1 else 1
    return f"use {nearest(_divisors(width), row['expert_tensor_parallel'])}"


def expert_groups(row: Values) -> str:
    """Return expert degrees that divide the ranks of a stage, or no split of experts."""
    ranks = int(row["tensor_parallel"] * row["context_parallel"] * row["data_parallel"])
    tensor = int(row["expert_tensor_parallel"])
    if ranks % max(tensor, 1):
        return f"use `expert_tensor_parallel` {nearest(_divisors(ranks), tensor)}"
    degrees = _divisors(ranks // max(tensor, 1))
    return f"use {nearest(degrees, row['expert_parallel'])}"


def batch_of_replicas(row: Values) -> str:
    """Return microbatches that divide a replica's sequences, or batches that replicas divide."""
    batch, replicas = int(row["global_batch_size"]), max(int(row["data_parallel"]), 1)
    size = max(int(row["microbatch_size"]), 1)
    batches = f"`global_batch_size` {_multiples(replicas * size, batch)}"
    if batch % replicas == 0:
        return f"use {nearest(_divisors(batch // replicas), size)}, or {batches}"
    counts = _divisors(batch // gcd(batch, size))
    return f"use {batches}, or `data_parallel` {nearest(counts, replicas)}"


def rounds_of_stages(row: Values) -> str:
    """Return no chunks, or batches whose microbatches come in rounds of stages."""
    once = int(row["data_parallel"] * row["microbatch_size"] * row["pipeline_parallel"])
    return f"use 1, or `global_batch_size` {_multiples(once, int(row['global_batch_size']))}"


def _multiples(unit: int, number: int) -> str:
    below = number // max(unit, 1) * unit
    return nearest([count for count in (below, below + unit) if count > 0], number)


def _divisors(number: int) -> list[int]:
    found: list[int] = divisors(max(int(np.int64(number)), 1)).tolist()
    return found
