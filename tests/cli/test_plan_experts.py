"""`warehouse plan` of a mixture: the best layout of each degree of expert parallelism."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import duckdb
import pytest

from tests.shared import Command

pytestmark = pytest.mark.usefixtures("same_answers")

SHAPE = ("num_layers=4", "hidden_size=1024", "num_heads=8", "seq_len=1024", "vocab_size=32000")
EXPERTS = ("num_experts=4", "experts_per_token=2", "expert_ffn_hidden_size=2048")
RUN = ("--accelerator", "H100", "--tokens", "1G", "--gpus", 4, "--batch", 16)
HELD = ("tensor_parallel=1", "context_parallel=1", "pipeline_parallel=1")
MIXTURE = (*RUN, *SHAPE, *EXPERTS, *HELD)


def test_each_degree_has_its_fastest_layout(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    asked = (*MIXTURE, "--db", database)
    code, out, err = warehouse("plan", *asked, "--json")
    assert code == 0, err
    plan = json.loads(out)
    degrees = plan["expert_degrees"]
    with duckdb.connect(str(database), read_only=True) as connection:
        fastest = connection.execute(
            "select expert_parallel, min(step_seconds) from configuration"
            " where num_gpus = 4 and fits_memory group by all order by all"
        ).fetchall()
    assert [(one["expert_parallel"], one["step_seconds"]) for one in degrees] == fastest
    assert [degree for degree, _ in fastest] == [1, 2, 4]
    best = plan["layouts"][0]
    [own] = [one for one in degrees if one["expert_parallel"] == best["expert_parallel"]]
    assert own == {name: best[name] for name in own}

    code, out, err = warehouse("plan", *asked, "--details")
    assert code == 0, err
    table = out.split("degree of expert parallelism (EP)\n\n")[1].split("\n\n")[0]
    head, _, *lines = table.splitlines()
    assert " ".join(head.split()) == "EP step s more time % memory GB layout"
    for line, one in zip(lines, degrees, strict=True):
        more = 100 * (one["step_seconds"] / best["step_seconds"] - 1)
        assert line.split()[0] == str(one["expert_parallel"])
        assert line.split()[2] == f"{more:.1f}"
        assert f"dp{one['data_parallel']} tp1 " in line

    code, _, err = warehouse("report", *asked, "--out", tmp_path / "plan.html")
    assert code == 0, err
    page = re.sub(r"<[^>]+>", " ", (tmp_path / "plan.html").read_text("utf-8"))
    words = " ".join(html.unescape(page).split())
    assert "degree of expert parallelism (ep) EP step s more time %" in words


@pytest.mark.parametrize(
    "held", [("expert_parallel=2",), pytest.param(("num_experts=1",), marks=pytest.mark.long)]
)
def test_one_degree_is_compared_with_none(
    warehouse: Command, database: Path, held: tuple[str, ...]
) -> None:
    experts = EXPERTS if held == ("expert_parallel=2",) else ()
    asked = ("plan", *RUN, *SHAPE, *experts, *HELD, *held, "--db", database)
    code, out, err = warehouse(*asked, "--json")
    assert code == 0, err
    plan = json.loads(out)
    assert plan["expert_degrees"] == []
    assert "expert_degrees" not in plan["queries"]
    assert "degree of expert parallelism" not in warehouse(*asked, "--details")[1]


@pytest.mark.long
def test_every_degree_leaves_the_headroom(warehouse: Command, database: Path) -> None:
    code, out, err = warehouse("plan", *MIXTURE, "--json", "--headroom-gb", 79, "--db", database)
    assert code == 0, err
    degrees = json.loads(out)["expert_degrees"]
    assert degrees
    assert all(one["memory_bytes"] <= 85.6e9 - 79e9 for one in degrees)
