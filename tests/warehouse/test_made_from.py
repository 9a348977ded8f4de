"""Rows that follow from others are made again where what they are made from changed, not else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from estimators.columns import COLUMNS
from estimators.registry import all_estimators
from warehouse.database import made_from as module
from warehouse.database.made_from import made_from
from warehouse.database.resources import reference_directory, sql_directory

PRICE, PROBLEM, ORDER = "found_price", "found_problem", "cell_order"
BEST, FRONT = "unstored_best", "found_front"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Copies of the SQL and the reference tables, as keywords of `made_from`."""
    shutil.copytree(sql_directory(), tmp_path / "sql")
    shutil.copytree(reference_directory(), tmp_path / "reference")
    return {"sql": tmp_path / "sql", "reference": tmp_path / "reference"}


def replaced(path: Path, text: str, other: str) -> None:
    before = path.read_text("utf-8")
    assert text in before
    path.write_text(before.replace(text, other, 1), "utf-8")


def test_only_what_decides_rows_changes_their_hash(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = made_from(all_estimators(), **files)
    seen = [before]

    def changed() -> set[str]:
        seen.append(made_from(all_estimators(), **files))
        return {name for name in before if seen[-1][name] != seen[-2][name]}

    assert before.keys() == {PRICE, PROBLEM, ORDER, BEST, FRONT}
    assert made_from(all_estimators()) == before  # wherever the files are

    sql, reference = files["sql"], files["reference"]
    replaced(sql / "intermediate" / "found_problem.sql", "-- Grain: one", "-- Grain: just one")
    replaced(sql / "macros.sql", "\n--", "\n-- In other words.\n--")
    replaced(sql / "marts" / "near_optimal.sql", "\nselect\n", "\nselect 1 as one,\n")
    replaced(reference / "goodput.csv", "\n", "\n\n")
    assert changed() == set()
    replaced(reference / "gpu_hour_price.csv", "\n", "\n\n")
    assert changed() == {PRICE}

    replaced(sql / "staging" / "stg_roofline.sql", "\nselect\n", "\nselect 1 as one,\n")
    assert changed() == {BEST, FRONT}
    replaced(
        sql / "macros.sql", "macro layout_order(layout) as", "macro layout_order(layout) as 0 +"
    )
    assert changed() == {BEST, FRONT}
    replaced(reference / "model.csv", "\n", "\n\n")
    assert changed() == {PROBLEM}
    replaced(reference / "interval_term.csv", "\n", "\n\n")
    assert changed() == {BEST, FRONT}
    replaced(sql / "intermediate" / "problem_model.sql", "\nselect\n", "\nselect 1 as one,\n")
    assert changed() == {PROBLEM}

    with monkeypatch.context() as patched:
        patched.setattr(module, "TOP", 21)
        assert BEST in changed()
    assert BEST in changed()
    # a column of the table of problems, which `found_problem` writes into its texts
    monkeypatch.setitem(COLUMNS, "hbm_bytes", COLUMNS["num_gpus"])
    assert changed() >= {PROBLEM, ORDER}
