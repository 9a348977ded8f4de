"""The answer of a plan in a few lines: nobody has to look for it in the tables below."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.planning import QUESTION
from tests.shared import Command

Planned = tuple[Path, dict[str, Any], str]


def lines_of(out: str) -> dict[str, str]:
    """Return the lines of the answer by their names."""
    block = out.split("The best layout on 8 GPUs\n\n")[1].split("\n\n")[0]
    return {line[2:11].strip(): line[13:] for line in block.splitlines()}


def test_the_answer_comes_before_the_tables_and_has_their_figures(
    warehouse: Command, planned: Planned
) -> None:
    database, found, _ = planned
    code, out, _ = warehouse("plan", *QUESTION, "--gpus", 8, "--db", database)
    assert code == 0
    lines = lines_of(out)
    assert list(lines) == ["layout", "time", "cost", "energy", "memory", "accuracy"]
    best = found["layouts"][0]
    assert f"tp{best['tensor_parallel']}" in lines["layout"] or best["tensor_parallel"] == 1
    assert f"; {best['step_seconds']:.3g} s a step" in lines["time"]
    assert "nine times in ten" in lines["time"]
    [on_demand] = [line for line in found["costs"] if line["basis"] == "on_demand"]
    assert lines["cost"] == (
        f"{on_demand['cost_usd']:,.0f} USD at {on_demand['usd_per_gpu_hour']:.2f} USD per GPU-hour "
        f"(on demand, {on_demand['year']})"
    )
    assert lines["memory"].startswith(f"{best['memory_bytes'] / 1e9:.1f} of ")


@pytest.mark.long
def test_the_worst_group_of_published_steps_is_named(warehouse: Command, planned: Planned) -> None:
    _, found, _ = planned
    own = [line for line in found["errors"] if not line["published_group"].startswith("other")]
    errors = {
        line["published_group"]: line["time_mean_absolute_relative_error"]
        for line in own
        if not line["published_group"].startswith("its own")
    }
    worst = max(errors, key=lambda name: errors[name])
    out = warehouse("plan", *QUESTION, "--gpus", 8, "--db", planned[0])[1]
    said = re.fullmatch(
        r"mean error of the time on ([\d,]+) published steps in (\d+) groups: "
        r"([\d.]+) % in the middle one, (\d+) % in the worst \((.*)\)",
        lines_of(out)["accuracy"],
    )
    assert said
    rows, groups, middle, most, name = said.groups()
    assert int(rows.replace(",", "")) == sum(line["num_rows"] for line in own)
    assert int(groups) == len(own)
    assert (int(most), name) == (round(100 * errors[worst]), worst)
    assert 0 < float(middle) < int(most)


@pytest.mark.long
def test_each_price_and_grid_that_is_given_has_its_figure(
    warehouse: Command, planned: Planned
) -> None:
    database, found, _ = planned
    given = ("--price", 2, "--price", 4, "--carbon", "france", "--carbon", 0.5)
    code, out, err = warehouse("plan", *QUESTION, "--gpus", 8, *given, "--db", database)
    assert code == 0, err
    lines = lines_of(out)
    hours = found["layouts"][0]["gpu_hours"]
    assert lines["cost"] == "; ".join(
        f"{price * hours:,.0f} USD at {price:.2f} USD per GPU-hour (given)" for price in (2, 4)
    )
    assert re.fullmatch(
        r"[\d.]+ MWh; [\d.]+ t CO2e on grid France; [\d.]+ t CO2e on grid given", lines["energy"]
    )
    table = out.split("Cost of the best layout\n\n")[1].split("\n\n")[0].splitlines()[2:]
    assert [line.split()[1] for line in table] == ["2.00", "4.00"]


def test_a_budget_is_compared_with_one_price(warehouse: Command, database: Path) -> None:
    prices = ("--price", 2, "--price", 4, "--budget-usd", "1M")
    code, out, err = warehouse("plan", *QUESTION, *prices, "--db", database)
    assert (code, out) == (2, "")
    assert "`--budget-usd` is compared with one price" in err
