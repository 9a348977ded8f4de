"""The picture of the lineage: an SVG in columns, from stored tables to marts.

A line that passes a column has its own place in it, so that it never runs behind a box; all
lines of one box share theirs. Places follow from the means of their neighbours', kept apart. Lines
of neighbouring boxes differ in tone; all lines of a box stand out under the pointer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ROW, _BOX, _LANE = 19.0, 15.0, 6.5
"""Height of a row, of the box in it, and of the place of a line that passes."""
_TOP, _MARGIN, _GAP = 40.0, 10.0, 62.0
_GROUP = 24.0
"""Extra height above the second and later groups of a column, for their heading."""
_FONT, _CHARACTER = 10.5, 5.75
_SWEEPS = 24
_SCALE = 2.0
"""Pixels a unit: the picture is twice as wide as a page, and opens so."""
_TONES = (0.0, -0.5, 0.35, -0.25, 0.2)
"""How much darker or brighter than its layer's colour the lines of one box after another are."""

_STYLES = {
    "results": ("#dce9f7", "#3b6ea8"),
    "records": ("#e6e6e6", "#6f6f6f"),
    "reference": ("#f8ebd0", "#a8741a"),
    "staging": ("#d8efec", "#23857b"),
    "intermediate": ("#e9dff3", "#7b4fa6"),
    "functions": ("#f7ddd6", "#b3472f"),
    "marts": ("#e2efd6", "#4f7a28"),
}
"""Fill of a layer's boxes, and colour of their frames and of the lines out of them."""


class Box(NamedTuple):
    """A box: `column` counts from the left, `title` is shown by the pointer."""

    name: str
    layer: str
    column: int
    title: str


class _Edge(NamedTuple):
    source: str
    target: str


@dataclass
class _Place:
    """A place in a column: a box, or one through which the lines of box `of` pass."""

    key: str
    column: int
    layer: str
    of: Box | None
    source: str
    y: float = 0.0
    near: list[str] = field(default_factory=list)

    @property
    def height(self) -> float:
        return _ROW if self.of else _LANE


def picture(boxes: Sequence[Box], reads: Mapping[str, Iterable[str]]) -> str:
    """Return the SVG of `boxes`, with a line from each that is read to each that reads it."""
    by_name = {box.name: box for box in boxes}
    edges = [
        _Edge(source, target)
        for target in sorted(by_name)
        for source in reads.get(target, ())
        if source in by_name
    ]
    places = {b.name: _Place(b.name, b.column, b.layer, b, b.name) for b in boxes}
    pieces = _pieces(edges, by_name, places)
    for source, target in pieces:
        places[source].near.append(target)
        places[target].near.append(source)
    _settle(places)
    return _drawn(places, pieces)


def _pieces(
    edges: Sequence[_Edge], boxes: Mapping[str, Box], places: dict[str, _Place]
) -> list[_Edge]:
    """Cut edges at the columns that they pass; add the places there to `places`."""
    found: dict[_Edge, None] = {}
    for source, target in edges:
        begin, end = boxes[source], boxes[target]
        path = [source]
        for column in range(begin.column + 1, end.column):
            key = f"{source} in {column}"
            places.setdefault(key, _Place(key, column, begin.layer, None, source))
            path.append(key)
        found.update(dict.fromkeys(_Edge(*piece) for piece in pairwise([*path, target])))
    return list(found)


def _settle(places: dict[str, _Place]) -> None:
    columns: dict[int, list[_Place]] = {}
    for place in places.values():
        columns.setdefault(place.column, []).append(place)
    for column in columns.values():
        _stack(column)
    for _ in range(_SWEEPS):
        for number in sorted(columns):
            column = columns[number]
            wanted = {
                place.key: fmean(places[key].y for key in place.near) if place.near else place.y
                for place in column
            }
            layers = list(dict.fromkeys(place.layer for place in column if place.of))
            if number == 0:  # stays packed, layer by layer
                column.sort(key=lambda p: (layers.index(p.layer), wanted[p.key], p.key))
                _stack(column)
            else:
                column.sort(key=lambda p: (wanted[p.key], p.key))
                _spread(column, wanted)


def _stack(column: Sequence[_Place]) -> None:
    """Place one below the other, with room for a heading between two layers."""
    y = _TOP
    for before, place in zip([None, *column], column, strict=False):
        if before is not None and place.column == 0 and before.layer != place.layer:
            y += _GROUP
        place.y = y + place.height / 2
        y += place.height


def _spread(column: Sequence[_Place], wanted: Mapping[str, float]) -> None:
    """Place each as near to where it is wanted as the others let it (pooled neighbours)."""
    offsets, offset = [], 0.0
    for before, place in zip([None, *column], column, strict=False):
        offset += (before.height + place.height) / 2 if before else place.height / 2
        offsets.append(offset)
    blocks: list[list[float]] = []
    for place, own in zip(column, offsets, strict=True):
        blocks.append([wanted[place.key] - own])
        while len(blocks) > 1 and fmean(blocks[-2]) >= fmean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    starts = [fmean(block) for block in blocks for _ in block]
    for place, own, start in zip(column, offsets, starts, strict=True):
        place.y = max(start, _TOP) + own


def _drawn(places: Mapping[str, _Place], pieces: Iterable[_Edge]) -> str:
    boxes = [place for place in places.values() if place.of]
    last = max(place.column for place in boxes)
    widths = [
        max(len(place.key) for place in boxes if place.column == column) * _CHARACTER + 12
        for column in range(last + 1)
    ]
    lefts = [_MARGIN + sum(widths[:column]) + _GAP * column for column in range(last + 1)]
    # room on the right for the lines between two boxes of the last column
    width = lefts[-1] + widths[-1] + _GAP * 0.6
    height = max(place.y + place.height for place in places.values()) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * _SCALE:.0f}" '
        f'height="{height * _SCALE:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="{_FONT}">',
        "<title>What reads what, from stored tables to marts</title>",
        "<style>.lines path { stroke-width: 0.9; stroke-opacity: 0.75 } "
        ".lines:hover path { stroke-width: 2.5; stroke-opacity: 1 }</style>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    parts += _lines(places, pieces, lefts, widths)
    for column, left in enumerate(lefts):
        own = sorted((p for p in boxes if p.column == column), key=lambda place: place.y)
        layers = Counter(place.layer for place in own)
        if column:  # boxes of several layers are mixed there: headed by the one that has most
            parts.append(_heading(layers.most_common(1)[0][0], left, _TOP))
        else:
            tops = {place.layer: place.y - _ROW / 2 for place in reversed(own)}
            parts += [_heading(layer, left, tops[layer]) for layer in layers]
        parts += [_box(place, left, widths[column]) for place in own]
    return "\n".join([*parts, "</svg>", ""])


def _heading(layer: str, left: float, top: float) -> str:
    return (
        f'<text x="{left:.1f}" y="{top - 6:.1f}" font-weight="bold" font-size="12" '
        f'fill="{_STYLES[layer][1]}">{escape(layer)}</text>'
    )


def _box(place: _Place, left: float, width: float) -> str:
    fill, frame = _STYLES[place.layer]
    title = escape(place.of.title if place.of else "")
    return (
        f'<g><title>{title}</title><rect x="{left:.1f}" y="{place.y - _BOX / 2:.1f}" '
        f'width="{width:.1f}" height="{_BOX:g}" rx="3" fill="{fill}" stroke="{frame}" '
        f'stroke-width="0.7"/><text x="{left + 6:.1f}" y="{place.y + 3.6:.1f}" fill="#1c1c1c">'
        f"{escape(place.key)}</text></g>"
    )


def _lines(
    places: Mapping[str, _Place],
    pieces: Iterable[_Edge],
    lefts: Sequence[float],
    widths: Sequence[float],
) -> list[str]:
    """Return the lines, a group of elements for each box that is read."""
    found: dict[str, list[_Edge]] = {}
    for piece in pieces:
        found.setdefault(places[piece.source].source, []).append(piece)
    groups, seen = [], Counter[str]()
    for name in sorted(found, key=lambda name: (places[name].column, places[name].y)):
        layer = places[name].layer
        colour = _toned(_STYLES[layer][1], _TONES[seen[layer] % len(_TONES)])
        seen[layer] += 1
        readers = [target for _, target in found[name] if places[target].of]
        title = escape(f"{name} is read by {', '.join(sorted(readers))}")
        drawn = [_line(places[a], places[b], lefts, widths, colour) for a, b in found[name]]
        groups += [f'<g class="lines"><title>{title}</title>', *drawn, "</g>"]
    return groups


def _toned(colour: str, tone: float) -> str:
    """Return a colour, mixed with black (a tone below 0) or white."""
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    end = 255 if tone > 0 else 0
    return "#" + "".join(f"{round(part + abs(tone) * (end - part)):02x}" for part in parts)


def _line(
    source: _Place, target: _Place, lefts: Sequence[float], widths: Sequence[float], colour: str
) -> str:
    begin = lefts[source.column] + widths[source.column]
    style = f'fill="none" stroke="{colour}"'
    if source.column == target.column:  # round the right-hand side
        out = begin + min(10 + abs(target.y - source.y) * 0.12, _GAP * 0.55)
        path = f"C{out:.1f} {source.y:.1f} {out:.1f} {target.y:.1f} {begin:.1f} {target.y:.1f}"
        start = f"M{begin:.1f} {source.y:.1f}"
        head = _head(begin, target.y, 1, colour)
        return f'<path d="{start} {path}" {style} stroke-dasharray="3 2"/>{head}'
    end = lefts[target.column]
    middle = (begin + end) / 2
    path = (
        f"M{begin:.1f} {source.y:.1f} "
        f"C{middle:.1f} {source.y:.1f} {middle:.1f} {target.y:.1f} {end:.1f} {target.y:.1f}"
    )
    if target.of is None:  # on through the column
        path += f" H{end + widths[target.column]:.1f}"
        return f'<path d="{path}" {style}/>'
    return f'<path d="{path}" {style}/>{_head(end, target.y, -1, colour)}'


def _head(x: float, y: float, side: int, colour: str) -> str:
    points = f"{x:.1f},{y:.1f} {x + side * 5:.1f},{y - 2.4:.1f} {x + side * 5:.1f},{y + 2.4:.1f}"
    return f'<polygon points="{points}" fill="{colour}"/>'
