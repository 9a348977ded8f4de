"""Variants: which errata are mended, from the words that a user writes.

A variant is ``published`` (no erratum is mended), ``corrected`` (all are) or a list of errata such
as ``R1,R2``. ``both`` and ``each`` name several variants at once. Capitals do not matter.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from estimators.contract import PUBLISHED, Mends, Refusal, RefusedError
from warehouse.errors import UsageError
from warehouse.limits import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DEFAULT_VARIANT = "corrected"

_SINGLE = ("published", "corrected")
"""Words for one variant."""


class Mendable(Protocol):
    """The attributes of an estimator, or of its summary, that variants read."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def mends(self) -> tuple[str, ...]:
        """Erratum ids it can mend, in order."""


def parse_variants(estimator: Mendable, text: object) -> tuple[Mends, ...]:
    """Return the sets of mends that `text` names, published first.

    It is published, corrected, both (the two), each (every erratum alone as well), or errata
    separated by commas. An estimator without errata has one variant.
    """
    corrected = frozenset(estimator.mends)
    alone = [frozenset({mend}) for mend in estimator.mends]
    several = {"both": [PUBLISHED, corrected], "each": [PUBLISHED, *alone, corrected]}
    word = _word(text)
    if word in several:
        return tuple(dict.fromkeys(several[word]))  # with one erratum, `each` equals `both`
    return (_one_variant(estimator, text, (*_SINGLE, *several)),)


def parse_variant(estimator: Mendable, text: object) -> Mends:
    """Return the mends of one variant: published, corrected, or errata separated by commas."""
    if _word(text) in ("both", "each"):
        hint = _hint(estimator, _SINGLE)
        raise RefusedError([Refusal("variant", shown(text), "names several variants", hint)])
    return _one_variant(estimator, text, _SINGLE)


def stored_variant(text: str, stored: Iterable[str]) -> str | None:
    """Return the stored variant with the errata in a text, in any order; None if there is none."""
    return next((name for name in stored if set(_names(name)) == set(_names(text))), None)


def _word(text: object) -> str:
    return text.strip().casefold() if isinstance(text, str) else ""


def _names(text: str) -> list[str]:
    """Return the names in a list, without capitals."""
    return [name.strip().casefold() for name in text.split(",") if name.strip()]


def _one_variant(estimator: Mendable, text: object, words: Sequence[str]) -> Mends:
    """Return the mends of one variant; a refusal lists `words`."""
    word = _word(text)
    if word in _SINGLE:
        return PUBLISHED if word == "published" else frozenset(estimator.mends)
    ids = _ids(estimator, text) if isinstance(text, str) else []
    if not any(name in estimator.mends for name in ids):
        hint = _hint(estimator, words)
        raise RefusedError([Refusal("variant", shown(text), "is not known", hint)])
    return chosen_mends(estimator, ids)


def chosen_mends(estimator: Mendable, ids: Sequence[object]) -> Mends:
    """Return the mends called `ids`."""
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


def mends_of_options(estimator: Mendable, variant: str | None, mend: str | None) -> Mends:
    """Return the mends that options --variant and --mend name; by default all."""
    if mend is not None:
        [mends] = variants_of_options(estimator, variant, mend)
        return mends
    try:
        return parse_variant(estimator, DEFAULT_VARIANT if variant is None else variant)
    except RefusedError as error:
        raise _usage("--variant", error) from None


def variants_of_options(
    estimator: Mendable, variant: str | None, mend: str | None
) -> tuple[Mends, ...]:
    """Return the sets of mends that options --variant and --mend name; by default all mends."""
    if mend is not None and variant is not None:
        raise UsageError("`--mend` and `--variant` exclude each other", "use one of them")
    try:
        if mend is None:
            return parse_variants(estimator, DEFAULT_VARIANT if variant is None else variant)
        ids = _ids(estimator, mend)
        if ids:
            return (chosen_mends(estimator, ids),)
    except RefusedError as error:
        raise _usage("--variant" if mend is None else "--mend", error) from None
    raise UsageError(f'`--mend` "{mend}" names no erratum', "use --variant published for none")


def _ids(estimator: Mendable, text: str) -> list[str]:
    """Return the errata in a list, spelt as the estimator spells them."""
    known = {name.casefold(): name for name in estimator.mends}
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [known.get(name.casefold(), name) for name in names]


def _hint(estimator: Mendable, words: Sequence[str]) -> str:
    listed = ", ".join(words)
    if not estimator.mends:
        return f"use {listed}; {estimator.name} has no errata"
    return f"use {listed}, or errata such as {','.join(estimator.mends[:2])}"


def _usage(option: str, error: RefusedError) -> UsageError:
    refusal = error.refusals[0]
    return UsageError(f"`{option}` {refusal.value} {refusal.reason}", refusal.hint)
