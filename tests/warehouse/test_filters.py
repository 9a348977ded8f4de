"""Filters of queries reach the scans of stored rows: of other models, few are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.warehouse.large_study import LARGE
from tests.warehouse.scans import rows_read
from warehouse.database.connection import open_for_write
from warehouse.database.resources import sql_directory
from warehouse.studies.study import load_study
from warehouse.sweep.runner import run_study

if TYPE_CHECKING:
    from pathlib import Path

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
