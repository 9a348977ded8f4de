"""Plots of the small quickstart: each draws, says what is missing, and is the picture it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from xml.etree import ElementTree

import duckdb
import pytest

from estimators.contract import Scalar
from tests.shared import Quickstart
from warehouse.database.connection import open_for_read
from warehouse.errors import InputError, UsageError
from warehouse.plot.draw import Drawing, draw
from warehouse.plot.files import content_of
from warehouse.plot.registry import PLOTS
from warehouse.plot.theme import DARK, LIGHT

DRAWN: dict[str, dict[str, Scalar]] = {
    "training_days": {"model": "gpt3_1T", "strategy": "tensor_1d"},
    "throughput_per_gpu": {"model": "gpt3_1T"},
    "best_layouts": {"model": "gpt3_1T", "accelerator": "B200", "nvlink_size": 8},
}
"""Plots that the small quickstart fills -> filters."""

UNFILLED = ("strategies", "errata", "network_bandwidth")
"""Plots of which an empty warehouse has no row."""


@pytest.fixture(scope="module")
def drawings(quickstart: Quickstart) -> Callable[[str], Drawing]:
    """Draws a plot of `DRAWN`, once."""

    @cache
    def drawn(name: str) -> Drawing:
        with open_for_read(quickstart.database) as connection:
            return draw(connection, name, DRAWN[name])

    return drawn


@pytest.mark.parametrize(
    "name",
    ["training_days", *(pytest.param(n, marks=pytest.mark.long) for n in list(DRAWN)[1:])],
)
def test_a_plot_draws_from_a_small_database(
    name: str, quickstarted: duckdb.DuckDBPyConnection, drawings: Callable[[str], Drawing]
) -> None:
    drawing = drawings(name)
    assert drawing.frame.height > 2
    for column in PLOTS[name].single:
        assert drawing.frame[column].n_unique() == 1
    # the query that is shown gives the rows that are drawn
    assert quickstarted.sql(drawing.sql).pl().equals(drawing.frame)
    svg = ElementTree.fromstring(content_of(drawing.chart, ".svg"))
    texts = " ".join(text.strip() for text in svg.itertext())
    assert drawing.title.split()[0] in texts.split()
    assert "undefined" not in texts and "NaN" not in texts and "null" not in texts


@pytest.mark.parametrize("name", UNFILLED)
def test_a_plot_without_rows_says_which_sweep_fills_it(
    name: str, empty: duckdb.DuckDBPyConnection
) -> None:
    with pytest.raises(InputError) as caught:
        draw(empty, name)
    assert caught.value.message == f"plot {name}: no stored row to show"
    assert PLOTS[name].filled_by[0] in caught.value.hint


def test_one_strategy_alone_is_compared_with_no_other(
    quickstarted: duckdb.DuckDBPyConnection,
) -> None:
    with pytest.raises(InputError, match="plot strategies: no stored row to show") as caught:
        draw(quickstarted, "strategies")
    assert caught.value.hint == "store some: `warehouse sweep paper_grid`"


@pytest.mark.long
def test_a_filter_without_rows_is_answered_with_what_is_stored(
    quickstarted: duckdb.DuckDBPyConnection,
) -> None:
    with pytest.raises(InputError) as caught:
        draw(quickstarted, "training_days", {"model": "gpt3_1T", "nvlink_size": 3, "tokens": 2e12})
    assert caught.value.message == (
        "plot training_days: no stored row to show with model gpt3_1T, nvlink_size 3, tokens 2e+12"
    )
    assert caught.value.hint.startswith("leave out a filter; stored: nvlink_size 4, 8, ")
    with pytest.raises(UsageError, match="`--estimator` roofline has no formulas"):
        draw(quickstarted, "tornado", {"estimator": "roofline", "model": "gpt3_1T"})


@pytest.mark.long
def test_a_png_is_a_picture_of_two_pixels_a_pixel(
    drawings: Callable[[str], Drawing],
) -> None:
    chart = drawings("training_days").chart
    content = content_of(chart, ".png")
    svg = content_of(chart, ".svg").decode()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    said = re.search(r'width="(\d+)" height="(\d+)"', svg)
    assert said is not None
    assert (width, height) == (2 * int(said[1]), 2 * int(said[2]))
    # a blank picture of this size takes a tenth of it
    assert len(content) > 50_000


@pytest.mark.long
def test_a_page_holds_what_it_needs_and_fetches_nothing(
    drawings: Callable[[str], Drawing],
) -> None:
    page = content_of(drawings("best_layouts").chart, ".html")
    text = page.decode()
    assert 500_000 < len(page) < 3_000_000
    assert text.count("</script>") == 2  # Vega once, and the chart
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=[\"']?(https?:)?//", text)
    assert "cdn" not in text.partition('vegaEmbed("#chart"')[2].lower()
    assert "On 16,384 B200" in text


def test_dark_pictures_have_light_text_and_no_background() -> None:
    assert (LIGHT.config["background"], DARK.config["background"]) == ("#ffffff", "transparent")
    assert LIGHT.config["axis"]["labelColor"] < "#444444"
    assert DARK.config["axis"]["labelColor"] > "#cccccc"


def test_unknown_plots_and_filters_are_refused(empty: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UsageError, match="did you mean training_days") as caught:
        draw(empty, "training-day")
    assert "`NAME` training-day" in caught.value.message
    with pytest.raises(UsageError, match="`--num-gpus` 8: plot training_days has no such filter"):
        draw(empty, "training_days", {"num_gpus": 8})


def test_without_its_packages_a_plot_says_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch, empty: duckdb.DuckDBPyConnection
) -> None:
    monkeypatch.setattr("warehouse.plot.draw.find_spec", lambda _: None)
    with pytest.raises(InputError) as caught:
        draw(empty, "training_days")
    assert caught.value.hint == "install it with `pip install 'training-warehouse[plots]'`"
