"""Plain tables, and the columns of them that fit a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from warehouse.show.values import Blocks, is_numeric, printable, shown

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
    """

    width: int
    has_styles: bool = False
    first: Sequence[str] = ()


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
    has_header = False
    for block in blocks:
        cells = [[_clipped(shown(value), most) for value in row] for row in block]
        wider = _widened(widths, cells)
        if not has_header:
            align = [is_numeric(row[place] for row in block) for place in range(len(columns))]
            if terminal is not None:
                kept = _fitting(names, wider, terminal)
            _write_header(stream, names, wider, align, kept, terminal)
            has_header = True
            widths = wider
        elif terminal is None or _length(wider, kept) <= terminal.width:
            widths = wider
        else:
            cells = [
                [_clipped(cell, width) for cell, width in zip(row, widths, strict=True)]
                for row in cells
            ]
        for row in cells:
            stream.write(_line(row, widths, align, kept))
    if not has_header:
        kept = kept if terminal is None else _fitting(names, widths, terminal)
        _write_header(stream, names, widths, align, kept, terminal)
    _write_left_out(stream, names, kept, terminal)


def _fitting(names: Sequence[str], widths: Sequence[int], terminal: Terminal) -> list[int]:
    """Return the places of the columns that fit, in the order of the table; one at least."""
    important = [names.index(name) for name in terminal.first if name in names]
    order = list(dict.fromkeys([*important, *range(len(names))]))
    while len(order) > 1 and _length(widths, order) > terminal.width:
        order.pop()
    return sorted(order)


def _length(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[place] for place in kept) + len(_GAP) * (len(kept) - 1)


def _widened(widths: Sequence[int], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(known, *map(_width, cell)) for known, cell in _columns_of(widths, cells)]


def _columns_of(
    widths: Sequence[int], cells: Sequence[Sequence[str]]
) -> Iterator[tuple[int, Sequence[str]]]:
    return zip(widths, zip(*cells, strict=True), strict=True)


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
    stream: TextIO, names: Sequence[str], kept: Sequence[int], terminal: Terminal | None
) -> None:
    """Name the columns that a terminal does not show."""
    left_out = [name for place, name in enumerate(names) if place not in set(kept)]
    if terminal is None or not left_out:
        return
    from textwrap import wrap

    text = f"not shown: {', '.join(left_out)} (--wide shows all, --columns chooses)"
    for line in wrap(text, terminal.width, break_on_hyphens=False):
        stream.write(f"{line}\n")


def _line(
    cells: Sequence[str], widths: Sequence[int], align: Sequence[bool], kept: Iterable[int]
) -> str:
    padded = (_padded(cells[place], widths[place], to_right=align[place]) for place in kept)
    return _GAP.join(padded).rstrip() + "\n"


def _padded(text: str, width: int, *, to_right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if to_right else text + blanks


def _clipped(text: str, width: int | None) -> str:
    if width is None or _width(text) <= width:
        return text
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
