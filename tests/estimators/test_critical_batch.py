"""The tokens of a larger batch, against the published relation of steps and tokens."""

from __future__ import annotations

import pytest

from estimators.critical_batch import CriticalBatch, fitted
from warehouse.database.catalog import packaged_catalog

TOKENS = 1e12


@pytest.mark.parametrize("batch", [1e4, 3e6, 5e7, 1e9])
def test_steps_and_tokens_trade_off_as_published(batch: float) -> None:
    """(S / S_min - 1) (D / D_min - 1) = 1, with D_min / S_min the critical batch."""
    critical = CriticalBatch(5e6)
    tokens = critical.needed(TOKENS, batch, usual_batch_tokens=0)  # at no batch the least tokens
    steps, least_steps = tokens / batch, TOKENS / critical.tokens
    assert (steps / least_steps - 1) * (tokens / TOKENS - 1) == pytest.approx(1)


def test_the_critical_batch_takes_twice_the_least_tokens() -> None:
    critical = CriticalBatch(5e6)
    assert critical.needed(TOKENS, 5e6, 0) == pytest.approx(2 * TOKENS)
    # the usual batch takes the tokens that were asked for, a smaller one fewer
    assert critical.needed(TOKENS, 2e6, 2e6) == TOKENS
    assert critical.needed(TOKENS, 1e6, 2e6) < TOKENS < critical.needed(TOKENS, 4e6, 2e6)


@pytest.mark.parametrize("tokens", [2e10, 1e12, 1.5e13])
def test_two_fits_of_different_groups_agree(tokens: float) -> None:
    """A unit that is wrong by a factor of a thousand would be far off."""
    fits = packaged_catalog().tables["critical_batch"].values()
    sizes = [fitted(fit, tokens).tokens for fit in fits]
    assert len(sizes) > 1
    assert max(sizes) < 1.3 * min(sizes)


def test_a_fit_grows_with_the_tokens_as_its_exponent_says() -> None:
    for fit in packaged_catalog().tables["critical_batch"].values():
        exponent = float(fit["batch_exponent"] or 0)
        larger, smaller = fitted(fit, 100 * TOKENS), fitted(fit, TOKENS)
        assert larger.tokens / smaller.tokens == pytest.approx(100**exponent)
