"""The usual batch of a run: 4.2 million tokens for 1e25 FLOPs, twice as many for 64 times these.

Rounded to a power of two of sequences. Source: davidsj/ml_par_sim run_optimizer2.ipynb.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from estimators.contract import Catalog, Record
    from estimators.values import Real

REFERENCE_FLOPS = 1e25
REFERENCE_BATCH_TOKENS = 2048**2


def growth(flops: Real) -> Real:
    """Return by how much a batch grows with the FLOPs of a run, 1 at `REFERENCE_FLOPS`."""
    return (flops / REFERENCE_FLOPS) ** (1 / 6)


def batch_tokens(flops: Real) -> Real:
    """Return the tokens of a batch in a run of `flops`, not rounded."""
    return REFERENCE_BATCH_TOKENS * growth(flops)


def default_batch(active_parameters: float, seq_len: int, tokens: float) -> int:
    """Return the sequences of a step of a run over `tokens`, a power of two.

    The run takes 6 FLOPs a token and active parameter.
    """
    sequences = float(batch_tokens(6 * active_parameters * tokens)) / seq_len
    return int(2 ** max(round(math.log2(sequences)), 0))


_SIZE = 2.0
"""Published runs of models of at most this many times the size, or its inverse, give the range."""

_LEAST_RUNS = 4
"""Runs that give a range; where there are fewer, the sizes are twice as far apart."""


def published_range(catalog: Catalog, active_parameters: float) -> tuple[float, float]:
    """Return the least and the most tokens of a batch in published runs of models of a size.

    Batches of a ramp at the beginning of a run do not count. The size is in active parameters.
    """
    rows = [row for row in catalog.tables["batch_range"].values() if row["batch_phase"] != "ramp"]
    sized = [
        (abs(math.log(_number(row, "active_parameters") / active_parameters)), row) for row in rows
    ]
    ratio = _SIZE
    while len([1 for away, _ in sized if away <= math.log(ratio)]) < _LEAST_RUNS:
        ratio *= 2
    tokens = [_number(row, "global_batch_tokens") for away, row in sized if away <= math.log(ratio)]
    return min(tokens), max(tokens)


def _number(row: Record, name: str) -> float:
    return float(row[name] or 0)


def batches_in_range(catalog: Catalog, active_parameters: float, seq_len: int) -> list[int]:
    """Return the powers of two in the range of published batches of a size [sequences]."""
    least, most = (tokens / seq_len for tokens in published_range(catalog, active_parameters))
    first, last = math.ceil(math.log2(max(least, 1))), math.floor(math.log2(max(most, 1)))
    return [2**power for power in range(first, last + 1)]
