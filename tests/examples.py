"""How many examples hypothesis draws: all of them, or a share where the long tests are left out."""

from __future__ import annotations

from hypothesis import settings

EXAMPLES = 50
"""Examples of a test that names no number, where every test runs."""


def examples(number: int) -> settings:
    """Return the setting of a test that draws `number` examples where every test runs."""
    return settings(max_examples=max(number * settings().max_examples // EXAMPLES, 5))
