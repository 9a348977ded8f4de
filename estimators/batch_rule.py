"""The sequences of a step of a run, by the FLOPs of the run.

Source: davidsj/ml_par_sim run_optimizer2.ipynb.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from estimators.values import Real

BATCH_RULE = (
    "2,048^2 tokens at 1e25 FLOPs, growing with the sixth root of the FLOPs, "
    "rounded to a power of two"
)
"""Source: davidsj/ml_par_sim run_optimizer2.ipynb."""


REFERENCE_FLOPS = 1e25
REFERENCE_BATCH_TOKENS = 2048**2


def growth(flops: Real) -> Real:
    """Return by how much a batch grows with the FLOPs of a run, 1 at `REFERENCE_FLOPS`."""
    return (flops / REFERENCE_FLOPS) ** (1 / 6)


def batch_tokens(flops: Real) -> Real:
    """Return the tokens of a batch in a run of `flops`, by `BATCH_RULE`, not rounded."""
    return REFERENCE_BATCH_TOKENS * growth(flops)


def default_batch(active_parameters: float, seq_len: int, tokens: float) -> int:
    """Return the sequences of a step of a run over `tokens`, by `BATCH_RULE`.

    The run takes 6 FLOPs a token and active parameter.
    """
    sequences = float(batch_tokens(6 * active_parameters * tokens)) / seq_len
    return int(2 ** max(round(math.log2(sequences)), 0))
