"""Inputs that nobody meant: studies, tables of any type, settings, manifests, command lines.

A case is text with a few edits, or a table, and the command that reads it. The command must end
soon, with an exit code of its own and words, and leave no part of a result.
"""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import strategies as st

from tests.shared import call
from warehouse.cli.commands import COMMANDS
from warehouse.database import resources
from warehouse.database.facts import folder_of
from warehouse.database.reference import read_table
from warehouse.errors import InputError

HANG_SECONDS = 10.0
"""Processor time that no input may take."""

_LARGEST_COUNT = 4096
"""Larger numbers of GPUs make large spaces, which are slow and no fault."""

STUDY = """\
name = "fuzzed"
estimator = "{estimator}"
variant = "corrected"

[space]
model = "gpt3"
accelerator = ["A100", "H200"]
nvlink_size = 8
num_gpus = {{powers_of_two = [3, 4]}}
global_batch_size = [8]
strategy = "tensor_1d"
"""

OWN = """\

[models.mine]
num_layers = 8
hidden_size = 1024
num_heads = 16
seq_len = 2048

[systems.own]
based_on = "H200"
hbm_bytes = 2e11
"""

CONFIGS = """\
model,accelerator,num_gpus,global_batch_size,tensor_parallel,pipeline_parallel,microbatch_size
gpt3,A100,64,64,8,1,1
gpt3_1T,H200,128,128,8,8,1
"""

RUNS = """\
run,model,accelerator,num_gpus,global_batch_size,tensor_parallel,step_seconds,memory_bytes,source
a,gpt3_1.3B,H100,8,64,2,0.5,2e10,here
b,gpt3_1.3B,H100,16,64,2,0.3,,there
"""

SETTINGS = """\
database = "../warehouse.duckdb"
cache = "~/cache"
catalog = "mine.toml"
"""

JUNK = (
    *("", " ", ",", '"', "'", "\n", "\r\n", "\x00", "\ufeff", "\u202e", "\U0001f600", "\t"),
    *("0", "-1", "1e309", "-0.0", "nan", "inf", "1_000", "0x10", "9223372036854775808", "1e-320"),
    *("[", "]", "[[", "{", "}", "=", "#", "[space]", "[[space]]", "a.b.c = 1", "[models.x]"),
    *("true", "null", "None", "1979-05-27", "2026-11-22T00:00:00Z", '"""', "..", "/", "../x"),
    *("gpt3", "num_gpus", "step_seconds", "source", "model", "cell_id", "rows", "'); drop table"),
    *("{powers_of_two = [3, 4]}", "{divisors_of = 12}", "{range = [1, 5]}", "é" * 300, "9" * 400),
)

_LEFT_OUT = {"quickstart", "calibrate", "config", "plan", "report", "explore"}
"""Commands that take seconds where they are right, or write elsewhere."""

_NAMES = tuple(entry.name for entry in COMMANDS if entry.name not in _LEFT_OUT)

WORDS = (
    *_NAMES,
    *("--db", "--json", "--format", "csv", "--out", "--model", "--gpus", "--tokens", "--wide"),
    *("--columns", "--wait", "--help", "--limit", "--variant", "--name", "--drop"),
    *("--replace", "--force", "--into-db", "--facts", "--estimator", "--strategy", "--profile"),
    *("roofline", "gpt3_1T", "training_step", "model=gpt3", "num_gpus=8", "select 1", "H100", "8"),
    *("1e12", "-", "--", "-1", "0", "x.csv", ".", "no/such", "configuration_rank", "a=b=c", "=1"),
)


@st.composite
def edited(draw: st.DrawFn, text: str) -> str:
    """Return a text with some pieces replaced, removed, added or doubled."""
    for _ in range(draw(st.integers(1, 4))):
        spans = [match.span() for match in re.finditer(r"\w+|\W", text)] or [(0, 0)]
        start, end = spans[draw(st.integers(0, len(spans) - 1))]
        piece = draw(st.sampled_from(JUNK) | st.text(max_size=5) | st.integers().map(str))
        match draw(st.integers(0, 3)):
            case 0:
                text = text[:start] + piece + text[end:]
            case 1:
                text = text[:start] + text[end:]
            case 2:
                text = text[:start] + piece + text[start:]
            case _:
                text = text[:end] + text[start:]
    return text


VALUES = (
    *("0", "1", "-1", "3", "1e309", "-0.0", "nan", "inf", "-inf", "1_000", "9223372036854775808"),
    *("1e-320", "1e300", "0.5", "true", "", " ", "1979-05-27", "gpt3", "mine", "own", "none", "é"),
    *('""', '"gpt3"', '"mine"', '"own"', '"H200"', '"tensor_2d"', '"a\\u0000b"', '"full"', '"3"'),
    *("[]", "[[]]", "[1, 1]", '["gpt3", 3]', "{}", "{a = 1}", "[0]", "[true]", "[1e308, 2]"),
    *("{powers_of_two = [3, 4]}", "{powers_of_two = [4, 3]}", "{divisors_of = 12}"),
    *("{divisors_of = 0}", "{range = [1, 5]}", "{range = [5, 1, 0]}", "{range = []}"),
)
"""Values of a line of TOML, or of a field of CSV: some are right."""


JSON_VALUES = (
    *VALUES,
    *("null", "NaN", "-Infinity", "1e400", '"rows/../../x"', '"/etc/hostname"', "-3", '{"": []}'),
)


@st.composite
def refilled(draw: st.DrawFn, text: str) -> str:
    """Return a text in which values are others: its form stays, so that rules are reached."""
    pattern = r"(?<== )[^\n]+" if " = " in text else r"(?<=[,\n])[^,\n]*"
    values: tuple[str, ...] = VALUES
    if text.startswith("{"):
        pattern, values = r"(?<=: )[^,\n{[]+|(?<=\n)\s+[\w\"]+(?=,?\n)", JSON_VALUES
    spans = [match.span() for match in re.finditer(pattern, text)]
    chosen = draw(st.sets(st.integers(0, len(spans) - 1), min_size=1, max_size=3))
    for number in sorted(chosen, reverse=True):
        start, end = spans[number]
        value = draw(st.sampled_from(values) | st.integers(-3, 5000).map(str))
        text = text[:start] + value + text[end:]
    return text


TYPES: dict[str, tuple[pl.DataType | type[pl.DataType], tuple[Any, ...]]] = {
    "list": (pl.List(pl.Int64), ([8], [], None)),
    "array": (pl.Array(pl.Float64, 2), ([8.0, 1.0], None)),
    "struct": (pl.Struct({"a": pl.Int64}), ({"a": 8}, None)),
    "binary": (pl.Binary, (b"gpt3", b"\xff\x00", b"", None)),
    "decimal": (pl.Decimal(38, 2), (Decimal("8.00"), Decimal("0.5"), Decimal(10) ** 35, None)),
    "date": (pl.Date, (date(2026, 1, 1), None)),
    "datetime": (pl.Datetime("us", "UTC"), (datetime(2026, 1, 1), None)),
    "duration": (pl.Duration, (timedelta(seconds=8), None)),
    "time": (pl.Time, (time(8), None)),
    "bool": (pl.Boolean, (True, False, None)),
    "categorical": (pl.Categorical, ("gpt3", "H100", "8", None)),
    "null": (pl.Null, (None,)),
    "uint64": (pl.UInt64, (8, 2**64 - 1, None)),
    "int8": (pl.Int8, (8, -1, 0, None)),
    "float": (pl.Float64, (8.0, 8.5, float("nan"), float("inf"), -0.0, 1e-320, None)),
    "float32": (pl.Float32, (8.0, 0.3, None)),
    "text": (pl.String, ("gpt3", "H100", "8", "8.5", "", "a\0b", "\u202e", None)),
}
"""Type of a column of a Parquet file -> what polars calls it, and values."""

_LAYOUT = {"model": "text", "accelerator": "text", "num_gpus": "int8", "global_batch_size": "int8"}
_LAYOUT |= {"tensor_parallel": "int8", "step_seconds": "float"}
_PRODUCT = {"num_rows": "int8", "num_columns": "int8", "inner_size": "int8", "seconds": "float"}
_PRODUCT |= {"number_format": "text", "accelerator": "text"}
_MODEL = {"model": "text", "num_layers": "int8", "hidden_size": "int8", "source": "text"}

READERS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "evaluate": (_LAYOUT, ("evaluate", "--estimator", "training_step", "FILE", "--out", "out.csv")),
    "evaluate to Parquet": (
        _LAYOUT,
        ("evaluate", "--estimator", "roofline", "FILE", "--out", "out.parquet"),
    ),
    "measure": ({**_LAYOUT, "memory_bytes": "float"}, ("measure", "FILE", "--name", "mine")),
    "operations": (_LAYOUT, ("operations", "--config", "FILE")),
    "calibrate": (_LAYOUT, ("calibrate", "FILE", "--name", "mine")),
    "kernels": (_PRODUCT, ("calibrate", "--kernels", "FILE", "--name", "mine")),
    "reference": (_MODEL, ()),
}
"""What reads Parquet -> columns with their usual types, and the command; none: `read_table`."""

LAKE_FILES = ("cells/*.json", "shards/*/*.json", "studies/*.json", "lake.json")


@dataclass(frozen=True)
class Case:
    """One input: a kind, and its text, its words or its columns.

    Attributes
    ----------
    columns
        Name, type and places of the values in `TYPES` of each column of a Parquet file.
    reader
        One of `READERS`, or which file of a lake the text is, or a command with settings.
    """

    kind: str
    text: str = ""
    words: tuple[str, ...] = ()
    estimator: str = "roofline"
    columns: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    reader: str = ""


_ESTIMATORS = st.sampled_from(["roofline", "training_step", "megatron_flops", "linear_layer"])


def _of(kind: str, text: str) -> st.SearchStrategy[Case]:
    return st.builds(Case, st.just(kind), edited(text) | refilled(text), estimator=_ESTIMATORS)


def _words() -> st.SearchStrategy[Case]:
    word = st.sampled_from(WORDS) | st.sampled_from(JUNK) | st.text(max_size=4)
    word = word.map(lambda text: text.replace("\0", ""))  # no shell passes it on
    rest = st.lists(word, max_size=6)
    first = st.sampled_from(_NAMES) | word
    return st.builds(lambda one, words: Case("words", words=(one, *words)), first, rest)


@st.composite
def _typed(draw: st.DrawFn) -> Case:
    """Return a Parquet file in which some columns have another type than usual."""
    reader = draw(st.sampled_from(sorted(READERS)))
    types = dict(READERS[reader][0])
    height = draw(st.integers(0, 3))
    for name in draw(st.sets(st.sampled_from(sorted(types)), min_size=1, max_size=3)):
        types[name] = draw(st.sampled_from(sorted(TYPES)))
    columns = []
    for name, kind in types.items():
        place = st.integers(0, len(TYPES[kind][1]) - 1)
        columns.append((name, kind, tuple(draw(place) for _ in range(height))))
    return Case("typed", columns=tuple(columns), reader=reader)


def frame_of(case: Case) -> pl.DataFrame:
    """Return the table of a case."""
    return pl.DataFrame(
        [
            pl.Series(name, [TYPES[kind][1][place] for place in places], TYPES[kind][0])
            for name, kind, places in case.columns
        ]
    )


_LAKE = tempfile.TemporaryDirectory(prefix="fuzz-lake-")


@cache
def lake() -> Path:
    """Return a lake with one finished shard; no case changes it."""
    place = Path(_LAKE.name)
    study = place / "fuzzed.toml"
    study.write_text(STUDY.format(estimator="roofline"), encoding="utf-8")
    code, _, err = call("sweep", study, "--lake", place / "lake", "--shard", "1/1")
    assert code == 0, err
    return place / "lake"


def _manifest(name: str) -> st.SearchStrategy[Case]:
    """Return a file of the lake with other text."""
    file = min(lake().glob(name))
    text = file.read_text("utf-8")
    reader = str(file.relative_to(lake()))
    return st.builds(
        Case, st.just("manifest"), edited(text) | refilled(text), reader=st.just(reader)
    )


def _settings() -> st.SearchStrategy[Case]:
    text = edited(SETTINGS) | refilled(SETTINGS)
    return st.builds(Case, st.just("settings"), text, reader=st.sampled_from(sorted(_SET)))


_SET = {
    "config": ("config",),
    "status": ("status",),
    "why": ("why", "model=gpt3_1.3B", "accelerator=H100", "num_gpus=8", "global_batch_size=64"),
}
"""Commands that read settings."""


def _reference() -> str:
    lines = (resources.reference_directory() / "model.csv").read_text("utf-8").splitlines(True)
    return "".join(lines[:4])


KINDS: dict[str, Callable[[], st.SearchStrategy[Case]]] = {
    "study": lambda: (
        _of("study", STUDY.format(estimator="roofline"))
        | _of("study", STUDY.format(estimator="training_step"))
        | _of("study", STUDY.format(estimator="roofline") + OWN)
    ),
    "configurations": lambda: _of("configurations", CONFIGS),
    "runs": lambda: _of("runs", RUNS),
    "reference": lambda: _of("reference", _reference()),
    "typed": _typed,
    "settings": _settings,
    "manifest": lambda: st.sampled_from(LAKE_FILES).flatmap(_manifest),
    "words": _words,
}
"""Kind of input -> its strategy."""


INCOMPLETE = 4
"""Exit code of a command that stored what it could: `collect` of a lake with a bad file."""

STORING = {"runs", "words", "typed", "manifest"}
"""Kinds of input that a command may store."""


class HangError(Exception):
    """A case that took too long."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Raise `HangError` after `HANG_SECONDS` of processor time."""

    def stop(*_: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def is_small(case: Case) -> bool:
    """Return whether a case asks for no space that is large by right."""
    if case.kind not in {"study", "words"}:
        return True
    numbers = re.findall(r"\d+", f"{case.text} {' '.join(case.words)}".replace("_", ""))
    return all(len(number) < 5 or len(number) > 18 for number in numbers) and all(
        int(number) <= _LARGEST_COUNT for number in numbers if len(number) < 5
    )


def forget(database: Path) -> None:
    """Remove a database that a case may have stored something in, with its facts."""
    database.unlink(missing_ok=True)
    shutil.rmtree(folder_of(database), ignore_errors=True)


def check(case: Case, place: Path, database: Path) -> int:
    """Run a case in an empty folder; return the exit code.

    Parameters
    ----------
    database
        A warehouse, which a refused command leaves as it is.

    Raises
    ------
    AssertionError
        If the input was neither taken nor refused in words, or something of it stayed.
    """
    before = _stamp(database)
    with no_hang():
        code, err = _run(case, place, database)
    assert code in {0, 2, 3, 4, 5}, f"exit {code}: {_fault_in(err)}"
    if code:
        assert err.strip(), "no word"
        assert "Traceback" not in err, _fault_in(err)
        assert len(err) < 20_000, f"a long error: {err[:300]}"
        assert not list(place.glob("out.*")), f"a result, and {err[-300:]}"
        if code != INCOMPLETE:
            assert _stamp(database) == before, f"something stored, and {err[-300:]}"
    left = [path.name for path in place.iterdir() if ".partial" in path.name]
    assert not left, left
    return code


def _fault_in(err: str) -> str:
    """Return the last place of a traceback, and the error."""
    places = re.findall(r"File \"[^\"]*?([^/\"]+)\", (line \d+, in \w+)", err)
    return f"{places[-1:]} {err.strip().splitlines()[-1:]}"


def _stamp(database: Path) -> tuple[int, int]:
    """Return what a write to a file changes."""
    found = database.stat()
    return found.st_size, found.st_mtime_ns


def _run(case: Case, place: Path, database: Path) -> tuple[int, str]:
    file = place / {
        "study": "fuzzed.toml",
        "reference": "model.csv",
        "settings": "warehouse.toml",
        "manifest": f"lake/{case.reader}",
        "typed": "model.parquet",
    }.get(case.kind, "in.csv")
    if case.kind == "manifest":
        shutil.copytree(lake(), place / "lake")
    if case.kind == "typed":
        frame_of(case).write_parquet(file)
    elif case.kind != "words":
        file.write_text(case.text, encoding="utf-8", errors="surrogatepass", newline="")
    arguments: tuple[Any, ...] = {
        "study": ("sweep", file, "--dry-run", "--db", database),
        "configurations": (
            "evaluate",
            "--estimator",
            case.estimator,
            file,
            "--out",
            place / "out.csv",
        ),
        "runs": ("measure", file, "--name", "fuzzed", "--db", database),
        "manifest": ("collect", place / "lake", "--db", database),
        "settings": _SET.get(case.reader, ()),
        "words": (*case.words, "--db", database),
    }.get(case.kind, ())
    if case.kind == "typed" and READERS[case.reader][1]:
        words = (str(file) if word == "FILE" else word for word in READERS[case.reader][1])
        arguments = (*words, "--db", database)
    if arguments:
        code, _, err = call("--debug", *arguments)
        return code, err
    try:
        read_table(file)
    except InputError as error:
        return error.exit_code, str(error)
    return 0, ""
