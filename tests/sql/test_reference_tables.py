"""What holds for the packaged reference tables beyond the checks of sql/checks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import duckdb
import pytest

from estimators.registry import all_estimators
from warehouse import resources
from warehouse.catalog import packaged_catalog

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted(resources.reference_directory().glob("*.csv"))


def test_what_a_system_assumes_are_values_it_has() -> None:
    for record in packaged_catalog().tables["system"].values():
        assumed = str(record["assumed"] or "").split(";")
        assert all(record[name] is not None for name in assumed if name), record


def test_every_attribute_an_estimator_takes_of_a_system_is_given() -> None:
    for record in packaged_catalog().tables["system"].values():
        for estimator in all_estimators():
            if estimator.search is not None:
                names = set(estimator.search.system_columns) & set(record)
                assert names
                assert all(record[name] is not None for name in names)


def test_every_mend_is_explained(warehouse_connection: duckdb.DuckDBPyConnection) -> None:
    for estimator in all_estimators():
        rows = warehouse_connection.execute(
            "select erratum from erratum where estimator = ? and is_mended", [estimator.name]
        ).fetchall()
        assert set(estimator.mends) <= {erratum for (erratum,) in rows}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_source_is_a_publication_not_a_local_file(path: Path) -> None:
    assert not re.search(r"[0-9a-f]{16}\.txt|/(work|tmp|home)/", path.read_text("utf-8"))
