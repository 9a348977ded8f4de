"""Filters of queries reach the scans of stored rows: of other models, few are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.warehouse.large_study import LARGE
from tests.warehouse.scans import rows_read
from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.resources import sql_directory
from warehouse.studies.study import load_study
from warehouse.sweep.runner import run_study

if TYPE_CHECKING:
    from tests.shared import Quickstart

SHELL = Path(sys.executable).parent / "duckdb"

STUDIES = (
    """
name = "small"
estimator = "roofline"
[space]
model = "gpt3"
accelerator = "B200"
nvlink_size = 8
num_gpus = 8
global_batch_size = 512
""",
    LARGE,
)


@pytest.mark.long
def test_a_filter_on_the_model_reaches_the_scans_of_every_mart(
    database: Path, tmp_path: Path
) -> None:
    for number, text in enumerate(STUDIES):
        path = tmp_path / f"{number}.toml"
        path.write_text(text)
        run_study(database, load_study(path))
    with open_for_write(database) as connection:
        # each thread takes a block before it knows that none is wanted
        connection.execute("set threads = 1")
        [(rows,)] = connection.execute("select count(*) from roofline").fetchall()
        marts = [path.stem for path in (sql_directory() / "marts").glob("*.sql")]
        named = connection.execute(
            "select view_name from duckdb_views() semi join duckdb_columns() as columns"
            " on view_name = table_name and column_name = 'model' where view_name in $marts",
            {"marts": marts},
        ).fetchall()
        read = {
            mart: rows_read(connection, f"from {mart} where model = 'gpt3'").get("roofline", 0)
            for (mart,) in named
        }
        unfiltered = rows_read(connection, "from configuration")["roofline"]
    assert unfiltered >= rows
    assert len(read) > 20
    assert {mart: number for mart, number in read.items() if number > rows / 6} == {}


def test_the_shell_of_duckdb_1_reads_the_measured_cells_alone(
    quickstart: Quickstart, tmp_path: Path
) -> None:
    """It filters a scan by many cells only if they are read under a condition."""
    profile = tmp_path / "profile.json"
    script = (
        "set threads = 1; pragma enable_profiling = 'json'; "
        f"pragma profiling_output = '{profile}'; "
        "select count(step_seconds) from configuration semi join measured_cell using (cell_id);"
    )
    command = [str(SHELL), "-readonly", "-csv", "-bail", str(quickstart.database), script]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    shown = int(found.stdout.split()[-1])
    with open_for_read(quickstart.database) as connection:
        [(all_rows,)] = connection.execute("select count(*) from roofline").fetchall()

    nodes = [json.loads(profile.read_text("utf-8"))]
    for node in nodes:  # grows while it is walked
        nodes.extend(node["children"])
    rows = max(
        node["operator_cardinality"]
        for node in nodes
        if node.get("extra_info", {}).get("Table", "").endswith(".roofline")
    )
    assert 0 < shown < all_rows / 4
    assert 0 < rows < all_rows / 4
