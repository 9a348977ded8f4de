"""Plain tables, and the choice of columns that fit a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TextIO

from warehouse.show.values import Blocks, by_column, is_numeric, kinds_of, printable, shown

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
    limits = [None if terminal is None else min(_CELL_WIDTH, terminal.width)] * len(names)
    blocks_by_column = (by_column(block, len(names)) for block in blocks)
    first = next(blocks_by_column, by_column([], len(names)))
    cells = _clipped([shown(column) for column in first], limits, names, terminal)
    widths = _widened([_width(name) for name in names], cells)
    align = [is_numeric(column) for column in first]
    places: Sequence[int] = range(len(names))
    same: dict[int, str] = {}
    if terminal is not None and _length(widths, places) > terminal.width:
        same = _same(cells)
        key = _key(names, cells, terminal, _figures(names, first, terminal))
        places = _fitting(names, widths, terminal, same, key)
    _write_header(stream, names, widths, align, places, terminal)
    stream.writelines(_lines(cells, widths, align, places))
    for block in blocks_by_column:
        cells = _clipped([shown(column) for column in block], limits, names, terminal)
        wider = _widened(widths, cells)
        if terminal is None or _length(wider, places) <= terminal.width:
            widths = wider
        else:
            cells = _clipped(cells, widths, names, terminal)
            same = {place: text for place, text in same.items() if {text} == {*cells[place]}}
        stream.writelines(_lines(cells, widths, align, places))
    _write_left_out(stream, names, places, terminal, same)


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
    places = _by_importance(names, terminal)
    lead = [place for place in places if place not in same and place not in key][:1]
    last = {*key, *lead}
    hidden = [
        *(place for place in reversed(places) if place in same),
        *(place for place in reversed(places) if place not in same and place not in last),
        *(place for place in reversed(places) if place in key),
    ]
    removed: list[int] = []
    for place in hidden:
        if len(places) == 1 or _length(widths, places) <= terminal.width:
            break
        places.remove(place)
        removed.append(place)
    for place in reversed(removed):  # a narrow column may fit where a wide one did not
        if _length(widths, [*places, place]) <= terminal.width:
            places.append(place)
    return sorted(places)


def _by_importance(names: Sequence[str], terminal: Terminal) -> list[int]:
    important = [names.index(name) for name in terminal.first if name in names]
    return list(dict.fromkeys([*important, *range(len(names))]))


def _same(cells: Sequence[Sequence[str]]) -> dict[int, str]:
    """Return the one value of each column that has no other, if there are rows to compare."""
    return {
        place: column[0]
        for place, column in enumerate(cells)
        if len(column) > 1 and len(set(column)) == 1
    }


def _figures(
    names: Sequence[str], values: Sequence[Sequence[object]], terminal: Terminal
) -> set[int]:
    """Return the places of the columns that do not identify a row."""
    return {
        place
        for place, (name, column) in enumerate(zip(names, values, strict=True))
        if name in terminal.figures or kinds_of(column) & {float, Decimal}
    }


def _key(
    names: Sequence[str],
    cells: Sequence[Sequence[str]],
    terminal: Terminal,
    figures: Collection[int],
) -> list[int]:
    """Return a small set of columns that distinguishes rows as well as all that are not results."""

    def num_different(places: Sequence[int]) -> int:
        chosen = [cells[place] for place in places]
        return len(set(zip(*chosen, strict=True))) if chosen else 1

    key: list[int] = []
    most = 1
    for place in _by_importance(names, terminal):
        if place not in figures and (number := num_different([*key, place])) > most:
            key.append(place)
            most = number
    for place in reversed(key.copy()):
        others = [other for other in key if other != place]
        if num_different(others) == most:
            key = others
    return key


def _length(widths: Sequence[int], places: Sequence[int]) -> int:
    return sum(widths[place] for place in places) + len(_GAP) * (len(places) - 1)


def _write_header(
    stream: TextIO,
    names: Sequence[str],
    widths: Sequence[int],
    align: Sequence[bool],
    places: Sequence[int],
    terminal: Terminal | None,
) -> None:
    (line,) = _lines([[name] for name in names], widths, align, places)
    if terminal is not None and terminal.has_styles:
        line = f"{_BOLD}{line.rstrip()}{_PLAIN}\n"
    stream.write(line)
    stream.write(_GAP.join("-" * widths[place] for place in places) + "\n")


def _write_left_out(
    stream: TextIO,
    names: Sequence[str],
    places: Collection[int],
    terminal: Terminal | None,
    same: Mapping[int, str],
) -> None:
    """Name the columns that a terminal does not show, with the value of constant ones."""
    left_out = [place for place in range(len(names)) if place not in places]
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


def _lines(
    cells: Sequence[Sequence[str]],
    widths: Sequence[int],
    align: Sequence[bool],
    places: Iterable[int],
) -> list[str]:
    """Return the lines of the columns at these places."""
    padded = [_padded(cells[at], widths[at], is_right=align[at]) for at in places]
    return [_GAP.join(row).rstrip() + "\n" for row in zip(*padded, strict=True)]


def _padded(texts: Sequence[str], width: int, *, is_right: bool) -> list[str]:
    blanks = [" " * (width - taken) for taken in _widths(texts)]
    pairs = zip(blanks, texts, strict=True) if is_right else zip(texts, blanks, strict=True)
    return list(map("".join, pairs))


def _widened(widths: Sequence[int], cells: Sequence[Sequence[str]]) -> list[int]:
    """Return the widths of columns with these cells as well."""
    return [max(width, *_widths(column), 0) for width, column in zip(widths, cells, strict=True)]


def _clipped(
    cells: Sequence[Sequence[str]],
    limits: Sequence[int | None],
    names: Sequence[str],
    terminal: Terminal | None,
) -> list[Sequence[str]]:
    """Return the columns with each text clipped to the limit of its column; None: no limit."""
    middle = () if terminal is None else terminal.names
    return [
        texts
        if limit is None or max(_widths(texts), default=0) <= limit
        else [_clip(text, limit, in_middle=name in middle) for text in texts]
        for texts, limit, name in zip(cells, limits, names, strict=True)
    ]


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
