"""Plain tables, and the choice of columns that fit a terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TextIO

from warehouse.show.values import Blocks, by_column, is_numeric, kinds_of, printable, shown

_CELL_WIDTH = 60
_LEAST_WIDTH, _LONGEST_WORD = 16, 40
"""Width to which a column of texts is narrowed, its cells broken, and of words that stay whole."""

_GAP = "  "
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True)
class Terminal:
    """A terminal that a table is shown on.

    Attributes
    ----------
    width
        Characters of a line.
    has_styles
        Whether headings are bold.
    first
        Headings of the columns that matter most; the others follow from left to right.
    figures
        Headings of results, which do not identify a row. Columns of real numbers count as results
        too.
    names
        Headings of columns whose cells are clipped in the middle: their ends tell them apart.
    kept
        Headings of columns that are always shown, and whole: those that a user named.
    wraps
        Whether texts of all columns but those of `names` are broken instead of clipped.
    """

    width: int
    has_styles: bool = False
    first: Sequence[str] = ()
    figures: Collection[str] = ()
    names: Collection[str] = ()
    kept: Collection[str] = ()
    wraps: bool = False


def write_table(
    stream: TextIO, columns: Sequence[str], blocks: Blocks, terminal: Terminal | None
) -> None:
    """Write a table with a line a row; on a terminal one row has a line a column.

    The first block decides which columns a terminal shows. Later cells that are wider than their
    column are clipped or broken where the line would become too long. Where the columns that must
    be shown do not fit, each row has a line a column.
    """
    blocks_by_column = (by_column(block, len(columns)) for block in blocks)
    table = _TextTable([printable(name) for name in columns], terminal)
    first = next(blocks_by_column, by_column([], len(columns)))
    stream.writelines(table.beginning(first))
    for block in blocks_by_column:
        stream.writelines(table.further(block))
    stream.writelines(table.left_out())


class _TextTable:
    """The lines of a table. Columns are at their `places`; `shown` has those that are shown."""

    def __init__(self, names: Sequence[str], terminal: Terminal | None) -> None:
        self._names = names
        self._terminal = terminal
        self._kept: set[int] = set()
        self._whole: set[int] = set()
        if terminal is not None:
            self._kept = {place for place, name in enumerate(names) if name in terminal.kept}
            others = {place for place, name in enumerate(names) if name not in terminal.names}
            self._whole = self._kept | (others if terminal.wraps else set())
        self._headings = [[name] for name in names]
        self._widths = list(map(_width, names))
        self._shown = sorted(range(len(names)), key=self._order)
        self._least: dict[int, int] = {}  # widths to which texts can be narrowed
        self._is_turned = False
        self._num_turned = 0
        self._is_right = [False] * len(names)
        self._same: dict[int, str] = {}

    def beginning(self, block: Sequence[Sequence[Any]]) -> list[str]:
        """Return the header and the first rows."""
        terminal = self._terminal
        if terminal is not None and len(self._names) > 1 and len(block[0]) == 1:
            self._is_turned, self._whole = True, {*self._shown}
        cells = self._texts(block)
        self._widths = self._widened(cells)
        self._is_right = list(map(is_numeric, block))
        if self._is_turned:
            return self._turned(cells)
        if terminal is not None and self._length(self._widths, self._shown) > terminal.width:
            same = _same(cells).items()
            self._same = {place: text for place, text in same if place not in self._kept}
            self._fold(cells)
            for place in self._whole:
                if not self._is_right[place]:
                    words = " ".join((*cells[place], *self._headings[place])).split()
                    longest = min(max(_widths(words), default=0), _LONGEST_WORD)
                    self._least[place] = max(longest, _LEAST_WIDTH)
            self._shown = self._fitting(terminal, self._key(cells, block, terminal))
            self._narrow(terminal.width)
            room = self._length(self._widths, self._shown)
            if self._kept and room > terminal.width:
                self._is_turned = True
                return self._turned(cells)
        header = self._header()
        if terminal is not None and terminal.has_styles:
            header = [f"{_BOLD}{line.rstrip()}{_PLAIN}\n" for line in header]
        rule = _GAP.join("-" * self._widths[place] for place in self._shown) + "\n"
        return [*header, rule, *self._lines(cells)]

    def further(self, block: Sequence[Sequence[Any]]) -> list[str]:
        """Return the rows of a later block."""
        cells = self._texts(block)
        if self._is_turned:
            return self._turned(cells)
        wider, terminal = self._widened(cells), self._terminal
        if terminal is None or self._length(wider, self._shown) <= terminal.width:
            self._widths = wider
        else:
            cells = self._clipped(cells, self._widths)  # whole ones are broken
            same = self._same.items()
            self._same = {place: text for place, text in same if {text} == {*cells[place]}}
        return self._lines(cells)

    def left_out(self) -> list[str]:
        """Return lines with the columns that a terminal does not show, and their only values."""
        left_out = [place for place in range(len(self._names)) if place not in self._shown]
        if self._terminal is None or not left_out:
            return []
        from textwrap import wrap

        names, same = self._names, self._same
        alike = ", ".join(
            f"{names[place]} {same[place] or 'none'}" for place in left_out if place in same
        )
        differ = ", ".join(names[place] for place in left_out if place not in same)
        parts = [differ, f"the same in all rows: {alike}" if alike else ""]
        text = f"not shown: {'; '.join(filter(None, parts))} (--wide shows all, --columns chooses)"
        width = self._terminal.width
        return [f"{line}\n" for line in wrap(text, width, break_on_hyphens=False)]

    def _texts(self, block: Sequence[Sequence[Any]]) -> list[Sequence[str]]:
        texts: list[Sequence[str]] = [shown(values) for values in block]
        if self._terminal is None:
            return texts
        return self._clipped(texts, [min(_CELL_WIDTH, self._terminal.width)] * len(texts))

    def _clipped(
        self, cells: Sequence[Sequence[str]], limits: Sequence[int]
    ) -> list[Sequence[str]]:
        ends_matter = () if self._terminal is None else self._terminal.names
        return [
            texts
            if place in self._whole or max(_widths(texts), default=0) <= limit
            else [_clip(text, limit, in_middle=self._names[place] in ends_matter) for text in texts]
            for place, (texts, limit) in enumerate(zip(cells, limits, strict=True))
        ]

    def _order(self, place: int) -> tuple[bool, int]:
        """Sort ids last, except those that a user named."""
        return (place not in self._kept and self._names[place].endswith(_ID_ENDINGS), place)

    def _fold(self, cells: Sequence[Sequence[str]]) -> None:
        """Break the headings of columns that must be shown where the cells are narrower."""
        for place in self._kept:
            least = max(_widths(cells[place]), default=0)
            self._headings[place] = _folded(self._names[place], least)
            self._widths[place] = max(least, *_widths(self._headings[place]))

    def _narrow(self, width: int) -> None:
        """Narrow texts that may be broken until the table fits, the widest first."""
        while self._length(self._widths, self._shown) > width:
            texts = [
                p for p in self._shown if self._widths[p] > self._least.get(p, self._widths[p])
            ]
            if not texts:
                break
            self._widths[max(texts, key=self._widths.__getitem__)] -= 1

    def _room(self, place: int) -> int:
        """Return the width that a column needs."""
        width = self._widths[place]
        return min(width, self._least.get(place, width))

    def _header(self) -> list[str]:
        height = max(len(self._headings[place]) for place in self._shown)
        columns = [[*[""] * (height - len(lines)), *lines] for lines in self._headings]
        return self._lines(columns)

    def _turned(self, cells: Sequence[Sequence[str]]) -> list[str]:
        """Return a line a column for each row, with an empty line between rows."""
        assert self._terminal is not None
        label = max(_width(self._names[place]) for place in self._shown)
        room = max(self._terminal.width - label - len(_GAP), _LEAST_WIDTH)
        lines = []
        for row in zip(*cells, strict=True):
            lines += ["\n"] if self._num_turned else []
            self._num_turned += 1
            for place in self._shown:
                name = self._names[place]
                first = name + " " * (label - _width(name)) + _GAP
                for text in _broken(row[place], room):
                    lines.append(f"{first}{text}".rstrip() + "\n")
                    first = " " * len(first)
        return lines

    def _widened(self, cells: Sequence[Sequence[str]]) -> list[int]:
        """Return the widths of the columns with these cells as well."""
        pairs = zip(self._widths, cells, strict=True)
        return [max(width, *_widths(texts), 0) for width, texts in pairs]

    def _lines(self, cells: Sequence[Sequence[str]]) -> list[str]:
        columns = [cells[place] for place in self._shown]
        widths = [self._widths[place] for place in self._shown]
        if any(max(_widths(c), default=0) > w for c, w in zip(columns, widths, strict=True)):
            broken = [[_broken(t, w) for t in c] for c, w in zip(columns, widths, strict=True)]
            even: list[list[str]] = [[] for _ in columns]
            for row in zip(*broken, strict=True):
                height = max(map(len, row))
                for column, lines in zip(even, row, strict=True):
                    column += [*lines, *[""] * (height - len(lines))]
            columns = [*even]
        padded = [
            _padded(texts, width, is_right=self._is_right[place])
            for texts, width, place in zip(columns, widths, self._shown, strict=True)
        ]
        return [_GAP.join(row).rstrip() + "\n" for row in zip(*padded, strict=True)]

    @staticmethod
    def _length(widths: Sequence[int], places: Collection[int]) -> int:
        return sum(widths[place] for place in places) + len(_GAP) * (len(places) - 1)

    def _fitting(self, terminal: Terminal, key: Collection[int]) -> list[int]:
        """Return the places of the columns that fit, in the order of the table; one at least.

        Columns with one value are left out first, the least important ones before others; then
        columns that are not needed to distinguish rows; columns of the `key` come last. The most
        important column that is in neither group stays.
        """
        same, places = self._same, self._by_importance(terminal)
        lead = [place for place in places if place not in same and place not in key][:1]
        last = {*key, *lead}
        order = [place for place in reversed(places) if place not in self._kept]
        hidden = [
            *(place for place in order if place in same),
            *(place for place in order if place not in same and place not in last),
            *(place for place in order if place in key),
        ]
        needed = list(map(self._room, range(len(self._widths))))
        removed: list[int] = []
        for place in hidden:
            if len(places) == 1 or self._length(needed, places) <= terminal.width:
                break
            places.remove(place)
            removed.append(place)
        for place in reversed(removed):  # a narrow column may fit where a wide one did not
            if self._length(needed, [*places, place]) <= terminal.width:
                places.append(place)
        return sorted(places, key=self._order)

    def _by_importance(self, terminal: Terminal) -> list[int]:
        first = [self._names.index(name) for name in terminal.first if name in self._names]
        return list(dict.fromkeys([*first, *self._shown]))

    def _key(
        self, cells: Sequence[Sequence[str]], block: Sequence[Sequence[Any]], terminal: Terminal
    ) -> list[int]:
        """Return a small set of columns that distinguishes rows as well as all but results."""

        def num_different(places: Sequence[int]) -> int:
            chosen = [cells[place] for place in places]
            return len(set(zip(*chosen, strict=True))) if chosen else 1

        key: list[int] = []
        most = 1
        for place in self._by_importance(terminal):
            is_result = self._names[place] in terminal.figures
            if is_result or kinds_of(block[place]) & {float, Decimal}:
                continue
            if (number := num_different([*key, place])) > most:
                key.append(place)
                most = number
        for place in reversed(key.copy()):
            others = [other for other in key if other != place]
            if num_different(others) == most:
                key = others
        return key


def _same(cells: Sequence[Sequence[str]]) -> dict[int, str]:
    """Return the one value of each column that has no other, if there are rows to compare."""
    return {
        place: column[0]
        for place, column in enumerate(cells)
        if len(column) > 1 and len(set(column)) == 1
    }


_ID_ENDINGS = ("_id", " id")
"""Ends of the headings of ids."""


def _folded(name: str, width: int) -> list[str]:
    """Return the lines of a heading, broken between its words."""
    lines = [""]
    for word in re.findall(r"[^_ ]+[_ ]*", name):
        if lines[-1] and len(lines[-1] + word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return [line.rstrip(" ") for line in lines]


def _broken(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken between its words where that is possible."""
    if _width(text) <= width:
        return [text]
    from textwrap import wrap

    return wrap(text, width, break_on_hyphens=False) or [""]


def _padded(texts: Sequence[str], width: int, *, is_right: bool) -> list[str]:
    blanks = [" " * (width - taken) for taken in _widths(texts)]
    pairs = zip(blanks, texts, strict=True) if is_right else zip(texts, blanks, strict=True)
    return list(map("".join, pairs))


def _clip(text: str, width: int, *, in_middle: bool) -> str:
    if _width(text) <= width:
        return text
    if text.isascii() and in_middle and width > 2:
        end = width // 3
        return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"
    if text.isascii():
        return text[: width - 1] + "…"
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + "…"


def _widths(texts: Sequence[str]) -> list[int]:
    return list(map(len if "".join(texts).isascii() else _width, texts))


def _width(text: str) -> int:
    """Return the places that a text takes on a terminal: two for a Chinese character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
