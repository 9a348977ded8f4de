"""Plain tables, and the choice of columns that fit a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TextIO

from warehouse.show.values import Blocks, Row, is_numeric, printable, shown

_CELL_WIDTH = 60
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
    """

    width: int
    has_styles: bool = False
    first: Sequence[str] = ()
    figures: Collection[str] = ()
    names: Collection[str] = ()


def write_table(
    stream: TextIO, columns: Sequence[str], blocks: Blocks, terminal: Terminal | None
) -> None:
    """Write a table with a line a row.

    The first block decides which columns a terminal shows. Later cells that are wider than their
    column are clipped where the line would become too long.
    """
    names = [printable(name) for name in columns]
    widths = [_width(name) for name in names]
    most = None if terminal is None else min(_CELL_WIDTH, terminal.width)
    kept: Sequence[int] = range(len(columns))
    align = [False] * len(columns)
    middle = [terminal is not None and name in terminal.names for name in names]
    same: Mapping[int, str] = {}
    has_header = False
    for block in blocks:
        cells = [
            [
                _clipped(shown(value), most, in_middle=in_middle)
                for value, in_middle in zip(row, middle, strict=True)
            ]
            for row in block
        ]
        columns_of_cells = zip(*cells, strict=True)
        wider = [
            max(width, *map(_width, column))
            for width, column in zip(widths, columns_of_cells, strict=True)
        ]
        if not has_header:
            align = [is_numeric(row[place] for row in block) for place in range(len(columns))]
            if terminal is not None and _length(wider, kept) > terminal.width:
                same = _same(cells)
                figures = _figures(names, block, terminal)
                kept = _fitting(names, wider, terminal, same, _key(names, cells, terminal, figures))
            _write_header(stream, names, wider, align, kept, terminal)
            has_header = True
            widths = wider
        elif terminal is None or _length(wider, kept) <= terminal.width:
            widths = wider
        else:
            cells = [
                [
                    _clipped(cell, width, in_middle=in_middle)
                    for cell, width, in_middle in zip(row, widths, middle, strict=True)
                ]
                for row in cells
            ]
            same = {at: text for at, text in same.items() if all(row[at] == text for row in cells)}
        for row in cells:
            stream.write(_line(row, widths, align, kept))
    if not has_header:
        kept = kept if terminal is None else _fitting(names, widths, terminal)
        _write_header(stream, names, widths, align, kept, terminal)
    _write_left_out(stream, names, kept, terminal, same)


def _fitting(
    names: Sequence[str],
    widths: Sequence[int],
    terminal: Terminal,
    same: Collection[int] = (),
    key: Sequence[int] = (),
) -> list[int]:
    """Return the places of the columns that fit, in the order of the table; one at least.

    Columns with one value (`same`) are left out first, the least important ones before others; then
    columns that are not needed to distinguish rows; columns of the `key` come last. The most
    important column that is in neither group stays.
    """
    kept = _by_importance(names, terminal)
    lead = [place for place in kept if place not in same and place not in key][:1]
    last = {*key, *lead}
    hidden = [
        *(place for place in reversed(kept) if place in same),
        *(place for place in reversed(kept) if place not in same and place not in last),
        *(place for place in reversed(kept) if place in key),
    ]
    removed: list[int] = []
    for place in hidden:
        if len(kept) == 1 or _length(widths, kept) <= terminal.width:
            break
        kept.remove(place)
        removed.append(place)
    for place in reversed(removed):  # a narrow column may fit where a wide one did not
        if _length(widths, [*kept, place]) <= terminal.width:
            kept.append(place)
    return sorted(kept)


def _by_importance(names: Sequence[str], terminal: Terminal) -> list[int]:
    important = [names.index(name) for name in terminal.first if name in names]
    return list(dict.fromkeys([*important, *range(len(names))]))


def _same(cells: Sequence[Sequence[str]]) -> dict[int, str]:
    """Return the one value of each column that has no other, if there are rows to compare."""
    if len(cells) < 2:
        return {}
    columns = enumerate(zip(*cells, strict=True))
    return {place: column[0] for place, column in columns if len(set(column)) == 1}


def _figures(names: Sequence[str], block: Sequence[Row], terminal: Terminal) -> set[int]:
    """Return the places of the columns that do not identify a row."""
    real = {
        place
        for place, column in enumerate(zip(*block, strict=True))
        if any(isinstance(value, float | Decimal) for value in column)
    }
    return real | {place for place, name in enumerate(names) if name in terminal.figures}


def _key(
    names: Sequence[str],
    cells: Sequence[Sequence[str]],
    terminal: Terminal,
    figures: Collection[int],
) -> list[int]:
    """Return a small set of columns that distinguishes rows as well as all that are not results."""
    columns = list(zip(*cells, strict=True))

    def num_different(places: Iterable[int]) -> int:
        chosen = [columns[place] for place in places]
        return len(set(zip(*chosen, strict=True))) if chosen else 1

    key: list[int] = []
    found = 1
    for place in _by_importance(names, terminal):
        if place not in figures and columns and (number := num_different([*key, place])) > found:
            key.append(place)
            found = number
    for place in reversed(key.copy()):
        others = [other for other in key if other != place]
        if num_different(others) == found:
            key = others
    return key


def _length(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[place] for place in kept) + len(_GAP) * (len(kept) - 1)


def _write_header(
    stream: TextIO,
    names: Sequence[str],
    widths: Sequence[int],
    align: Sequence[bool],
    kept: Sequence[int],
    terminal: Terminal | None,
) -> None:
    line = _line(names, widths, align, kept)
    if terminal is not None and terminal.has_styles:
        line = f"{_BOLD}{line.rstrip()}{_PLAIN}\n"
    stream.write(line)
    stream.write(_GAP.join("-" * widths[place] for place in kept) + "\n")


def _write_left_out(
    stream: TextIO,
    names: Sequence[str],
    kept: Sequence[int],
    terminal: Terminal | None,
    same: Mapping[int, str],
) -> None:
    """Name the columns that a terminal does not show, with the value of constant ones."""
    left_out = [place for place in range(len(names)) if place not in set(kept)]
    if terminal is None or not left_out:
        return
    from textwrap import wrap

    alike = ", ".join(
        f"{names[place]} {same[place] or 'none'}" for place in left_out if place in same
    )
    differ = ", ".join(names[place] for place in left_out if place not in same)
    parts = [differ, f"the same in all rows: {alike}" if alike else ""]
    text = f"not shown: {'; '.join(filter(None, parts))} (--wide shows all, --columns chooses)"
    for line in wrap(text, terminal.width, break_on_hyphens=False):
        stream.write(f"{line}\n")


def _line(
    cells: Sequence[str], widths: Sequence[int], align: Sequence[bool], kept: Iterable[int]
) -> str:
    padded = []
    for at in kept:
        blanks = " " * (widths[at] - _width(cells[at]))
        padded.append(blanks + cells[at] if align[at] else cells[at] + blanks)
    return _GAP.join(padded).rstrip() + "\n"


def _clipped(text: str, width: int | None, *, in_middle: bool = False) -> str:
    if width is None or _width(text) <= width:
        return text
    if text.isascii() and in_middle and width > 2:
        end = width // 3
        return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"
    if text.isascii():
        return text[: width - 1] + "…"
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + "…"


def _width(text: str) -> int:
    """Return the places that a text takes on a terminal: two for a Chinese character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
