"""Hostile input: refused quickly, in a few lines, without a traceback."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from estimators.contract import Refusal, RefusedError
from tests.shared import Command
from warehouse import Warehouse
from warehouse.database.copies import backup
from warehouse.errors import LONGEST_MESSAGE, MAX_SHOWN, DatabaseError, InputError, UsageError
from warehouse.files import check_target
from warehouse.studies.toml_files import MAX_BYTES

NOT_TEXT = "\udcff"
"""The byte FF as Python has it on a command line."""


@pytest.mark.parametrize(
    "arguments",
    [
        ("why", f"model={NOT_TEXT}"),
        ("show", "--estimator", "roofline", f"{NOT_TEXT}=gpt3"),
        ("plan", "--model", NOT_TEXT, "--tokens", "1e12", "--gpus", "8"),
        ("export", "select 1", "--out", f"{NOT_TEXT}.csv"),
        ("sql", "select 1", "--db", f"{NOT_TEXT}.duckdb"),
    ],
)
def test_an_argument_that_is_no_text_is_wrong_usage(
    warehouse: Command, arguments: tuple[str, ...]
) -> None:
    number = next(i for i, text in enumerate(arguments, 1) if NOT_TEXT in text)
    code, out, err = warehouse(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: argument {number}, '")
    assert "is not UTF-8 text\nhint: " in err


@pytest.mark.parametrize("mark", ["\0", "\x07", "\x1b", "\x85"])
def test_an_argument_with_a_control_character_is_wrong_usage(
    warehouse: Command, empty_warehouse: Path, mark: str
) -> None:
    code, out, err = warehouse("rank", "--model", f"gpt3{mark}", "--db", empty_warehouse)
    assert (code, out) == (2, "")
    shown = repr(mark)[1:-1]
    assert err.startswith(
        f"error: argument 3, 'gpt3{shown}', has the control character {shown}\nhint: "
    )


def test_a_query_may_have_several_lines(warehouse: Command, empty_warehouse: Path) -> None:
    code, out, _ = warehouse("sql", "select 1\n\tas a\r\n", "--json", "--db", empty_warehouse)
    assert (code, out) == (0, '[\n{"a": 1}\n]\n')


def test_python_refuses_control_characters_as_well(empty_warehouse: Path) -> None:
    warehouse = Warehouse(empty_warehouse)
    layout: dict[str, Any] = {"model": "gpt3_1.3B", "accelerator": "A100 SXM 80GB", "num_gpus": 8}
    faulty = {**layout, "global_batch_size": 64, "framework": "fsdp\0"}
    reason = r"`framework` \"fsdp\\x00\" has the control character \\x00"
    with pytest.raises(InputError, match=reason):
        warehouse.why(**faulty)
    with pytest.raises(InputError, match=reason):
        warehouse.explain(**faulty)
    with pytest.raises(InputError, match=f"frame: row 1: {reason}"):
        warehouse.evaluate("training_step", pl.DataFrame([faulty]))
    with pytest.raises(UsageError, match=r"`model` 'gpt3\\x00' has the control character \\x00"):
        warehouse.rank(model="gpt3\0")
    study = {"name": "a", "estimator": "training_step", "space": layout, "description": "a\x07"}
    with pytest.raises(InputError, match=r"`description` \"a\\x07\" has the control character"):
        Warehouse(empty_warehouse, writable=True).sweep(study)


def test_python_refuses_control_characters_in_every_argument(empty_warehouse: Path) -> None:
    warehouse = Warehouse(empty_warehouse, writable=True)
    num_texts = 0
    for called, method in inspect.getmembers(warehouse, inspect.ismethod):
        parameters = inspect.signature(method).parameters.values() if called[0] != "_" else ()
        needed = {
            one.name: "x"
            for one in parameters
            if one.default is one.empty and one.kind is not one.VAR_KEYWORD
        }
        for one in parameters:
            if one.kind in (one.POSITIONAL_ONLY, one.VAR_KEYWORD):
                continue
            if "str" in str(one.annotation) or one.name == "frame":
                with pytest.raises(UsageError, match=rf"`{one.name}` 'a\\x07' has the control"):
                    method(**{**needed, one.name: "a\x07"})
                num_texts += 1
    assert num_texts > 50
    for ask in (warehouse.sql, warehouse.execute, warehouse.relation):
        with warehouse, pytest.raises(InputError, match=r"the query has the control character"):
            ask("select 1 as a\x1b")
    with pytest.raises(UsageError, match=r"`carbon` 'a\\x00' has the control character"):
        warehouse.energy(carbon=["a", "a\0"])
    with pytest.raises(UsageError, match=r"`path` 'a\\x07' has the control character"):
        Warehouse("a\x07")


def test_python_refuses_control_characters_of_frames_and_escapes_its_remarks(
    empty_warehouse: Path,
) -> None:
    layout = {"model": "gpt3_1.3B", "accelerator": "A100 SXM 80GB", "num_gpus": 8}
    warehouse = Warehouse(empty_warehouse)
    with pytest.raises(InputError, match=r'row 1: `remark` "a\\x07" has the control character'):
        warehouse.evaluate("training_step", [{**layout, "remark": "a\x07"}])
    with (
        pytest.warns(UserWarning, match=r"`frame\\x1bwork` is not read; did you mean"),
        pytest.raises(InputError, match=r'`column` "frame\\x1bwork" has the control character'),
    ):
        warehouse.evaluate("training_step", [{**layout, "frame\x1bwork": "fsdp"}])


def test_python_refuses_such_texts_as_well(empty_warehouse: Path, database: Path) -> None:
    with pytest.raises(InputError, match=r"`model` .* is not UTF-8 text"):
        Warehouse(empty_warehouse).why(model=NOT_TEXT)
    with pytest.raises(DatabaseError, match="is not UTF-8 text"):
        Warehouse(database.with_name(NOT_TEXT)).sql("select 1")


def test_python_refuses_names_of_files_with_a_zero_byte(empty_warehouse: Path) -> None:
    frame = pl.DataFrame({"model": ["gpt3"]})
    with pytest.raises(InputError, match="cannot be read: embedded null"):
        Warehouse(empty_warehouse).evaluate("roofline", frame, catalog=Path("a\0.toml"))
    with pytest.raises(InputError, match="cannot be reached: embedded null"):
        backup(empty_warehouse, Path("a\0b"))


@pytest.mark.parametrize(
    "line",
    [
        *("sweep LONG", "drop LONG", "profiles --drop LONG", "init --db LONG", "status --db LONG"),
        *("backup LONG", "export model --out LONG.csv", "export --facts LONG", "import LONG"),
        *("collect LONG", "measure LONG.csv --name mine", "calibrate LONG.csv --name mine"),
        *(
            "sql VALUES(1) --out LONG.csv",
            "evaluate --estimator roofline LONG.parquet --out out.csv",
        ),
        "explain --profile LONG model=gpt3_1.3B accelerator=H100 num_gpus=8",
    ],
)
def test_a_name_that_no_file_can_have_is_refused(
    warehouse: Command,
    empty_warehouse: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path_factory.mktemp("own") / "own.duckdb"
    shutil.copyfile(empty_warehouse, own)  # `drop` opens it to write
    database = () if "--db" in line else ("--db", own)
    code, out, err = warehouse(*line.replace("LONG", "x" * 400).split(), *database)
    assert (code, out) == (3, "")
    assert err.startswith("error: ")
    assert "x" * 60 in err
    assert not list(tmp_path.iterdir())


def test_python_refuses_such_names_as_well(empty_warehouse: Path) -> None:
    with pytest.raises(InputError, match="File name too long") as caught:
        Warehouse(empty_warehouse, writable=True).sweep("x" * 400)
    assert caught.value.hint == "name another file"


def test_a_name_to_which_no_ending_fits_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="File name too long"):
        check_target(tmp_path / ("x" * 250))
    check_target(tmp_path / ("x" * 200))


@pytest.mark.parametrize("name", ["\\", ".\\x", "a\\b.duckdb", "d\\e/copy.duckdb"])
def test_a_database_with_a_backslash_in_its_path_is_refused(
    warehouse: Command,
    empty_warehouse: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """DuckDB would read or write another file."""
    folder = tmp_path / "d\\e"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    said = f"error: {tmp_path / name}: has a backslash, which DuckDB reads as /\nhint: "
    for command in (("backup", name, "--db", empty_warehouse), ("init", "--db", name)):
        code, _, err = warehouse(*command)
        assert (code, err.startswith(said)) == (5, True), err
    assert list(tmp_path.iterdir()) == [folder]
    assert not list(folder.iterdir())


KINDS: tuple[pl.DataType, ...] = (
    *(pl.Int64(), pl.Boolean(), pl.Date(), pl.Binary(), pl.List(pl.Int64)),
    *(pl.Struct({"a": pl.Int8}), pl.Decimal(10, 2)),
)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_empty_file_with_a_wrong_type_is_refused(
    warehouse: Command, tmp_path: Path, kind: pl.DataType
) -> None:
    configs = tmp_path / "configs.parquet"
    pl.DataFrame([pl.Series("model", [], dtype=kind)]).write_parquet(configs)
    code, out, err = warehouse(
        "evaluate", "--estimator", "roofline", configs, "--out", tmp_path / "out.csv"
    )
    assert (code, out) == (3, "")
    assert err.startswith(f"error: {configs}: `model` (none) is a column of type {kind}; it must")
    assert not (tmp_path / "out.csv").exists()


def test_a_measured_memory_beyond_all_floats_is_refused(
    warehouse: Command, tmp_path: Path, database: Path
) -> None:
    runs = tmp_path / "runs.csv"
    head = "model,accelerator,num_gpus,global_batch_size,step_seconds,memory_bytes"
    rows = (f"gpt3_1.3B,H100,8,64,0.5,{size}" for size in ("2e10", "9" * 400))
    runs.write_text("\n".join([head, *rows]))
    code, out, err = warehouse("measure", runs, "--name", "mine", "--db", database)
    assert (code, out) == (3, "")
    assert "`memory_bytes`" in err


HEAD = 'name = "x"\nestimator = "roofline"\n'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (HEAD + f"a = {'[' * 100_000}1{']' * 100_000}\n", "is nested too deeply"),
        (HEAD + f"a = [{'1,' * (MAX_BYTES // 2)}]\n", "has more than 8 MB"),
        ("a" * (MAX_BYTES - 1), "is not valid TOML"),
        ('"' * (MAX_BYTES - 1), "is not valid TOML"),
    ],
    ids=["lists", "values", "letters", "quotes"],
)
def test_a_file_that_takes_minutes_to_read_is_refused(
    warehouse: Command, tmp_path: Path, database: Path, content: str, reason: str
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(content)
    code, out, err = warehouse("sweep", path, "--db", database)
    assert (code, out) == (3, "")
    assert err.startswith(f"error: {path}: {reason}")
    assert not database.exists()


def test_a_study_with_many_faults_names_ten_and_counts_the_others(
    warehouse: Command, tmp_path: Path, database: Path
) -> None:
    path = tmp_path / "study.toml"
    lines = [f"{chr(97 + n) * 2000}_q = {n}" for n in range(26)]
    path.write_text(HEAD + "[space]\n" + "\n".join(lines))
    code, _, err = warehouse("sweep", path, "--db", database)
    assert code == 3
    assert err.count(f"{path}: `") == MAX_SHOWN
    assert "\n... and 16 more\n" in err
    assert len(err) < LONGEST_MESSAGE


def test_differing_hints_that_are_long_are_cut() -> None:
    names = ", ".join(f"name_{n}" for n in range(1000))
    refusals = [Refusal("a", n, "is not known", f"{n}: {names}") for n in range(3)]
    text = str(InputError.from_refusals(refusals))
    assert len(text) < 1100
    assert text.count(" ...\n") == 2
    alone = str(InputError.from_refusals(refusals[:1]))
    assert alone.endswith("name_999")


def test_refusals_in_a_row_with_one_hint_have_it_once() -> None:
    refusals = [Refusal("a", n, "is odd", "use 2" if n < 4 else "use 3") for n in range(1, 6)]
    assert str(InputError.from_refusals(refusals)) == (
        "`a` 1 is odd\n`a` 2 is odd\n`a` 3 is odd\nhint: use 2\n"
        "`a` 4 is odd\n`a` 5 is odd\nhint: use 3"
    )


def test_a_message_of_any_other_error_is_cut(
    warehouse: Command, monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InputError("far too many words " * 1000, "a hint")

    monkeypatch.setattr("warehouse.sweep.study.study_under_options", fail)
    code, _, err = warehouse("sweep", "paper_grid", "--db", database)
    assert code == 3
    assert len(err) < LONGEST_MESSAGE + 100
    assert err.endswith(" ...\nhint: a hint\n")


def test_a_refusal_shows_a_long_value_in_short() -> None:
    assert len(str(RefusedError([Refusal("a" * 1000, "b" * 100_000, "is not known")]))) < 300
