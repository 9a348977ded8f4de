"""Errors of programs on sets of rows, as tables: who is near, who refuses, who wins where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import NamedTuple

from benchmarks.rivals.ours import CONSTANT, OWN, at_constant
from benchmarks.rivals.rows import Row

NEAR = 0.1
"""Errors of this size and less are near."""

FEWEST = 3
"""Rows that a set must have to be won: one row is won by any fit to it."""


@dataclass(frozen=True)
class Program:
    """A program's answers: seconds of each row, or the reason why there are none."""

    title: str
    version: str
    answers: Sequence[float | str]
    date: str = ""
    settings: str = field(default="", compare=False)


class Errors(NamedTuple):
    """Errors of the time (estimated over measured, less one) of the rows that a program answers."""

    rows: int
    mean: float
    median: float
    bias: float
    near: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Errors | None:
        """Return the summary of errors, None of none."""
        if not errors:
            return None
        sizes = [abs(error) for error in errors]
        near = fmean(size <= NEAR for size in sizes)
        return cls(len(errors), fmean(sizes), median(sizes), fmean(errors), near)


class Compared(NamedTuple):
    """A program and the project's estimator on the same rows of a set."""

    program: str
    where: str
    theirs: Errors
    ours: Errors


class Match:
    """Programs on the published rows.

    Parameters
    ----------
    rows
        All published rows.
    programs
        Their answers to these rows, in the same order. One is `training_step`.
    """

    def __init__(self, rows: Sequence[Row], programs: Sequence[Program]) -> None:
        self.rows, self.programs = rows, programs
        self.by_title = {program.title: program for program in programs}

    def answered(self, title: str, chosen: Sequence[int]) -> list[int]:
        """Return which of the chosen rows a program answers."""
        if title == CONSTANT:
            return [number for number in chosen if self.rows[number].mfu is not None]
        answers = self.by_title[title].answers
        return [number for number in chosen if not isinstance(answers[number], str)]

    def errors(self, title: str, chosen: Sequence[int]) -> list[float]:
        """Return a program's errors of rows that it answers. The constant is fitted to them."""
        rows = [self.rows[number] for number in chosen]
        if title == CONSTANT:
            seconds = at_constant(rows) if rows else []
        else:
            answers = self.by_title[title].answers
            seconds = [float(answers[number]) for number in chosen]
        return [each / row.seconds - 1 for each, row in zip(seconds, rows, strict=True)]

    @property
    def titles(self) -> list[str]:
        """Return all programs, the fitted constant last."""
        return [*self.by_title, CONSTANT]

    @property
    def all(self) -> list[int]:
        """Return all rows."""
        return list(range(len(self.rows)))

    def accepted_by_all(self) -> list[int]:
        """Return the rows that every program answers, without those that answer none at all."""
        chosen = self.all
        for program in self.programs:
            if any(not isinstance(answer, str) for answer in program.answers):
                chosen = self.answered(program.title, chosen)
        return chosen

    def sets(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the sets of rows that are compared by name: all, kinds, machines, groups.

        A group that is a whole machine or kind is left out.
        """
        kinds, machines, groups = (
            _by(map(name_of, self.rows))
            for name_of in (lambda row: row.kind, lambda row: row.inputs["accelerator"], _group)
        )
        found = {"all rows": self.all, **dict(sorted(kinds.items())), **machines}
        yield from found.items()
        whole = list(found.values())
        yield from ((name, rows) for name, rows in groups.items() if rows not in whole)

    def compared(self, title: str, where: str, chosen: Sequence[int]) -> Compared | None:
        """Return a program beside the project's estimator on the rows that both answer."""
        both = self.answered(OWN, self.answered(title, chosen))
        theirs, ours = (Errors.of(self.errors(each, both)) for each in (title, OWN))
        return None if theirs is None or ours is None else Compared(title, where, theirs, ours)

    def wins(self) -> list[Compared]:
        """Return where a program has the smaller mean error on the rows that both answer."""
        found = []
        for title in self.titles:
            if title == OWN:
                continue
            for where, chosen in self.sets():
                pair = self.compared(title, where, chosen)
                if pair and pair.theirs.rows >= FEWEST and pair.theirs.mean < pair.ours.mean:
                    found.append(pair)
        return found

    def refusals(self, title: str) -> Mapping[str, int]:
        """Return the reasons of a program and of how many rows each is, the most frequent first."""
        if title == CONSTANT:
            return {}
        answers = self.by_title[title].answers
        return dict(Counter(answer for answer in answers if isinstance(answer, str)).most_common())


def _group(row: Row) -> str:
    table_of = row.reference.removeprefix("published_")
    return f"`{row.group}`" if table_of == "measurement" else f"`{table_of}, {row.group}`"


def _by(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the numbers of the rows of each name."""
    found: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        found.setdefault(name, []).append(number)
    return found


# ---- as Markdown ----


def programs_table(match: Match) -> str:
    """Return what every program makes of the rows that it answers."""
    lines = []
    for title in match.titles:
        chosen = match.answered(title, match.all)
        errors = Errors.of(match.errors(title, chosen))
        pair = match.compared(title, "", match.all)
        refused = len(match.rows) - len(chosen)
        ours = "" if pair is None or title == OWN else _percent(pair.ours.mean)
        version = match.by_title[title].version if title != CONSTANT else "fitted to these rows"
        lines.append((title, version, *_cells(errors), ours, str(refused)))
    columns = (*_COLUMNS, "`training_step` on the same rows", "refused")
    return table(("program", "version", *columns), lines, left=2)


def shared_table(match: Match) -> str:
    """Return the same on the rows that all programs answer."""
    chosen = match.accepted_by_all()
    lines = [
        (title, *_cells(Errors.of(match.errors(title, chosen))))
        for title in match.titles
        if match.answered(title, chosen) or not chosen
    ]
    return table(("program", *_COLUMNS), lines, left=1)


def sets_table(match: Match) -> str:
    """Return the mean size of errors by kind of row and machine, with the rows answered."""
    lines = []
    for where, chosen in match.sets():
        if where.startswith("`"):
            continue
        cells = []
        for title in match.titles:
            errors = Errors.of(match.errors(title, match.answered(title, chosen)))
            cells.append(f"{_percent(errors.mean)} ({errors.rows})" if errors else "")
        lines.append((where, str(len(chosen)), *cells))
    return table(("rows", "number", *match.titles), lines, left=1)


def wins_table(match: Match) -> str:
    """Return where a program is nearer than the project's estimator."""
    lines = [
        (
            *(each.program, each.where, str(each.theirs.rows)),
            *(_percent(each.theirs.mean), _percent(each.ours.mean)),
        )
        for each in match.wins()
    ]
    return table(("program", "rows", "compared", "its mean", "`training_step`"), lines, left=2)


def refusals_table(match: Match) -> str:
    """Return how many rows each program refuses for which reason."""
    lines = [
        (title, reason, str(count))
        for title in match.titles
        for reason, count in match.refusals(title).items()
    ]
    return table(("program", "reason", "rows"), lines, left=2)


_COLUMNS = ("rows", "mean size", "median size", "bias", "within 10 %")


def _cells(errors: Errors | None) -> tuple[str, ...]:
    if errors is None:
        return ("0", "", "", "", "")
    sizes = (errors.mean, errors.median)
    bias = f"{100 * errors.bias:+.1f}"
    return (str(errors.rows), *map(_percent, sizes), bias, f"{100 * errors.near:.0f}")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def table(header: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> str:
    """Return a table of Markdown; the first `left` columns are texts, the others numbers."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *lines))
