"""Summaries of estimators for queries about stored rows, without importing their formulas."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache

from estimators import registry
from warehouse.database.cache import cached


@dataclass(frozen=True)
class Summary:
    """Attributes of an estimator, as `estimators.contract.Estimator` has them.

    Attributes
    ----------
    relations
        Names of its relations.
    timed
        Names of the relations whose rows all have a time: these keep leading rows.
    """

    name: str
    title: str
    precedence: int
    mends: tuple[str, ...]
    relations: tuple[str, ...]
    timed: tuple[str, ...]


_LISTS = ("mends", "relations", "timed")


def summaries() -> list[Summary]:
    """Return a summary of every registered estimator, in order of registration."""
    return _summaries(tuple(registry.ESTIMATORS.items()))


@lru_cache(maxsize=1)
def _summaries(registered: tuple[tuple[str, str], ...]) -> list[Summary]:
    names = [name for name, _ in registered]
    return [
        Summary(**document | {name: tuple(document[name]) for name in _LISTS})
        for document in cached("estimators", names, _summarized)
    ]


def summary_of(name: str) -> Summary:
    """Return the summary of the estimator called `name`, as `registry.get` finds it.

    Raises
    ------
    RefusedError
        If there is none of that name.
    """
    known = registry.known_name(name)
    return next(summary for summary in summaries() if summary.name == known)


def by_precedence() -> list[Summary]:
    """Return every summary, by precedence: the first that can answer a question does."""
    return sorted(summaries(), key=lambda summary: -summary.precedence)


def _summarized() -> list[dict[str, object]]:
    return [
        asdict(
            Summary(
                estimator.name,
                estimator.title,
                estimator.precedence,
                tuple(estimator.mends),
                tuple(relation.name for relation in estimator.relations),
                tuple(relation.name for relation in estimator.relations if relation.keeps_leading),
            )
        )
        for estimator in registry.all_estimators()
    ]
