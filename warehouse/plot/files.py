"""Charts as files: PNG, SVG, and HTML pages that need no network."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from warehouse.errors import UsageError
from warehouse.files import check_target, written_whole

if TYPE_CHECKING:
    from altair.typing import ChartType

ENDINGS = (".png", ".svg", ".html")
"""Endings of files that a chart can be written to."""

SCALE = 2
"""Pixels of a PNG for each pixel of the chart: legible on dense displays and in print."""


def check_ending(out: Path) -> None:
    """Raise `UsageError` if the ending of a file is none of `ENDINGS`.

    Raise `InputError` if no file can be written there.
    """
    check_target(out)
    if out.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"`--out` {out} does not say which picture to write", f"end it in {', '.join(ENDINGS)}"
        )


def save(chart: ChartType, out: Path) -> None:
    """Write a chart to a file, in the format of its ending, which `check_ending` checks."""
    check_ending(out)
    content = content_of(chart, out.suffix.lower())
    with written_whole(out) as partial:
        partial.write_bytes(content)


def content_of(chart: ChartType, ending: str) -> bytes:
    """Return the content of a file with one of `ENDINGS`."""
    import vl_convert

    spec = chart.to_dict()
    if ending == ".png":
        picture: bytes = vl_convert.vegalite_to_png(spec, scale=SCALE)
        return picture
    if ending == ".svg":
        lines = vl_convert.vegalite_to_svg(spec).splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines).encode()
    return _page(chart).encode()


def _page(chart: ChartType) -> str:
    # a browser must not find the end of the script in a text
    spec = json.dumps(chart.to_dict()).replace("</", "<\\/").replace("<!--", "<\\!--")
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(plain_title(chart), quote=False)}</title>
<link rel="icon" href="data:,">
<style>body {{ margin: 1rem; font-family: Arial, Helvetica, sans-serif; overflow-x: auto }}</style>
</head>
<body>
<div id="chart"></div>
<script type="module">
{bundle()}
</script>
<script type="module">
window.vegaEmbed("#chart", {spec}, {{renderer: "svg", actions: false}});
</script>
</body>
</html>
"""


def bundle() -> str:
    """Return the script with Vega, Vega-Lite and vega-embed: 1 MB, once a page."""
    import vl_convert

    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return text


def plain_title(chart: ChartType) -> str:
    """Return the title of a chart in one line."""
    title = chart.to_dict().get("title", "")
    lines = title.get("text", "") if isinstance(title, dict) else title
    return " ".join(lines) if isinstance(lines, list) else str(lines)
