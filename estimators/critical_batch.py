"""The tokens that a larger batch takes to the same loss.

To a given loss a batch of B tokens takes D = D_min (1 + B / B_crit) tokens: nearly D_min where the
batch is far below the critical one, and twice as many at it (arXiv 1812.06162, equation 2.11, with
D = B S; arXiv 2001.08361, section 5.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from estimators.contract import Record


@dataclass(frozen=True)
class CriticalBatch:
    """The tokens of a batch at which a run takes twice the least tokens.

    `fit` is the row of table ``critical_batch`` that gives it, None where a user does; the fit is
    of models of at most `most_parameters`.
    """

    tokens: float
    fit: str | None = None
    most_parameters: float | None = None

    def needed(self, tokens: float, batch_tokens: float, usual_batch_tokens: float) -> float:
        """Return the tokens of a run at one batch, if it takes `tokens` at the usual one."""
        return tokens * (self.tokens + batch_tokens) / (self.tokens + usual_batch_tokens)


def fitted(fit: Record, tokens: float) -> CriticalBatch:
    """Return the critical batch of a run over `tokens` by a row of table ``critical_batch``.

    A fit gives the sequences of the batch that takes `more_tokens_fraction` more than the least
    tokens. By the formula above it is this share of the critical batch.
    """
    unit, exponent = _number(fit, "batch_unit_tokens"), _number(fit, "batch_exponent")
    sequences = _number(fit, "batch_coefficient") * (tokens / unit) ** exponent
    batch_tokens = sequences * _number(fit, "batch_seq_len")
    return CriticalBatch(
        batch_tokens / _number(fit, "more_tokens_fraction"),
        str(fit["critical_batch"]),
        _number(fit, "most_parameters"),
    )


def _number(fit: Record, name: str) -> float:
    return float(fit[name] or 0)
