"""From the words a user says (published, corrected, a list of ids) to the mends they mean."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from estimators.contract import PUBLISHED, Mends, Refusal, RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from estimators.contract import Estimator

DEFAULT_VARIANT = "corrected"


def mends_of_variant(estimator: Estimator, variant: object) -> tuple[Mends, ...]:
    """Return the sets of mends to evaluate under, published first.

    ``both`` is published and corrected; ``each`` has every mend alone between them. An
    estimator that nothing was mended in has one variant only.

    Raises
    ------
    RefusedError
        If `variant` is not published, corrected, both or each.
    """
    corrected = frozenset(estimator.mends)
    named: dict[object, tuple[Mends, ...]] = {
        "published": (PUBLISHED,),
        "corrected": (corrected,),
        "both": _distinct([PUBLISHED, corrected]),
        "each": _distinct([PUBLISHED, *(frozenset({m}) for m in estimator.mends), corrected]),
    }
    if not isinstance(variant, str) or variant not in named:
        hint = 'use published, corrected, both or each; for chosen errata mends = ["..."]'
        shown = variant if isinstance(variant, str | int | float) else str(variant)
        raise RefusedError([Refusal("variant", shown, "is not known", hint)])
    return named[variant]


def _distinct(variants: Sequence[Mends]) -> tuple[Mends, ...]:
    """Return `variants` once each: a single mend alone is all of them."""
    return tuple(dict.fromkeys(variants))


def chosen_mends(estimator: Estimator, ids: Sequence[object]) -> Mends:
    """Return the mends called `ids`.

    Raises
    ------
    RefusedError
        If one is not among the estimator's.
    """
    known = ", ".join(estimator.mends) or "none"
    refusals = [
        Refusal("mends", str(name), f"is not a mend of {estimator.name}", f"known: {known}")
        for name in ids
        if name not in estimator.mends
    ]
    refusals += [
        Refusal("mends", str(name), "is given twice", "name every mend once")
        for name, times in Counter(ids).items()
        if times > 1
    ]
    if refusals:
        raise RefusedError(refusals)
    return frozenset(str(name) for name in ids)
