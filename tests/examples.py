"""How many examples hypothesis draws: a share of a test's number, as tests/conftest.py says."""

from __future__ import annotations

from hypothesis import settings

EXAMPLES = 50
"""Examples of a test that names no number, where they are drawn at random."""


def examples(number: int) -> settings:
    """Return the setting of a test that draws `number` examples where they are drawn at random."""
    return settings(max_examples=max(number * settings().max_examples // EXAMPLES, 5))
