"""Summaries of estimators for queries about stored rows, without importing their formulas."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from estimators import registry
from warehouse.database.cache import cached


class Summary(NamedTuple):
    """Attributes of an estimator, as `estimators.estimator` defines them."""

    name: str
    title: str
    precedence: int
    mends: tuple[str, ...]
    relations: tuple[str, ...]
    timed: tuple[str, ...]  # relations whose rows all have a time: these keep leading rows


def summaries() -> list[Summary]:
    """Return a summary of every registered estimator, in order of registration."""
    return _summaries(tuple(registry.ESTIMATORS.items()))


@lru_cache(maxsize=1)
def _summaries(registered: tuple[tuple[str, str], ...]) -> list[Summary]:
    documents = cached("estimators", [name for name, _ in registered], _summarized)
    return [Summary(*document[:3], *map(tuple, document[3:])) for document in documents]


def _summarized() -> list[Summary]:
    return [
        Summary(
            estimator.name,
            estimator.title,
            estimator.precedence,
            tuple(estimator.mends),
            tuple(relation.name for relation in estimator.relations),
            tuple(relation.name for relation in estimator.relations if relation.keeps_leading),
        )
        for estimator in registry.all_estimators()
    ]


def summary_of(name: str) -> Summary:
    """Return the summary of the estimator called `name`, as `registry.get` finds it."""
    known = registry.known_name(name)
    return next(summary for summary in summaries() if summary.name == known)


def by_precedence() -> list[Summary]:
    """Return every summary, by precedence: the first that can answer a question does."""
    return sorted(summaries(), key=lambda summary: -summary.precedence)
