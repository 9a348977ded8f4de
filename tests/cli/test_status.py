"""`warehouse status`: the stored studies, and the progress of a running sweep."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from tests.shared import Command, Quickstart

HOLD = """
import sys
from pathlib import Path
from warehouse.database.connection import open_for_write
from warehouse.sweep import progress as module
from warehouse.sweep.progress import Progress, ProgressFile
module.INTERVAL_SECONDS = 0
path = Path(sys.argv[1])
with open_for_write(path):
    if sys.argv[2] == "sweeping":
        progress = Progress("big", total_rows=1000, total_cells=10)
        with ProgressFile(path, progress) as file:
            file.add_cells(2)
            file.add_rows(250)
            print("ready", flush=True)
            sys.stdin.read()
    else:
        print("ready", flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def held() -> Iterator[Callable[[Path, str], int]]:
    """Have another process hold a database, as a sweep or silently."""
    processes = []

    def held(database: Path, how: str) -> int:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(database), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        return holder.pid

    yield held
    for process in processes:
        process.communicate("")


def test_studies_and_rows_are_shown(warehouse: Command, quickstart: Quickstart) -> None:
    code, out, err = warehouse("status", "--db", quickstart.database)
    assert code == 0
    assert "no sweep is running" in err
    assert "357,552" in out
    assert "megatron" in out


def test_json_has_the_same_figures(warehouse: Command, quickstart: Quickstart) -> None:
    code, out, err = warehouse("status", "--json", "--db", quickstart.database)
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["running"] is None
    assert found["bytes"] == quickstart.database.stat().st_size
    with duckdb.connect(str(quickstart.database), read_only=True) as connection:
        query = "select count(*) from study where starts_with(study, 'plan ')"
        assert (found["plan_cache"]["questions"],) == connection.execute(query).fetchone()
    assert found["plan_cache"]["questions"] > 0
    assert found["plan_cache"]["rows"] > 0
    assert found["plan_cache"]["most_bytes"] == 2_000_000_000
    swept = [study["study"] for study in found["studies"]]
    assert swept == [
        *("gpt3_1T_1d", "megatron", "megatron_flops_published", "published_measurement"),
        *("roofline_published", "training_step_published"),
    ]
    assert all(study["num_cells"] == study["num_cells_done"] for study in found["studies"])
    of_studies = sum(study["num_rows"] for study in found["studies"])
    stored = sum(relation["rows"] for relation in found["relations"])
    assert stored == of_studies + found["plan_cache"]["rows"]


def test_superseded_rows_are_counted_apart(
    warehouse: Command, quickstart: Quickstart, tmp_path: Path
) -> None:
    assert "superseded" not in warehouse("status", "--db", quickstart.database)[1]
    database = Path(shutil.copy(quickstart.database, tmp_path / "old.duckdb"))
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "update cell set is_superseded = true where cell_id in"
            " (select cell_id from study_cell where study = 'megatron')"
        )
    found = json.loads(warehouse("status", "--json", "--db", database)[1])
    rows = {study["study"]: study for study in found["studies"]}
    assert rows["megatron"]["superseded_rows"] == rows["megatron"]["num_rows"] > 0
    assert rows["gpt3_1T_1d"]["superseded_rows"] == 0
    assert (
        sum(relation["superseded_rows"] for relation in found["relations"])
        == (rows["megatron"]["num_rows"])
    )
    assert "superseded" in warehouse("status", "--db", database)[1]


def test_a_running_sweep_answers_from_its_progress_file(
    warehouse: Command, swept: Path, held: Callable[[Path, str], int]
) -> None:
    pid = held(swept, "sweeping")
    code, out, err = warehouse("status", "--db", swept)
    assert code == 0
    assert f"process {pid} is sweeping" in err
    assert "750 rows left" in err
    assert "250" in out
    assert "1,000" in out
    running = json.loads(warehouse("status", "--json", "--db", swept)[1])["running"]
    assert (running["rows"], running["cells"], running["pid"]) == (250, 2, pid)


def test_a_database_in_use_by_another_program_exits_5(
    warehouse: Command, swept: Path, held: Callable[[Path, str], int]
) -> None:
    pid = held(swept, "silent")
    for command in (["status"], ["rank"], ["sql", "select 1"], ["sweep", "megatron"], ["init"]):
        code, out, err = warehouse(*command, "--wait", 0, "--db", swept)
        assert (code, out) == (5, "")
        assert err.startswith(f"error: {swept}: is in use by process {pid} (`")
        assert "`, runs for " in err


def test_the_progress_file_of_a_killed_sweep_is_not_believed(
    warehouse: Command, swept: Path
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    progress = {"pid": gone.pid, "study": "big", "rows": 1, "total_rows": 2}
    swept.with_name(swept.name + ".progress.json").write_text(json.dumps(progress))
    code, _, err = warehouse("status", "--db", swept)
    assert code == 0
    assert "no sweep is running" in err


def test_one_study_is_shown_with_its_values(warehouse: Command, quickstart: Quickstart) -> None:
    code, out, err = warehouse("status", "Megatron", "--json", "--db", quickstart.database)
    assert (code, err) == (0, "")
    found = json.loads(out)
    with duckdb.connect(str(quickstart.database), read_only=True) as connection:
        cells, rows = connection.execute(
            "select count(*), sum(num_rows) from cell semi join "
            "(from study_cell where study = 'megatron') using (cell_id)"
        ).fetchall()[0]
    assert (found["study"], found["num_cells_done"], found["num_rows"]) == ("megatron", cells, rows)
    assert found["estimator_versions"]
    assert found["definition"]["estimator"] == found["estimator"] == "roofline"
    out = warehouse("status", "megatron", "--db", quickstart.database)[1]
    assert f"num rows                {rows:,}" in out
    code, _, err = warehouse("status", "megatronn", "--db", quickstart.database)
    assert code == 3
    assert "hint: did you mean megatron" in err


def test_a_question_of_a_plan_is_found_by_its_digits(
    warehouse: Command, quickstart: Quickstart, tmp_path: Path
) -> None:
    path = shutil.copyfile(quickstart.database, tmp_path / "w.duckdb")
    with duckdb.connect(str(path), read_only=True) as connection:
        query = "select study from study where starts_with(study, 'plan ') order by created_at"
        (name,), *_ = connection.execute(query).fetchall()
    digits = name.split()[-1]
    asked = ("--json", "--db", path)
    assert json.loads(warehouse("status", digits, *asked)[1])["study"] == name
    ranked = json.loads(warehouse("rank", "--study", digits, *asked)[1])
    assert {row["model"] for row in ranked} == {"megatron_1.7B"}
    costs = json.loads(warehouse("cost", "--study", digits, "--tokens", "1T", *asked)[1])
    assert {row["model"] for row in costs} == {"megatron_1.7B"}
    code, _, err = warehouse("rank", "--study", digits, "--model", "llama3_8B", "--db", path)
    assert code == 3
    assert f"no configuration is stored with study {name}, estimator training_step" in err
    with duckdb.connect(str(path)) as connection:
        # as an older package named the same question
        other = (f"plan {digits}", '{"spaces": [{"hbm_bytes": [80e9, 141e9]}]}')
        query = "select * replace (? as study, ? as definition) from study where study = ?"
        connection.execute(f"insert into study {query}", [*other, name])
    shown = warehouse("status", other[0], "--db", path)[1]
    assert "hbm_bytes               80.0 GB, 141.0 GB" in shown
    code, _, err = warehouse("drop", digits, "--db", path)
    assert (code, err) == (
        3,
        f'error: `study` "{digits}": 2 stored studies match\n'
        f"hint: give the whole name:\n    {name}\n    plan {digits}\n",
    )
    for command in ("status", "drop"):
        code, _, err = warehouse(command, "nothing alike", "--db", path)
        assert code == 3
        assert "the six digits at the end of a plan's name are enough" in err
        assert name not in err  # questions are in no list of studies
    assert "dropped plan " in warehouse("drop", f"plan {digits}", "--db", path)[2]
    assert "dropped plan " in warehouse("drop", digits, "--db", path)[2]
    assert warehouse("status", digits, "--db", path)[0] == 3
