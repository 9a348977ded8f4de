"""Charts as files: PNG, SVG, and HTML pages that need no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from warehouse.errors import UsageError
from warehouse.files import check_target, written_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from altair.typing import ChartType

ENDINGS = (".png", ".svg", ".html")
"""Endings of files that a chart can be written to."""

SCALE = 2
"""Pixels of a PNG for each pixel of the chart: legible on dense displays and in print."""


def check_ending(out: Path) -> None:
    """Refuse a file whose ending names no format, or that cannot be written.

    Raises
    ------
    InputError
        If no file can be written there.
    UsageError
        If the ending is none of `ENDINGS`.
    """
    check_target(out)
    if out.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"`--out` {out} does not say which picture to write", f"end it in {', '.join(ENDINGS)}"
        )


def save(chart: ChartType, out: Path) -> int:
    """Write a chart to a file, in the format of its ending; return its bytes.

    Raises
    ------
    InputError, UsageError
        As `check_ending`.
    """
    check_ending(out)
    content = content_of(chart, out.suffix.lower())
    with written_whole(out) as partial:
        partial.write_bytes(content)
    return len(content)


def content_of(chart: ChartType, ending: str) -> bytes:
    """Return the content of a file with one of `ENDINGS`."""
    import vl_convert

    spec = chart.to_dict()
    if ending == ".png":
        found: bytes = vl_convert.vegalite_to_png(spec, scale=SCALE)
        return found
    if ending == ".svg":
        lines = vl_convert.vegalite_to_svg(spec).splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines).encode()
    return page({"chart": chart}, plain_title(chart)).encode()


def page(charts: Mapping[str, ChartType], title: str) -> str:
    """Return a page with some charts below one another, which reads nothing but itself.

    Parameters
    ----------
    charts
        Name of its place in the page -> chart.
    """
    places = "\n".join(f'<div id="{name}"></div>' for name in charts)
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_escaped(title)}</title>
<link rel="icon" href="data:,">
<style>body {{ margin: 1rem; font-family: Arial, Helvetica, sans-serif; overflow-x: auto }}</style>
</head>
<body>
{places}
<script type="module">
{bundle()}
</script>
{embedding(charts)}
</body>
</html>
"""


def bundle() -> str:
    """Return the script with Vega, Vega-Lite and vega-embed: 1 MB, once a page."""
    import vl_convert

    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return text


def embedding(charts: Mapping[str, ChartType]) -> str:
    """Return the script element that draws charts into the places of a page, after `bundle`."""
    specs = {f"#{name}": chart.to_dict() for name, chart in charts.items()}
    # a browser must not find the end of the script in a text
    text = json.dumps(specs).replace("</", "<\\/").replace("<!--", "<\\!--")
    return f"""\
<script type="module">
const charts = {text};
for (const [place, chart] of Object.entries(charts)) {{
  window.vegaEmbed(place, chart, {{renderer: "svg", actions: false}});
}}
</script>"""


def plain_title(chart: ChartType) -> str:
    """Return the title of a chart in one line."""
    title = chart.to_dict().get("title", "")
    lines = title.get("text", "") if isinstance(title, dict) else title
    return " ".join(lines) if isinstance(lines, list) else str(lines)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
