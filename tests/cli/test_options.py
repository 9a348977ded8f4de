"""Options that commands share: numbers as people write them, formats, files, groups."""

from __future__ import annotations

import math
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from warehouse.cli.groups import expanded
from warehouse.cli.options import DEFAULT_DATABASE, Database
from warehouse.cli.output import ENDINGS, Output
from warehouse.errors import InputError, UsageError
from warehouse.files import refuse_overwriting
from warehouse.limits import Number, read_number
from warehouse.options import NumGpus, ProblemFilters
from warehouse.show.formats import Format

# ---- numbers ----


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("64", 64), ("-1", -1), ("+3", 3), (".5", 0.5), ("5.", 5.0), ("15e12", 15e12)),
        *(("1_000", 1000), ("1,000", 1000), ("12,345,678.5", 12345678.5), ("1_000.5", 1000.5)),
        *(("8k", 8000), ("2M", 2_000_000), ("2m", 2_000_000), ("1.5B", 1.5e9), ("3G", 3 * 10**9)),
        *(("15T", 15 * 10**12), ("0.1T", 1e11), (" 7 ", 7), ("1,000e3", 1e6)),
    ],
)
def test_a_number_is_read_as_people_write_it(text: str, number: float) -> None:
    found = read_number(text)
    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "abc", "1e", "1e3k", "0x10", "1 000", "15 T", "T", "1_", "_1", "1__0"),
        *("1,00", "1,0000", ",100", "1._5", "15TB", "٣", "1e1_0", "9" * 500),
    ],
)
def test_texts_that_are_not_numbers_are_not_read(text: str) -> None:
    assert read_number(text) is None


def test_what_is_not_finite_is_read_to_be_refused_by_name() -> None:
    assert read_number("-inf") == -math.inf
    assert math.isnan(read_number("nan") or 0)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("many", UsageError, "`--tokens` many is not a number\nhint: write it as 15e12, 15T"),
        ("15TB", UsageError, "`--tokens` 15TB is not a number\nhint: write 15T, without a unit"),
        # bits: without the unit the number would be eight times too large
        (
            "400Gb/s",
            UsageError,
            "`--tokens` 400Gb/s is not a number\nhint: write it as 15e12, 15T or 1_000",
        ),
        ("$2.20", UsageError, "`--tokens` $2.20 is not a number\nhint: write 2.20, without"),
        ("0", InputError, "`--tokens` 0 must be above 0"),
        ("-1", InputError, "`--tokens` -1 must be above 0"),
        ("nan", InputError, "`--tokens` nan must be above 0"),
        ("1e-320", InputError, "`--tokens` 1e-320 must be at least 1e-30"),
        ("inf", InputError, "`--tokens` inf must be at most 1e+30"),
        ("1e300", InputError, "`--tokens` 1e300 must be at most 1e+30"),
    ],
)
def test_a_number_that_an_option_cannot_take_is_refused(
    text: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        Number("--tokens", above=0)(text)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "`--num-gpus` 0 must be at least 1"),
        ("1.5", "`--num-gpus` 1.5 is not a whole number\nhint: write it as 64, 1_000 or 4k"),
        ("nan", "`--num-gpus` nan must be at least 1"),
        ("inf", "`--num-gpus` inf is not a whole number"),
    ],
)
def test_a_count_is_a_whole_number_of_at_least_one(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Number("--num-gpus", whole=True, least=1)(text)
    assert str(caught.value).startswith(said)


def test_a_count_is_an_int_however_it_is_written() -> None:
    count = Number("--num-gpus", whole=True, least=1)
    assert [count(text) for text in ("4k", "4e3", "4_000", "4000.0")] == [4000] * 4
    assert all(isinstance(count(text), int) for text in ("4k", "4e3", "4000.0"))


# ---- formats and files ----


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_ending_of_the_file_says_the_format(tmp_path: Path, ending: str) -> None:
    assert Output(out=tmp_path / f"rows{ending.upper()}").form is ENDINGS[ending]


def test_a_named_format_counts_more_than_the_ending(tmp_path: Path) -> None:
    assert Output(named=Format.CSV, out=tmp_path / "rows.json").form is Format.CSV
    assert Output(as_json=True, out=tmp_path / "rows.csv").form is Format.JSON
    assert Output(named=Format.JSON, as_json=True).form is Format.JSON
    assert Output().form is Format.TABLE


@pytest.mark.parametrize("form", [Format.TABLE, Format.CSV, Format.MARKDOWN])
def test_two_formats_contradict_each_other(form: Format) -> None:
    with pytest.raises(UsageError, match=f"`--json` contradicts `--format` {form}"):
        Output(named=form, as_json=True)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("rows.xlsx", UsageError, "does not say which format to write\nhint: end it in .txt"),
        ("rows", UsageError, "does not say which format"),
        ("none/rows.csv", InputError, "does not exist\nhint: make it first"),
        ("folder.csv", InputError, "is a directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, name: str, error: type[Exception], said: str
) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(error, match=said):
        Output(out=tmp_path / name)


def test_a_file_is_written_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("old")
    out.chmod(0o640)
    with Output(out=out).opened():
        sys.stdout.write("new\n")
        assert out.read_text() == "old"
    assert out.read_text() == "new\n"
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [out]


def test_a_failure_leaves_the_old_file_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("old")
    with pytest.raises(ZeroDivisionError), Output(out=out).opened():
        sys.stdout.write("half")
        raise ZeroDivisionError
    sys.stdout.write("back")
    assert capsys.readouterr().out == "back"
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_a_device_is_written_to_and_stays_a_device(tmp_path: Path) -> None:
    pipe = tmp_path / "rows.csv"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with Output(out=pipe).opened():
            sys.stdout.write("row\n")
        assert os.read(reader, 100) == b"row\n"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_stdout_by_its_path_is_a_stream(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from warehouse.cli.output import Format, Output\n"
        "with Output(named=Format.CSV, out=Path('/dev/stdout')).opened(): sys.stdout.write('row')"
    )
    piped = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert piped.stdout == b"row"
    with (tmp_path / "rows").open("wb") as file:
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True)
    assert (tmp_path / "rows").read_bytes() == b"row"


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(
    ("name", "kind"), [("db", "the database"), ("config", "the input file"), ("study", "the input")]
)
def test_neither_the_database_nor_an_input_is_overwritten(
    tmp_path: Path, name: str, kind: str, *, exists: bool
) -> None:
    def command(
        output: Output,
        study: str = "",
        config: Path | None = None,
        db: Database = DEFAULT_DATABASE,
    ) -> None:
        raise AssertionError(output, study, config, db)

    kept = tmp_path / "kept.json"
    if exists:
        kept.write_text("kept")
    same = tmp_path / "folder" / ".." / "kept.json"
    (tmp_path / "folder").mkdir()
    values = {"study": "", "config": None, "db": DEFAULT_DATABASE, name: kept}
    with pytest.raises(InputError, match=f"is {kind}.*it would be overwritten\nhint: name another"):
        expanded(command)(named=None, out=same, as_json=False, **values)
    assert not exists or kept.read_text() == "kept"


def test_a_device_may_be_read_and_written() -> None:
    refuse_overwriting(Path(os.devnull), read=(Path(os.devnull),), database=Path(os.devnull))


# ---- groups ----


@dataclass(frozen=True)
class _Twice:
    num_gpus: NumGpus = None


def test_a_group_reaches_the_command_as_one_value() -> None:
    seen: list[object] = []

    def command(problem: ProblemFilters, db: Database = DEFAULT_DATABASE) -> None:
        seen.extend([problem, db])

    parameters = expanded(command).__annotations__
    assert list(parameters)[:2] == ["model", "accelerator"]
    assert list(parameters)[-1] == "db"
    names = [name for name in parameters if name != "db"]
    expanded(command)(db=Path("x"), **{**dict.fromkeys(names), "num_gpus": 8})
    assert seen == [ProblemFilters(num_gpus=8), Path("x")]


def test_two_groups_with_the_same_option_are_a_fault_of_the_program() -> None:
    def command(problem: ProblemFilters, more: _Twice) -> None:
        pass

    with pytest.raises(TypeError, match="command has options twice: num_gpus"):
        expanded(command)
