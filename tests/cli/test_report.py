"""`warehouse report`: the figures of the page are those of the plan, and it needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from markupsafe import escape

from tests.cli.planning import QUESTION
from tests.shared import Command, call
from warehouse.launch.read import launch_of
from warehouse.plan.question import RunLimits
from warehouse.plan.words import limits_in_words
from warehouse.report import content
from warehouse.report.content import LAYOUTS
from warehouse.show.units import with_digits

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from warehouse.plan.answer import PlanAnswer

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

IN_A_BROWSER = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed"),
]

OFFLINE = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


COMMAND = "warehouse report '<b>m</b></script>&'"


@pytest.fixture(scope="module")
def report(
    planned: tuple[Path, dict[str, Any], str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The report of the plan that tests share."""
    place = tmp_path_factory.mktemp("report")
    database = shutil.copyfile(planned[0], place / "plan.duckdb")
    out = place / "plan.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["warehouse", "report", "<b>m</b></script>&"])
        code, _, err = call(
            *("report", *QUESTION, "--gpus", 8, "--price", 2.5, "--db", database, "--out", out)
        )
    assert code == 0, err
    return out


@pytest.fixture(scope="module")
def page(report: Path) -> str:
    return report.read_text("utf-8")


def text_of(page: str) -> str:
    """Return the words of a page, without its styles and scripts."""
    bare = re.sub(r"<(style|script)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", bare)).split())


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_page_states_the_answer_of_the_plan(
    page: str, planned: tuple[Path, dict[str, Any], str]
) -> None:
    plan, words = planned[1], text_of(page)
    best = plan["layouts"][0]
    hours = plan["training_seconds"] / 3600
    dollars = f"{with_digits(plan['gpu_hours'] * 2.5, 3)} USD"
    assert f"The run takes {hours:,.1f} hours and costs {dollars}." in words
    assert f"Cost {dollars}" in words
    assert ", at 2.50 USD/GPU-hour, given" in words
    assert f"dp{best['data_parallel']}: {best['data_parallel']} replicas" in words
    assert f"Energy {plan['energy_kwh']:,.1f} kWh" in words
    assert f"{100 * best['mfu']:.1f} %" in words
    low, high = (end / 3600 for end in plan["likely_training_seconds"])
    assert f"{low:,.1f} to {high:,.1f} hours: the range of a steady step of a tuned" in words
    # no grid was named: a card with one would be a choice that nobody made
    assert "CO2e" not in words.partition("What limits it")[0]
    record = plan["track_record"]
    expected = f"Accuracy {100 * record['mean_error']:.1f} % mean error on {record['num_steps']} "
    assert f"{expected}published steps of {record['found']}" in words
    longer = 100 * (plan["layouts"][1]["step_seconds"] / best["step_seconds"] - 1)
    assert f"takes {longer:.2f} % longer" in words
    assert data_of(page)["run"] == {
        "gpu_hours": pytest.approx(best["gpu_hours"]),
        "num_gpus": 8,
        "goodput": 1.0,
    }


def test_the_marks_of_the_charts_are_the_figures_of_the_plan(
    page: str, planned: tuple[Path, dict[str, Any], str]
) -> None:
    charts = data_of(page)["charts"]
    assert set(charts) >= {"parts", "constants", "errors"}
    for themes in charts.values():
        assert set(themes) == {"light", "dark"}
    best = planned[1]["layouts"][0]
    [rows] = charts["parts"]["light"]["datasets"].values()
    seconds = {row["part"]: row["seconds"] for row in rows}
    assert seconds["arithmetic"] == pytest.approx(best["compute_seconds"])
    assert sum(seconds.values()) == pytest.approx(best["step_seconds"])
    # two groups may have equally many steps: each has a bar of its own
    [bars] = charts["errors"]["light"]["datasets"].values()
    errors = planned[1]["track_record"]["groups"]
    assert sorted(bar["error"] for bar in bars) == pytest.approx(
        sorted(line["time_mean_absolute_relative_error"] for line in errors)
    )
    assert len({bar["group"] for bar in bars}) == len(bars)
    ways = {bar["error"]: bar["way"] for bar in bars}
    for line in errors:
        way = "too fast" if line["time_bias"] < 0 else "too slow"
        assert ways[line["time_mean_absolute_relative_error"]] == way


def test_the_table_of_errors_has_those_of_the_time_alone(page: str) -> None:
    table = page.partition("<summary>Errors of the time on these steps, and of the memory")[2]
    words = text_of(table.partition("</table>")[0])
    assert "time mean |error| %" in words
    assert "time bias %" in words
    assert words.count("mean |error| %") == 1
    assert words.count("bias %") == 1


def test_the_page_names_its_command_and_queries(page: str) -> None:
    words = text_of(page)
    assert "How it was made" in words
    assert "Query: layouts select" in words
    assert "row_number() over" in words


def test_the_page_reads_nothing_else(report: Path, page: str) -> None:
    outside = re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", outside)
    assert report.stat().st_size < 3_000_000


def test_the_policy_admits_the_style_and_the_scripts_of_the_page_alone(page: str) -> None:
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', page)
    rules = {name: set(values) for name, *values in map(str.split, policy.split(";"))}
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == {"'none'"}

    def hashes(element: str) -> set[str]:
        texts = re.findall(rf"<{element}>(.*?)</{element.split(maxsplit=1)[0]}>", page, re.DOTALL)
        digests = (hashlib.sha256(text.encode()).digest() for text in texts)
        return {f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests}

    assert rules["style-src"] == hashes("style")
    assert rules["script-src"] == hashes('script type="module"')
    assert len(rules["script-src"]) == 2


def test_texts_of_a_user_are_no_markup(page: str) -> None:
    assert "<b>m</b>" not in page
    assert str(escape(COMMAND)) in page


@pytest.mark.parametrize("out", ["plan.pdf", "plan", "missing/plan.html"])
def test_a_file_that_cannot_be_the_page_is_refused(
    out: str, warehouse: Command, planned_database: Path, tmp_path: Path
) -> None:
    command = ("report", *QUESTION, "--gpus", 8, "--db", planned_database, "--out", tmp_path / out)
    code, _, err = warehouse(*command)
    assert code != 0
    assert out.rsplit("/", maxsplit=1)[0] in err
    assert not (tmp_path / out).exists()


def test_the_page_has_the_launch_of_the_best_layout(
    planned: tuple[Path, dict[str, Any], str], page: str
) -> None:
    texts = re.findall(r"Copy launch</button><pre><code>(.*?)</code></pre>", page, re.DOTALL)
    script, keys = map(html.unescape, texts)
    best = planned[1]["layouts"][0]
    for text, name in ((script, "run.sh"), (keys, "run_config.yaml")):
        columns = launch_of(text, Path(name), {}).columns
        assert columns["num_gpus"] == str(planned[1]["num_gpus"])
        assert columns["tensor_parallel"] == str(best["tensor_parallel"])
        assert columns["microbatch_size"] == str(best["microbatch_size"])


def test_sliders_begin_at_the_plan(planned: tuple[Path, dict[str, Any], str], page: str) -> None:
    values = {
        name: float(value)
        for name, value in re.findall(
            r'<input type="range" name="(\w+)"[^>]* value="([^"]+)"', page
        )
    }
    energy = planned[1]["energies"][0]
    assert values["price"] == 2.5
    assert values["pue"] == energy["pue"]
    assert values["watts"] == pytest.approx(energy["watts_per_gpu"], rel=0.005)
    assert values["electricity"] == pytest.approx(energy["usd_per_kwh"], rel=0.005)


def test_the_table_of_gpu_counts_is_that_of_the_plan(
    page: str, warehouse: Command, planned: tuple[Path, dict[str, Any], str]
) -> None:
    asked = ("plan", *QUESTION, "--gpus", 8, "--price", 2.5, "--db", planned[0])
    code, out, err = warehouse(*asked, "--details", "--wide")
    assert code == 0, err
    head, _, *lines = out.split("Other GPU counts\n\n")[1].split("\n\n")[0].splitlines()
    table = text_of(page).split("Other numbers of GPUs ")[1]
    assert table.startswith(" ".join(head.split()))
    for row in lines:
        assert " ".join(row.split()) in table.replace(" - ", " NULL ")
    assert any("best" in row for row in lines)


def test_words_of_a_layout_are_explained() -> None:
    layout = {"data_parallel": 8, "tensor_parallel": 4, "uses_sequence_parallel": True}
    layout |= {"context_parallel": 1, "pipeline_parallel": 1, "microbatch_size": 1, "zero_stage": 0}
    assert content.layout_key(layout) == (
        "dp8: 8 replicas; tp4: tensors split over 4 GPUs; seq: norms split along the sequence; "
        "micro1: microbatch size 1"
    )


def test_parts_that_take_no_time_are_left_out() -> None:
    best = {"step_seconds": 3.0, "compute_seconds": 2.0, "memory_seconds": 1.0}
    answer = SimpleNamespace(best={**best, "tensor_comm_seconds": 0.0, "bubble_seconds": 1e-16})
    parts = content.parts_of(cast("PlanAnswer", answer))
    assert parts == [("arithmetic", 2.0), ("memory", 1.0)]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "No other layout is within 5 % of the fastest step."),
        (2, "2 layouts are within 5 % of the fastest step."),
        (LAYOUTS, "and so may others be."),
    ],
)
def test_near_optimal_layouts_are_counted(number: int, words: str) -> None:
    slow = [{"step_seconds": 2.0}] if number < LAYOUTS else []
    layouts = [{"step_seconds": 1.0}] * number + slow
    answer = SimpleNamespace(best=layouts[0], layouts=layouts)
    assert content._near_in_words(cast("PlanAnswer", answer)).endswith(words)


@pytest.mark.long
def test_a_plan_within_limits_states_them(
    warehouse: Command, planned_database: Path, tmp_path: Path
) -> None:
    out = tmp_path / "days.html"
    limits = ("--days", 40, "--headroom-gb", 68, "--max-gpus", 8)
    terms = ("--price", 2, "--goodput", 0.2, "--electricity-price", 0)
    code, _, err = warehouse(
        "report", *QUESTION, *limits, *terms, "--db", planned_database, "--out", out
    )
    assert code == 0, err
    page = out.read_text("utf-8")
    words = text_of(page)
    assert "at most 40 days" in words
    assert (
        "none that was tried fits: the smallest takes" in words
    )  # counts that no layout fits have a row
    assert (
        "GPUs training days slow training days GPU-hours" in words
    )  # and take no columns from the others
    for name in ("goodput", "electricity"):
        least, most, value = (
            float(number)
            for number in re.findall(
                rf'name="{name}" min="(.+?)" max="(.+?)" .*?value="(.+?)"', page
            )[0]
        )
        assert least <= value <= most
        assert least < most


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (None, []),
        (12, ["--days 12 limits the median"]),
        (11, ["--days 11 limits the median; the slow end exceeds it"]),
    ],
)
def test_a_limit_is_one_of_the_median_and_may_be_exceeded_by_the_slow_end(
    days: float | None, words: list[str]
) -> None:
    limits = RunLimits(days=days, budget_usd=None)
    answer = SimpleNamespace(
        run=SimpleNamespace(request=SimpleNamespace(limits=limits)),
        best={"training_seconds": 10 * 86_400, "step_seconds": 1.0},
        own_count={"cost_usd": None},
        uncertainty=SimpleNamespace(likely=(0.9, 1.2)),
    )
    assert limits_in_words(cast("PlanAnswer", answer)) == words
    answer.uncertainty.likely = None
    unknown = [line.partition(";")[0] for line in words]
    assert limits_in_words(cast("PlanAnswer", answer)) == unknown


@pytest.mark.parametrize(
    ("usd", "exceeded"), [(100, "both"), (130, "--days")], ids=["both", "the days alone"]
)
def test_two_limits_are_one_sentence(usd: float, exceeded: str) -> None:
    limits = RunLimits(days=11, budget_usd=usd)
    answer = SimpleNamespace(
        run=SimpleNamespace(request=SimpleNamespace(limits=limits)),
        best={"training_seconds": 10 * 86_400, "step_seconds": 1.0},
        own_count={"cost_usd": 100},
        uncertainty=SimpleNamespace(likely=(0.9, 1.2)),
    )
    said = f"--days 11 and --budget-usd {usd} limit the median; the slow end exceeds {exceeded}"
    assert limits_in_words(cast("PlanAnswer", answer)) == [said]


# ---- in a browser ----


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=list(OFFLINE))
        yield opened
        opened.close()


@pytest.fixture
def opened(browser: Browser, report: Path) -> Iterator[Callable[[int, Any], Page]]:
    """Open the report offline; at the end check that it printed no error and asked for nothing."""
    seen: list[str] = []
    contexts = []

    def opened(width: int, scheme: Any) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("request", lambda request: seen.append(request.url))
        page.goto(report.as_uri())
        page.wait_for_selector(f"html[data-drawn={scheme}]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert set(seen) == {report.as_uri()}


class TestInABrowser:
    pytestmark = IN_A_BROWSER

    @pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
    def test_charts_are_drawn_and_fit(
        self, width: int, scheme: str, opened: Callable[[int, Any], Page]
    ) -> None:
        page = opened(width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for name in ("parts", "constants", "errors"):
            chart = page.locator(f"#chart-{name} svg")
            box = chart.bounding_box()
            assert box
            assert box["width"] <= width
            assert chart.locator(".mark-rect path").count() > 2
        light, dark = (
            page.evaluate(f"getComputedStyle(document.{place}).color")
            for place in ("documentElement", "querySelector('h1')")
        )
        assert light == dark == ("rgb(26, 26, 26)" if scheme == "light" else "rgb(236, 236, 236)")

    def test_a_mark_has_a_tooltip(self, opened: Callable[[int, Any], Page]) -> None:
        page = opened(1280, "light")
        page.locator("#chart-errors .mark-rect path").first.hover()
        tooltip = page.locator("#vg-tooltip-element.visible")
        tooltip.wait_for()
        assert tooltip.locator("td.value").count() > 1

    def test_the_policy_keeps_strange_scripts_and_addresses_out(
        self, browser: Browser, report: Path
    ) -> None:
        context = browser.new_context(offline=True)
        page = context.new_page()
        requests: list[str] = []
        refused: list[str] = []
        page.on("requestfinished", lambda request: requests.append(request.url))
        page.on("console", lambda message: refused.append(message.text))
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-drawn]")
        for evil in (
            "document.body.append(Object.assign(document.createElement('script'), "
            "{textContent: 'window.evil = 1'}))",
            "document.body.setAttribute('onclick', 'window.evil = 1'); document.body.click()",
            "new Image().src = 'https://example.com/evil.png'",
            "fetch('https://example.com/').catch(() => null)",
        ):
            refused.clear()
            page.evaluate(evil)
            assert page.evaluate("window.evil") is None, evil
            assert requests == [report.as_uri()], evil
            assert "Content Security Policy" in " ".join(refused), evil
        context.close()

    def test_a_heading_sorts_and_words_filter(self, opened: Callable[[int, Any], Page]) -> None:
        page = opened(1280, "light")
        rows = "[...document.querySelectorAll('#near tbody tr')]"
        steps = f"{rows}.map(row => Number(row.cells[2].dataset.value))"
        first = page.evaluate(steps)
        assert first == sorted(first)
        heading = page.locator("#near th button").nth(2)
        heading.click()
        heading.click()
        assert page.evaluate(steps) == sorted(first, reverse=True)
        page.fill("#filter", "tp1 dp8")
        shown = page.locator("#near tbody tr:visible td:nth-child(2)").all_text_contents()
        assert shown
        assert all({"tp1", "dp8"} <= set(text.split()) for text in shown)
        assert page.text_content("#shown") == f"{len(shown)} of {len(first)}"

    def test_sliders_compute_the_run_anew(
        self,
        opened: Callable[[int, Any], Page],
        planned: tuple[Path, dict[str, Any], str],
    ) -> None:
        page = opened(1280, "light")

        def results() -> dict[str, float]:
            pairs = page.locator("#results div").all()
            texts = [(pair.locator("dt"), pair.locator("dd")) for pair in pairs]
            return {
                str(name.text_content()): float(str(value.text_content()).replace(",", ""))
                for name, value in texts
            }

        hours, energy = planned[1]["gpu_hours"], planned[1]["energies"][0]
        found = results()
        assert found["GPU-hours"] == pytest.approx(hours, rel=1e-3)
        assert found["Rent, USD"] == pytest.approx(hours * 2.5, rel=1e-3)
        assert found["Energy, MWh"] == pytest.approx(energy["energy_kwh"] / 1000, rel=1e-3)
        page.locator("input[name=price]").fill("5")
        page.locator("input[name=goodput]").fill("0.5")
        changed = results()
        assert changed["Rent, USD"] == pytest.approx(4 * found["Rent, USD"], rel=1e-3)
        assert changed["Days"] == pytest.approx(2 * found["Days"], rel=1e-3)
        page.locator("button[type=reset]").click()
        page.wait_for_function("document.querySelector('input[name=price]').value === '2.5'")
        assert results() == found

    def test_a_launch_file_is_copied(self, opened: Callable[[int, Any], Page]) -> None:
        page = opened(1280, "light")
        page.locator("summary", has_text="Megatron-LM").click()
        button = page.locator("button.copy").first
        button.click()
        page.wait_for_function(
            "/^(Copied|Selected)/.test(document.querySelector('.copy').textContent)"
        )

    def test_it_prints(self, opened: Callable[[int, Any], Page]) -> None:
        page = opened(1280, "dark")
        printed = page.pdf(format="A4")
        assert printed.startswith(b"%PDF")
        assert len(printed) > 20_000
