"""The types that estimators and warehouse share.

Data flows one way. A study names a *space*. A `Search` turns it into *cells*: a resolved `Problem`
with the choices that hold in all rows of the cell. A cell yields *layouts* as columns. The
estimator (`estimators.estimator`) fills columns of results, and the warehouse stores them. Nothing
here reads files or databases.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from estimators.catalog import Catalog as Catalog
from estimators.catalog import MeasuredTables as MeasuredTables
from estimators.catalog import Record as Record
from estimators.columns import COLUMNS, Column
from estimators.refusals import EmptySpaceError as EmptySpaceError
from estimators.refusals import Refusal as Refusal
from estimators.refusals import RefusedError as RefusedError
from estimators.values import PUBLISHED as PUBLISHED
from estimators.values import Array as Array
from estimators.values import Columns as Columns
from estimators.values import Mends as Mends
from estimators.values import Scalar as Scalar
from estimators.values import Space as Space
from estimators.values import Values as Values


@dataclass(frozen=True)
class Problem:
    """Everything but the layout, resolved to numbers: shape, system, batch, GPU count ...

    The id is a hash of the content: two studies with the same question share the problem.
    The hash leaves absent values out, so that a column added later does not change old ids.
    """

    values: Mapping[str, Scalar]

    def __post_init__(self) -> None:
        present = {k: v for k, v in sorted(self.values.items()) if v is not None}
        object.__setattr__(self, "values", MappingProxyType(present))

    def __reduce__(self) -> tuple[type[Problem], tuple[dict[str, Scalar]]]:
        """Return the values in a form that can be pickled: a proxy cannot."""
        return Problem, (dict(self.values),)

    @cached_property
    def id(self) -> int:
        """Return the content hash: 63 bits, the same on every machine."""
        return content_id("problem", dict(self.values))


@dataclass(frozen=True)
class Cell:
    """One problem with one set of choices, an estimator's version and mends: the unit of work.

    Attributes
    ----------
    estimator, version, relation
        The estimator with its version, and the relation whose rows it makes.
    problem
        Everything but the layout.
    mends
        Errata whose mended formulas are used.
    choices
        Values that hold in every row and are stored once (strategy, recomputation ...).
    fixed
        Layout columns that the study fixes, with their values. The rows store them like any other
        column; the cell is a part of the unrestricted cell.
    neutral
        Choice -> the value that means "as before the choice existed". The id leaves choices with
        that value out, so that a choice added later does not change old ids.
    """

    estimator: str
    version: int
    relation: str
    problem: Problem
    mends: Mends = PUBLISHED
    choices: Mapping[str, Scalar] = field(default_factory=dict)
    fixed: Mapping[str, Scalar] = field(default_factory=dict)
    neutral: Mapping[str, Scalar] = field(default_factory=dict)

    @cached_property
    def id(self) -> int:
        """Return the content hash: 63 bits, the same on every machine."""
        return content_id(
            "cell",
            self.estimator,
            self.version,
            self.relation,
            self.problem.id,
            sorted(self.mends),
            {k: v for k, v in self.choices.items() if v not in (None, self.neutral.get(k))},
            dict(self.fixed),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes in a form that can be pickled: a proxy cannot."""
        mappings = ("choices", "fixed", "neutral")
        return {**self.__dict__, **{name: dict(getattr(self, name)) for name in mappings}}

    @property
    def values(self) -> Values:
        """The input of a kernel: the problem's values and the cell's choices.

        They are not cached: the cache would take half of the memory of many cells.
        """
        return {**self.problem.values, **self.choices}


@dataclass(frozen=True)
class Relation:
    """One grain of results: a table, its rows' keys and its measures, by dictionary name.

    Attributes
    ----------
    name
        Name of the relation, and of its table unless `stored_in` gives another.
    grain
        The thing that a row describes, in words.
    keys
        Stored columns that identify a row of a cell.
    measures
        Stored results.
    derived
        Results that `evaluate` computes and the staging view derives from stored columns.
    compression
        Stored column -> its compression; storage tries several for a column without one. ``rle``:
        values repeat from row to row. ``uncompressed``: every query reads them. ``alp``, ``alprd``:
        real numbers with few digits, and with all digits, different in each row.
    real
        Columns of whole numbers in the dictionary that are real numbers in this relation: degrees
        of parallelism that a model takes as continuous.
    stored_in
        Name of the fact table where a mart has the relation's name.
    keeps_leading
        Whether the leading rows of each cell are also stored apart, for ranks and fronts. The
        staging view must show every row as a configuration, with its stored ``step_seconds`` and
        keys.
    unread
        Inputs of the estimator that this relation does not read; they are not in its problems.
    spellings
        Input of text -> another spelling, in small letters with underscores -> the choice. For
        these inputs capitals, blanks and hyphens do not matter.
    """

    name: str
    grain: str
    keys: tuple[str, ...]
    measures: tuple[str, ...]
    derived: tuple[str, ...] = ()
    compression: Mapping[str, str] = field(default_factory=dict, hash=False)
    real: frozenset[str] = frozenset()
    stored_in: str = ""
    keeps_leading: bool = False
    unread: frozenset[str] = frozenset()
    spellings: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)

    @property
    def table(self) -> str:
        """Return the name of the fact table."""
        return self.stored_in or self.name

    @property
    def keeps_near(self) -> bool:
        """Return whether nearly optimal rows are among the leading rows.

        Only relations with a memory keep them. Without one, up to a seventh of all rows is nearly
        optimal, where nothing waits for the network.
        """
        return self.keeps_leading and "memory_bytes" in self.outputs

    def column(self, name: str) -> Column:
        """Return a column of the dictionary as this relation has it."""
        return COLUMNS[name].as_real() if name in self.real else COLUMNS[name]

    @property
    def stored(self) -> tuple[str, ...]:
        """Columns of the table, after the cell's id."""
        return self.keys + self.measures

    @property
    def outputs(self) -> tuple[str, ...]:
        """All results that the estimator can compute for this grain."""
        return self.measures + self.derived


OnChecked = Callable[[int], None]
"""Called with a number of combinations."""


def say_nothing(_number: int) -> None:
    """Ignore a number: nobody shows progress."""


class Search(ABC):
    """How an estimator enumerates its space. Everything is deterministic."""

    space_columns: tuple[str, ...]
    """Names a study may give under [space]."""

    system_columns: tuple[str, ...]
    """Names a study may give under [system]: overrides of the accelerator's attributes."""

    row_columns: frozenset[str] = frozenset()
    """Names whose values are rows of a cell; values of the others are cells."""

    @property
    def neutral(self) -> Mapping[str, Scalar]:
        """Choices that are left out of the id of a cell at these values."""
        return {}

    @abstractmethod
    def cells(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
        """Yield the cells of a space, few of them in memory at once; `check` it first."""

    def check(
        self, space: Space, catalog: Catalog, mends: Mends, on_checked: OnChecked = say_nothing
    ) -> None:
        """Raise `RefusedError` if a space is faulty, and `EmptySpaceError` if it has no layout.

        Parameters
        ----------
        on_checked
            Called now and then with the number of combinations that were just checked.
        """
        for _ in self.cells(space, catalog, mends):
            on_checked(1)

    @abstractmethod
    def count(self, cell: Cell) -> int:
        """Return how many layouts the cell has, exactly, without evaluating any."""

    @abstractmethod
    def layouts(self, cell: Cell, max_rows: int) -> Iterator[Columns]:
        """Yield the cell's layouts in order, in chunks of at most `max_rows`."""


class UnevenStages(NamedTuple):
    """Pipeline stages that differ: the layers of each, and the flags of the program that say so.

    The flags are empty where the program has none for it.
    """

    layers: tuple[int, ...]
    flags: tuple[str, ...]


class Formula(NamedTuple):
    """The formula of one part of a step, in a line, and its source."""

    text: str
    source: str


@dataclass(frozen=True)
class Operations:
    """The operations that a step consists of.

    Attributes
    ----------
    relation
        The relation whose rows are operations. It has the keys of the first relation and
        ``operation``.
    expand
        Returns each configuration once for each of its operations, with column ``operation``.
        Takes and returns columns.
    """

    relation: Relation
    expand: Callable[[Columns], dict[str, Array]]


Report = Callable[[Values], list[str]]
"""Lines of text from the inputs and results of one configuration."""


Evaluate = Callable[[Relation, Mapping[str, str]], Values]
"""Returns inputs and results of one configuration, given as texts by column name."""

TableRow = dict[str, Any]


@dataclass(frozen=True)
class SourceTable:
    """A table that the estimator's source prints, with units and wording of the source.

    Attributes
    ----------
    relation
        The relation that its cells come from.
    rows
        Returns the rows: `(evaluate, given, mends) -> rows`. `given` are the texts that hold in
        every row.
    axes
        Inputs that the table varies.
    without_effect
        Inputs of the relation that change no cell of the table.
    note_as_published
        A remark on the table under the published formulas.
    """

    relation: Relation
    rows: Callable[[Evaluate, Mapping[str, str], Mends], Iterator[TableRow]]
    axes: frozenset[str] = frozenset()
    without_effect: frozenset[str] = frozenset()
    note_as_published: str = ""


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def content_id(*parts: Any) -> int:
    """Return a 63-bit id of JSON-able content: equal content, equal id, on every machine."""
    digest = hashlib.blake2b(_encode(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def variant_name(mends: Mends, all_mends: Sequence[str]) -> str:
    """Return ``published``, ``corrected`` or the list of ids, as `variant` in views."""
    if not mends:
        return "published"
    if mends == frozenset(all_mends):
        return "corrected"
    return ",".join(mend for mend in all_mends if mend in mends)
