"""The theme of all pictures: colours, sizes of text, lines; light, and dark for dark pages.

Colours are those of Okabe and Ito, which people with any colour vision can tell apart (M. Okabe and
K. Ito, Color Universal Design, https://jfly.uni-koeln.de/color/, 2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW, GREY = "#56B4E9", "#CC79A7", "#F0E442", "#8C8C8C"
PALETTE = (BLUE, RED, GREEN, ORANGE, SKY, PURPLE, YELLOW, GREY)
"""Colours of categories, in the order in which they are taken."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
"""Shapes and dashes of a second category; a picture without colours can still be read."""

RAMP = (
    *("#fde725", "#aadc32", "#5ec962", "#27ad81", "#21918c", "#2c728e", "#3b528b", "#472d7b"),
    "#440154",
)
"""Colours of a quantity from good to bad: viridis, as legible in grey as in colours."""

WIDTH = 640
HEIGHT = 400
"""Pixels of a picture with one panel."""

FONT = "Arial, Helvetica, Liberation Sans, sans-serif"
LABEL_SIZE, TITLE_SIZE, HEADING_SIZE = 13, 14, 18


@dataclass(frozen=True)
class Theme:
    """Colours of one kind of page.

    Attributes
    ----------
    ink, faint
        Text and marks without a category; text that matters less.
    grid, background
        Lines of the grid; background of the picture, None for that of the page.
    blue, sky
        The two blues of the palette, which a dark page needs lighter.
    greys
        Shades for a category next to one that takes the colours.
    """

    name: str
    ink: str
    faint: str
    grid: str
    background: str | None
    blue: str
    sky: str
    greys: tuple[str, str, str, str]

    @property
    def palette(self) -> tuple[str, ...]:
        """The colours of categories."""
        return (self.blue, *PALETTE[1:4], self.sky, *PALETTE[5:])

    def ramp(self, count: int) -> list[str]:
        """Return colours of an ordered category, from the least on: all differ from the page."""
        if count == 1:
            return [self.blue]
        shades = RAMP[1:] if self.background else RAMP[:-3]
        last = len(shades) - 1
        places = (n * last / (count - 1) for n in range(count))
        return [_between(shades[int(at)], shades[min(int(at) + 1, last)], at % 1) for at in places]

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of Vega-Lite."""
        axis = {
            "labelColor": self.ink,
            "labelFontSize": LABEL_SIZE,
            "labelOverlap": "greedy",
            "labelSeparation": 6,
            # a label that is moved inwards at an end touches its neighbour
            "labelFlush": False,
            "titleColor": self.ink,
            "titleFontSize": TITLE_SIZE,
            "titleFontWeight": "normal",
            "titlePadding": 10,
            "gridColor": self.grid,
            "domainColor": self.faint,
            "tickColor": self.faint,
        }
        label = {
            "labelColor": self.ink,
            "labelFontSize": LABEL_SIZE,
            "titleColor": self.ink,
            "titleFontSize": LABEL_SIZE,
            "titleFontWeight": "bold",
        }
        return {
            "font": FONT,
            "background": self.background or "transparent",
            "padding": 14,
            "view": {"stroke": None},
            "axis": axis,
            "legend": {**label, "labelLimit": 320, "symbolSize": 90, "rowPadding": 4},
            "header": label,
            "title": {
                "anchor": "start",
                "frame": "bounds",
                "color": self.ink,
                "fontSize": HEADING_SIZE,
                "subtitleColor": self.faint,
                "subtitleFontSize": LABEL_SIZE,
                "subtitlePadding": 6,
                "lineHeight": HEADING_SIZE + 5,
                "subtitleLineHeight": LABEL_SIZE + 5,
                "offset": 16,
            },
            "text": {"color": self.ink, "fontSize": LABEL_SIZE},
            "rule": {"color": self.faint},
            "line": {"strokeWidth": 2},
            "point": {"size": 55, "filled": True},
            "range": {"category": list(self.palette), "symbol": list(SHAPES)},
        }


def _between(low: str, high: str, share: float) -> str:
    ends = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (low, high)]
    mixed = (round(a + (b - a) * share) for a, b in zip(*ends, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


LIGHT = Theme(
    *("light", "#1a1a1a", "#595959", "#e4e4e4", "#ffffff", BLUE, SKY),
    greys=("#2b2b2b", "#6b6b6b", "#a3a3a3", "#d0d0d0"),
)
DARK = Theme(
    *("dark", "#ececec", "#b0b0b0", "#3a3a3a", None, "#4FA3DA", "#C2E7FF"),
    greys=("#f2f2f2", "#b8b8b8", "#858585", "#5a5a5a"),
)
