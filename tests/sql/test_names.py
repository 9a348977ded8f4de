"""Table macros take names as commands do, and refuse those that are nobody's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.sql.test_sql_cases import CASES, complete, fill, tables_of
from warehouse.database.connection import open_for_write
from warehouse.database.problem_facts import refresh_problems

SHELL = Path(sys.executable).parent / "duckdb"
KINDS = "names no model or accelerator or problem or cell that is stored or known"
REFUSED = [
    (
        "best('megatron_17B', 4)",
        '`asked_model` "megatron_17B": names no model that is stored or known',
        "hint: did you mean megatron_1.7B, megatron_175B,",
    ),
    # nothing has 3 GPUs: the name is looked at all the same
    ("best('nosuch', 3)", '`asked_model` "nosuch": names no model', "hint: known: "),
    ("name_asked('asked_model', 1, ['model'])", '`asked_model` "1": names no model', "hint: "),
    ("best(null, null)", "`asked_model` NULL: names no model", "hint: known: "),
    ("name_asked('asked_model', 'Big', ['model'])", '`asked_model` "Big": names no', "hint: "),
    ("best('tiny', -4)", "`asked_num_gpus` -4: must be at least 1", ""),
    ("compare(2, 4711)", f'`second_name` "4711": {KINDS}', "hint: "),
    ("compare('nosuch', 'tiny')", f'`first_name` "nosuch": {KINDS}', "hint: "),
    (
        "name_asked('first_name', 'H10', ['model', 'accelerator'])",
        '`first_name` "H10": names no model or accelerator',
        "hint: did you mean H100 SXM 80GB",
    ),
    ("compare(null, null)", f"_name` NULL: {KINDS}", "hint: "),
    ("compare('tiny', 'Big')", '`second_name` "Big": is not what `first_name` "tiny" is', ""),
    ("training_run('gpt9', 250, 3)", '`asked_model` "gpt9": names no model', "did you mean gpt3"),
    ("training_run('tiny', -5, 4)", "`asked_tokens` -5: must be a number above 0", ""),
    ("training_run('tiny', 250, 0)", "`asked_num_gpus` 0: must be at least 1", ""),
    (
        "system_comparison_for(250, base_accelerator := 'H900')",
        '`base_accelerator` "H900": names no accelerator that is stored or known',
        "hint: did you mean H100",
    ),
]


@pytest.fixture(scope="module")
def filled_file(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The problems and layouts of the case `compare`, and the packaged reference tables."""
    path = shutil.copyfile(empty_warehouse, tmp_path_factory.mktemp("names") / "warehouse.duckdb")
    with open_for_write(path) as connection:
        for table in ("problem", "cell", "roofline", "pipeline"):
            fill(connection, table, tables_of(CASES / "compare")[table])
        complete(connection)
    return path


@pytest.fixture(scope="module")
def _opened(filled_file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_for_write(filled_file) as connection:
        yield connection


@pytest.fixture
def stored(_opened: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection whose changes are rolled back."""
    _opened.begin()
    yield _opened
    _opened.rollback()


@pytest.mark.parametrize(("call", "expected", "hint"), REFUSED)
@pytest.mark.long
def test_the_refusal_of_an_unknown_name_has_similar_names(
    stored: duckdb.DuckDBPyConnection, call: str, expected: str, hint: str
) -> None:
    with pytest.raises(duckdb.Error) as caught:
        stored.execute(f"from {call}").fetchall()
    assert expected in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.long
def test_the_shell_of_duckdb_1_refuses_the_same(filled_file: Path, tmp_path: Path) -> None:
    database = shutil.copyfile(filled_file, tmp_path / "warehouse.duckdb")
    asked = list({call.partition("(")[0]: case for case in REFUSED for call in case[:1]}.values())
    script = "".join(f"from {call};\n" for call, _, _ in asked)
    command = [str(SHELL), "-readonly", str(database)]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    _, *errors = re.split(r"^(?=[\w ]*Error)", done.stderr, flags=re.MULTILINE)
    for (call, expected, hint), error in zip(asked, errors, strict=True):
        assert expected in error, call
        assert hint in error, call


@pytest.mark.long
def test_a_model_that_is_known_and_not_stored_has_no_row(
    stored: duckdb.DuckDBPyConnection,
) -> None:
    for call in ("best('llama3 70b', null)", "training_run('LLAMA3-70B', 1e12, null)"):
        assert stored.execute(f"from {call}").fetchall() == []


@pytest.mark.long
def test_an_alias_finds_the_accelerator_that_problems_are_stored_under(
    stored: duckdb.DuckDBPyConnection,
) -> None:
    stored.execute("update problem set accelerator = 'H100 SXM 80GB' where accelerator = 'Big'")
    query = "select other_best_step_seconds from compare('Mid', '{}') order by all"
    expected = [(3,), (8,)]  # as the case compare has them of Big
    for spelling in ("H100", "h100-sxm-80gb"):
        assert stored.execute(query.format(spelling)).fetchall() == expected


@pytest.mark.long
def test_capitals_of_a_stored_name_count_only_where_two_names_differ_in_them(
    stored: duckdb.DuckDBPyConnection,
) -> None:
    query = "select distinct model from best('{}', null)"
    assert stored.execute(query.format("Tiny")).fetchall() == [("tiny",)]
    stored.execute("update problem set model = 'Tiny' where problem_id = 4")
    stored.execute("delete from stored_problem")
    refresh_problems(stored)
    assert stored.execute(query.format("tiny")).fetchall() == [("tiny",)]
    assert stored.execute(query.format("Tiny")).fetchall() == [("Tiny",)]
    with pytest.raises(duckdb.Error, match="TINY"):
        stored.execute(query.format("TINY")).fetchall()
