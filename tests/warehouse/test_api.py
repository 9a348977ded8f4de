"""`Warehouse`: what the commands do, in Python."""

from __future__ import annotations

import datetime
import doctest
import inspect
import json
import pickle
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from tests.shared import Quickstart, call, digest
from warehouse import Warehouse
from warehouse.api import stored, warehouse
from warehouse.errors import DatabaseError, InputError, UsageError
from warehouse.options import CostOptions, PlanOptions, RankFilters

FLAGSHIP: dict[str, Any] = {
    "model": "megatron_1.7B",
    "accelerator": "A100 SXM 80GB",
    "num_gpus": 32,
    "tokens": "300G",
    "global_batch_size": 512,
    "framework": "megatron_lm_2021",
}
"""The plan that the small quickstart stores."""

STUDY: dict[str, Any] = {
    "name": "one",
    "estimator": "roofline",
    "space": {
        "model": "gpt3",
        "strategy": "tensor_1d",
        "accelerator": "H200",
        "nvlink_size": 8,
        "num_gpus": [8],
        "global_batch_size": 8,
    },
}

LAYOUT: dict[str, Any] = {
    "model": "megatron_1.7B",
    "accelerator": "A100 SXM 80GB",
    "num_gpus": 32,
    "global_batch_size": 512,
    "tensor_parallel": 2,
    "microbatch_size": 4,
}


@pytest.fixture
def reader(quickstart: Quickstart) -> Warehouse:
    return Warehouse(quickstart.database)


@pytest.fixture
def writer(empty_warehouse: Path, tmp_path: Path) -> Warehouse:
    """A writable copy of a warehouse without a study."""
    return Warehouse(shutil.copyfile(empty_warehouse, tmp_path / "own.duckdb"), writable=True)


def document(*arguments: object) -> Any:
    code, out, err = call(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


# ---- documentation ----


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:left out")
def test_the_examples_of_the_methods_run(quickstart: Quickstart, tmp_path: Path) -> None:
    reader = Warehouse(quickstart.database)
    known = {
        "path": quickstart.database,
        "copy": shutil.copyfile(quickstart.database, tmp_path / "copy.duckdb"),
        "warehouse": reader,
        "best": reader.rank(model="megatron_1.7B", num_gpus=32, top=1),
        "Warehouse": Warehouse,
        "pl": pl,
    }
    results = [doctest.testmod(module, extraglobs=known) for module in (stored, warehouse)]
    assert [result.failed for result in results] == [0, 0]
    assert sum(result.attempted for result in results) > 30


def test_every_public_method_has_an_example_and_says_what_it_takes() -> None:
    methods = [
        function
        for name, function in inspect.getmembers(Warehouse, inspect.isfunction)
        if not name.startswith("_")
    ]
    assert len(methods) == 13
    for method in methods:
        text = inspect.getdoc(method) or ""
        assert ">>>" in text, method
        named = set(inspect.signature(method).parameters) - {"self"}
        assert {name for name in named if name not in text} == set(), method


@pytest.mark.parametrize(
    ("method", "question", "others"),
    [
        (
            "rank",
            RankFilters,
            {
                *("study", "estimator", "variant", "by", "top"),
                *("fit_probability", "hardware_variants"),
            },
        ),
        ("cost", CostOptions, {"price", "year", "all_years"}),
        ("energy", CostOptions, {"carbon", "all_powers"}),
        ("plan", PlanOptions, {"top", "allow_large"}),
    ],
)
def test_a_keyword_is_an_option_of_the_question(
    method: str, question: type[Any], others: set[str]
) -> None:
    parameters = inspect.signature(getattr(Warehouse, method)).parameters.values()
    keywords = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    defaults = {field.name: field.default for field in fields(question)}
    assert others == keywords.keys() - defaults.keys()
    assert defaults.keys() - keywords.keys() <= {"pairs", "precision"}  # `plan` takes any input
    for name in keywords.keys() & defaults.keys() - {"tokens", "estimator"}:
        assert keywords[name] == defaults[name], name


# ---- the same answers as the commands ----


def test_a_rank_is_that_of_the_command(reader: Warehouse) -> None:
    asked: dict[str, Any] = {
        "model": "gpt3_1T",
        "num_gpus": 1024,
        "nvlink_size": 8,
        "accelerator": "B200",
    }
    frame = reader.rank(**asked, top=2)
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]
    rows = document("rank", *options, "--top", 2, "--db", reader.path)
    assert frame.drop("estimator", "variant").to_dicts() == rows
    assert frame["estimator"].unique().to_list() == ["roofline"]
    assert frame.schema["num_gpus"] == pl.Int64
    assert frame.schema["step_seconds"] == pl.Float64


@pytest.mark.filterwarnings("ignore:left out")
def test_a_study_keeps_its_problems_alone(reader: Warehouse) -> None:
    name = reader.sql("select study from study where estimator = 'roofline' order by all")[0, 0]
    ranked = reader.rank(study=name, top=1)
    rows = document("rank", "--study", name, "--top", 1, "--db", reader.path)
    assert ranked.drop("estimator", "variant").to_dicts() == rows
    costs = reader.cost(study=name, tokens="300G", price=2.0)
    assert costs["estimator"].unique().to_list() == ["roofline"]
    assert reader.cost(tokens="300G", price=2.0)["estimator"].n_unique() > 1
    energies = reader.energy(study=name, tokens="300G", carbon=0.1)
    assert energies["estimator"].unique().to_list() == ["roofline"]


@pytest.mark.long
def test_a_plan_is_that_of_the_command(reader: Warehouse) -> None:
    run = reader.plan(**FLAGSHIP)
    asked = {**FLAGSHIP, "gpus": FLAGSHIP["num_gpus"], "batch": FLAGSHIP["global_batch_size"]}
    del asked["num_gpus"], asked["global_batch_size"]
    options = [f"--{name}={value}" for name, value in asked.items()]
    assert run.document == document("plan", *options, "--db", reader.path)
    assert run.layouts["step_seconds"].to_list() == [
        layout["step_seconds"] for layout in run.document["layouts"]
    ]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:left out")
@pytest.mark.parametrize(("command", "option"), [("cost", "price"), ("energy", "carbon")])
def test_costs_and_energies_are_those_of_the_command(
    reader: Warehouse, command: str, option: str
) -> None:
    ask: Callable[..., pl.DataFrame] = getattr(reader, command)
    frame = ask(model="megatron_1.7B", tokens=3e11, **{option: [0.5, 0.7]})
    rows = document(
        *(command, "--model", "megatron_1.7B", "--tokens", 3e11),
        *(f"--{option}", 0.5, f"--{option}", 0.7),
        *("--db", reader.path),
    )
    assert frame.to_dicts() == rows


@pytest.mark.parametrize(
    ("method", "keyword", "meant"),
    [
        ("plan", "day", "days"),
        ("plan", "modle", "model"),
        ("plan", "tensor_paralel", "tensor_parallel"),
        ("why", "modle", "model"),
        ("explain", "modle", "model"),
        ("rank", "modle", "model"),
        ("cost", "prise", "price"),
        ("energy", "carbn", "carbon"),
    ],
)
def test_an_unknown_keyword_names_the_argument_that_it_may_mean(
    writer: Warehouse, method: str, keyword: str, meant: str
) -> None:
    before = digest(writer.path)
    tokens = {"tokens": "15T"} if method == "plan" else {}
    with pytest.raises((UsageError, InputError)) as caught:
        getattr(writer, method)(**tokens, **{keyword: 8})
    assert f"`{keyword}`" in caught.value.message
    assert caught.value.hint.startswith(f"did you mean {meant}")
    assert digest(writer.path) == before


@pytest.mark.parametrize(
    ("method", "short", "full"),
    [
        ("plan", "gpus", "num_gpus"),
        ("why", "batch", "global_batch_size"),
        ("cost", "gpus", "num_gpus"),
    ],
)
def test_a_keyword_may_be_as_short_as_the_option(
    writer: Warehouse, method: str, short: str, full: str
) -> None:
    tokens = {"tokens": "15T"} if method == "plan" else {}
    with pytest.raises(UsageError) as caught:
        getattr(writer, method)(**tokens, **{short: 8, full: 8})
    assert caught.value.message == f"`{short}` and `{full}` are the same"


def test_inputs_of_a_plan_are_no_unknown_keywords(writer: Warehouse) -> None:
    with pytest.raises(UsageError, match="neither a GPU count nor a limit"):
        writer.plan(tokens="15T", model="gpt3", accelerator="H100", tensor_parallel=8)
    with pytest.raises(UsageError, match="`wholly_other` is no argument of `plan`") as caught:
        writer.plan(tokens="15T", wholly_other=1)
    assert "num_gpus" in caught.value.hint


def test_why_is_that_of_the_command(reader: Warehouse) -> None:
    found = reader.why(**LAYOUT)
    pairs = [f"{name}={value}" for name, value in LAYOUT.items()]
    printed = document("why", *pairs, "--db", reader.path)
    assert (found.rank, found.excess_bytes) == (printed["rank"], printed["excess_bytes"])
    assert found.parts.to_dicts() == [
        {"part": part.pop("name"), **part} for part in printed["parts"]
    ]
    assert found.changes["changed"].to_list() == [one["changed"] for one in printed["neighbours"]]


def test_a_layout_that_a_rule_excludes_is_diagnosed_not_refused(reader: Warehouse) -> None:
    found = reader.why(**{**LAYOUT, "tensor_parallel": 5})
    assert not found.is_admitted
    assert found.step_seconds is None
    assert found.rules.height > 0
    assert found.rules["hint"].null_count() == 0


def test_an_explanation_is_that_of_the_command(reader: Warehouse) -> None:
    found = reader.explain(**LAYOUT)
    pairs = [f"{name}={value}" for name, value in LAYOUT.items()]
    printed = document("explain", *pairs, "--db", reader.path)
    assert found.parts.to_dicts() == printed["parts"]
    assert found.constants.to_dicts() == printed["constants"]
    assert list(found.likely_step_seconds) == printed["likely_step_seconds"]
    assert list(found.differing_columns) == printed["differing_columns"] == []


def test_the_best_layout_says_in_what_the_stored_problems_differ(reader: Warehouse) -> None:
    query = """select model, count(distinct num_gpus) from configuration
        where estimator = 'training_step' group by model order by 2 desc limit 1"""
    [(model, counts)] = reader.sql(query).iter_rows()
    found = reader.explain(best=True, model=model)
    assert ("num_gpus" in found.differing_columns) == (counts > 1), counts


def test_a_frame_is_evaluated_as_a_file_is(reader: Warehouse, tmp_path: Path) -> None:
    frame = pl.DataFrame([{**LAYOUT, "tensor_parallel": size, "mine": "x"} for size in (1, 2)])
    frame.write_parquet(tmp_path / "in.parquet")
    code, _, err = call(
        *("evaluate", "--estimator", "training_step", tmp_path / "in.parquet"),
        *("--out", tmp_path / "out.parquet", "--db", reader.path),
    )
    assert code == 0, err
    expected = pl.read_parquet(tmp_path / "out.parquet")
    assert reader.evaluate("training_step", frame).equals(expected)
    assert {"low_step_seconds", "high_step_seconds", "mine"} <= set(expected.columns)


class ArrowTable:
    """A table of a library that the package does not know."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


FORMS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "lazy frame": lambda frame, _: frame.lazy(),
    "pyarrow table": lambda frame, _: frame.to_arrow(),
    "other table": lambda frame, _: ArrowTable(frame),
    "columns": lambda frame, _: frame.to_dict(as_series=False),
    "records": lambda frame, _: frame.to_dicts(),
    "csv": lambda frame, place: written(frame, place / "rows.csv"),
    "parquet": lambda frame, place: str(written(frame, place / "rows.parquet")),
}
"""Rows in each form that methods take."""


def written(frame: pl.DataFrame, place: Path) -> Path:
    frame.write_csv(place) if place.suffix == ".csv" else frame.write_parquet(place)
    return place


def test_rows_may_have_any_form_that_polars_reads(
    reader: Warehouse, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    frame = pl.DataFrame([LAYOUT, {**LAYOUT, "num_gpus": 64}])
    with reader:
        expected = reader.evaluate("training_step", frame)
        for form, given in FORMS.items():
            with subtests.test(form):
                assert reader.evaluate("training_step", given(frame, tmp_path)).equals(expected)


@pytest.mark.long
def test_measured_rows_may_have_any_form_that_polars_reads(
    writer: Warehouse, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    frame = pl.DataFrame([{**LAYOUT, "step_seconds": 3.5}, {**LAYOUT, "step_seconds": 3.6}])
    for form in ("records", "csv"):  # `evaluate` reads all of them in the same way
        with subtests.test(form):
            assert writer.measure(FORMS[form](frame, tmp_path), name=form).height == 2


def test_a_column_that_only_a_late_record_has_is_read(writer: Warehouse) -> None:
    found = writer.evaluate("training_step", [LAYOUT] * 200 + [{**LAYOUT, "zero_stage": 1}])
    assert found["zero_stage"].to_list()[-2:] == [None, 1]


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ("x", InputError, "x: is of no known format"),
        ("x.csv", InputError, "x.csv: there is no such file"),
        (3, UsageError, "`frame` is of type int\nhint: give a polars or pandas frame"),
        (None, UsageError, "`frame` is of type NoneType"),
        ([[1, 2]], UsageError, "`frame` is of type list"),
        ({"a": [1], "b": [1, 2]}, InputError, "polars cannot read this dict: "),
        (pl.LazyFrame(LAYOUT).select("x"), InputError, 'unable to find column "x"'),
    ],
)
def test_other_rows_are_refused_with_what_is_taken(
    writer: Warehouse, rows: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)):
        writer.evaluate("training_step", rows)
    with pytest.raises(error, match=re.escape(said)):
        writer.measure(rows, name="own")


def test_a_refused_row_of_a_file_names_the_file(reader: Warehouse, tmp_path: Path) -> None:
    place = written(pl.DataFrame([{**LAYOUT, "tensor_parallel": 5}]), tmp_path / "rows.csv")
    with pytest.raises(InputError, match=re.escape(f"{place}: row 1: `tensor_parallel` 5 ")):
        reader.evaluate("training_step", place)


# ---- queries ----


def test_parameters_and_frames_have_names_in_a_query(reader: Warehouse) -> None:
    mine = pl.DataFrame({"model": ["gpt3"], "nick": ["three"]})
    query = "select nick, num_layers from mine join model using (model) where num_layers > $least"
    assert reader.sql(query, mine=mine, least=1).rows() == [("three", 96)]
    assert reader.sql(query, mine=mine, least=100).rows() == []
    parameters: dict[str, Any] = {"my table": pl.DataFrame({"a": [1]}), "least": 2}
    assert reader.sql('select $Least, a from "MY table"', **parameters).rows() == [(2, 1)]


TABLES = ("lazy frame", "pyarrow table", "other table")


@pytest.mark.parametrize("form", TABLES)
def test_tables_of_other_libraries_are_tables_of_a_query(
    writer: Warehouse, tmp_path: Path, form: str
) -> None:
    mine = FORMS[form](pl.DataFrame({"a": [1, 2]}), tmp_path)
    assert writer.sql("select sum(a) from mine", mine=mine).item() == 3
    assert writer.execute("create table own as from mine; from own", mine=mine).height == 2
    with writer:
        assert writer.relation("from mine", mine=mine).fetchall() == [(1,), (2,)]


@pytest.mark.parametrize(
    ("value", "said", "hint"),
    [
        (1, "the query has no `$mine`", "write it in the query, or leave it out"),
        (pl.DataFrame({"a": [1]}), "the query has no table `mine`", "read it with `from mine`"),
    ],
)
def test_a_parameter_that_the_query_does_not_use_is_refused(
    writer: Warehouse, value: Any, said: str, hint: str
) -> None:
    query = "select $least as mined"
    for ask in (writer.sql, writer.execute, writer.relation):
        with writer, pytest.raises(UsageError, match=re.escape(said)) as caught:
            ask(query, least=1, mine=value)
        assert caught.value.hint.startswith(hint)
    with pytest.raises(UsageError):
        writer.execute("create table own (a int); insert into own values (1)", b=1)
    assert writer.sql("select count(*) from duckdb_tables() where table_name = 'own'").item() == 0


def test_a_table_that_polars_cannot_read_is_named(reader: Warehouse) -> None:
    with pytest.raises(InputError, match=r'`mine`: polars cannot read this .*LazyFrame: .*"x"'):
        reader.sql("from mine", mine=pl.LazyFrame({"a": [1]}).select("x"))


def test_types_that_polars_lacks_are_texts(reader: Warehouse) -> None:
    query = (
        "select interval '1 month' + $more as i, '101'::bit as b, 42::variant as v, "
        "union_value(a := 1) as u, 'ab'::blob as c, [interval '1 day'] as l, "
        "timestamp_s '2026-01-02' as t"
    )
    found = reader.sql(query, more=datetime.timedelta(days=3))
    day = datetime.datetime(2026, 1, 2)
    assert found.row(0) == ("1 month 3 days", "101", "42", "1", b"ab", ["1 day"], day)


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_s", "timestamp_ns", "date"])
def test_an_infinite_time_is_refused_in_a_frame(reader: Warehouse, kind: str) -> None:
    query = f"select x::{kind} as x from (values ('2026-01-02'), (null), ('-infinity')) as t(x)"
    with pytest.raises(InputError, match=r'cannot hold, such as infinity\nhint: .* cast\("x" as'):
        reader.sql(query)
    assert reader.sql(f"{query} limit 2")["x"].null_count() == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("['infinity'::date]", "a time that a frame cannot hold, such as infinity"),
        ("[{a: 'infinity'::timestamp}]", "a time that a frame cannot hold, such as infinity"),
        ("array_value('-infinity'::date)", "a time that a frame cannot hold, such as infinity"),
        ("map {1: 'infinity'::timestamptz}", "a time that a frame cannot hold, such as infinity"),
        ("time '24:00:00'", "a time that a frame cannot hold, such as 24:00:00"),
        ("time_ns '24:00:00'", "a time that a frame cannot hold, such as 24:00:00"),
        (f"{2**127 - 1}::hugeint", "a number that a frame cannot hold, such as one of 39 digits"),
        (f"[-{10**38}::hugeint]", "a number that a frame cannot hold, such as one of 39 digits"),
    ],
)
def test_a_value_that_a_frame_would_change_is_refused(
    reader: Warehouse, value: str, said: str
) -> None:
    with pytest.raises(InputError, match=rf'column `x` has {said}\nhint: .*cast\("x" as varchar'):
        reader.sql(f"select {value} as x")


def test_times_of_a_day_and_large_numbers_are_whole_in_a_frame(reader: Warehouse) -> None:
    query = (
        "select time '23:59:59.5' as t, time_ns '00:00:00.123456789' as n, null::time as t, "
        f"{10**38 - 1}::hugeint as h, [date '2026-01-02'] as l, [time '24:00:00'] as m"
    )
    found = reader.sql(query)
    assert found.columns == ["t", "n", "t_1", "h", "l", "m"]
    assert found.dtypes[:3] == [pl.Time] * 3
    assert found["n"].to_physical().item() == 123_456_789
    half = datetime.time(23, 59, 59, 500_000)
    day = datetime.date(2026, 1, 2)
    assert found.drop("n").row(0) == (half, None, 10**38 - 1, [day], ["24:00:00"])


@pytest.mark.parametrize(
    "query",
    [
        *("delete from model", "copy model to 'model.csv'", "export database 'all'"),
        *("select 1; select 2", "set threads = 1", "attach 'other.duckdb'", ""),
        *("from no_such_view", "select wrong(", "from read_text('/etc/hostname')"),
        *("pivot model on seq_len using count(*)", "from 'table.csv'", "from frame"),
    ],
)
def test_a_query_is_refused_as_by_the_command(
    reader: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pl.DataFrame({"a": [1]})  # no variable of the program is a table

    def without_line(error: object) -> str:  # more errors of the command have it
        return re.sub(r"\n\nLINE .*\n *\^+", "", str(error))

    code, _, err = call("sql", query, "--db", reader.path)
    with pytest.raises(InputError) as caught:
        reader.sql(query)
    assert (code, without_line(err)) == (3, f"error: {without_line(caught.value)}\n")
    with reader, pytest.raises(InputError) as from_relation:
        reader.relation(query)
    assert without_line(from_relation.value) == without_line(caught.value)
    assert not list(tmp_path.iterdir())
    assert frame.height == 1


@pytest.mark.parametrize("name", ["MODEL", " model"])
def test_a_view_has_the_names_of_the_command(reader: Warehouse, name: str) -> None:
    assert call("schema", name, "--db", reader.path)[0] == 0
    assert reader.view(name, limit=1).equals(reader.view("model", limit=1))


def test_a_view_has_as_many_rows_as_asked_for(reader: Warehouse) -> None:
    assert reader.view("model", limit=0).height == 0
    limits: tuple[tuple[Any, str], ...] = (
        (-1, "must be at least 0"),
        ("1; from x", "not a number"),
    )
    for limit, said in limits:
        with pytest.raises(UsageError, match=said):
            reader.view("model", limit=limit)


@pytest.mark.parametrize("query", [3, None, b"select 1", "select '\udcff'"], ids=ascii)
def test_a_query_or_name_that_is_no_text_is_refused(writer: Warehouse, query: Any) -> None:
    for ask in (writer.sql, writer.view, writer.execute):
        with pytest.raises(InputError, match="is not UTF-8 text"):
            ask(query)


NUMPY = (np.int64(8), np.int8(8), np.float32(8), np.bool_(True))


@pytest.mark.parametrize("value", NUMPY, ids=repr)
def test_scalars_of_numpy_are_values_of_parameters(reader: Warehouse, value: Any) -> None:
    assert reader.sql("select $value", value=value).item() == value
    with reader:
        assert reader.relation("select $value", value=value).fetchall() == [(value.item(),)]
    listed = reader.sql("select len($values), $values[1]", values=[value, value])
    assert listed.rows() == [(2, value.item())]


@pytest.mark.filterwarnings("ignore:left out")
def test_scalars_of_numpy_are_arguments(reader: Warehouse) -> None:
    counts: dict[str, Any] = {"num_gpus": 1024, "nvlink_size": 8, "top": 2}
    scalars: dict[str, Any] = {name: np.int64(number) for name, number in counts.items()}
    ranked = reader.rank(model="gpt3_1T", **counts)
    assert reader.rank(model="gpt3_1T", **scalars).equals(ranked)
    layout = {**LAYOUT, "num_gpus": np.int64(32), "uses_sequence_parallel": np.bool_(True)}
    plain = reader.why(**{**LAYOUT, "uses_sequence_parallel": True})
    assert reader.why(**layout).rank == plain.rank
    run: dict[str, Any] = {"model": "megatron_1.7B", "tokens": 3e11}
    given: dict[str, Any] = {"price": np.array([2.0, 3.0]), "goodput": np.float64(0.5)}
    assert reader.cost(**run, **given).equals(reader.cost(**run, price=[2.0, 3.0], goodput=0.5))
    year: Any = np.int64(2025)
    assert reader.cost(**run, year=year).equals(reader.cost(**run, year=2025))


def test_an_unknown_view_has_a_hint_of_similar_ones(reader: Warehouse) -> None:
    with pytest.raises(InputError) as caught:
        reader.view("configuration_rnk")
    assert "configuration_rank" in caught.value.hint
    with pytest.raises(InputError, match="`step_seconds` is no table or view"):
        reader.view("step_seconds")
    assert reader.view("system").height == reader.sql("from system").height


# ---- the file ----


def test_a_call_closes_the_file_and_a_block_keeps_it_open(writer: Warehouse) -> None:
    writer.sql("from model")
    duckdb.connect(str(writer.path)).close()
    with writer:
        writer.sql("from model")
        with pytest.raises(duckdb.Error, match="different configuration"):
            duckdb.connect(str(writer.path))
    duckdb.connect(str(writer.path)).close()


def test_one_call_of_a_block_leaves_nothing_to_the_next(reader: Warehouse) -> None:
    """Commands make temporary views and tables, which would change what a query sees."""
    count = "select count(distinct estimator) from configuration"
    with reader:
        before = reader.sql(count).item()
        reader.rank(model="megatron_1.7B", num_gpus=32)
        assert before == reader.sql(count).item() > 1


def test_a_relation_goes_on_in_sql_while_the_file_is_open(reader: Warehouse) -> None:
    with reader:
        found = reader.relation("from model").aggregate("max(num_layers) as most")
        assert found.pl().item() == reader.sql("select max(num_layers) from model").item()
    with pytest.raises(UsageError) as caught:
        reader.relation("from model")
    assert "inside `with Warehouse(" in caught.value.hint


def test_the_path_is_that_of_the_first_working_directory(
    writer: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(writer.path.parent)
    found = Warehouse(writer.path.name)
    monkeypatch.chdir("/")
    assert found.path == writer.path
    assert found.view("model").height > 0


def test_a_removed_working_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InputError, match="the working directory cannot be found") as caught:
        Warehouse("some.duckdb")
    assert "it was removed" in caught.value.hint


def test_blocks_may_lie_within_each_other_and_follow(writer: Warehouse) -> None:
    with writer:
        with writer:
            outer = writer.relation("from model")
        assert outer.fetchall()
        assert writer.relation("from model").join(outer, "model").fetchall()
    with pytest.raises(UsageError):
        writer.relation("from model")
    with writer:
        assert writer.relation("from model").fetchall()
    duckdb.connect(str(writer.path)).close()


def test_a_block_that_cannot_begin_leaves_nothing_open(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "none.duckdb")
    with pytest.raises(DatabaseError, match="no such database"), warehouse:
        pass
    with pytest.raises(UsageError, match="a relation needs the file to stay open"):
        warehouse.relation("select 1")


def test_threads_share_a_warehouse(writer: Warehouse) -> None:
    def read(_: int) -> int:
        with writer:
            counts = {writer.view("model").height, writer.relation("from model").pl().height}
            counts.add(writer.sql("from model").height)
        return counts.pop() if len(counts) == 1 else -1

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(read, range(40))) == {writer.view("model").height}
    duckdb.connect(str(writer.path)).close()


def test_the_end_of_a_block_closes_no_connection_of_another_thread(writer: Warehouse) -> None:
    with writer._reading() as connection:
        with writer:
            pass
        assert connection.execute("select 1").fetchall() == [(1,)]


def test_threads_read_and_write_in_turn(writer: Warehouse) -> None:
    writer.execute("create table own (a int)")

    def write(number: int) -> bool:
        return writer.execute("insert into own values ($n); from own", n=number).height > 0

    def read(number: int) -> bool:
        if number % 2:
            return writer.evaluate("training_step", pl.DataFrame([LAYOUT])).height == 1
        with writer:
            return writer.sql("from own").height <= 10 and writer.view("model").height > 0

    def plan(number: int) -> bool:
        return writer.plan(**{**FLAGSHIP, "num_gpus": 8, "top": number % 2 + 1}).num_gpus == 8

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(ask, n) for n in range(10) for ask in (write, read)]
        done += [pool.submit(plan, n) for n in range(2)]
        assert all(each.result() for each in done)
    assert sorted(writer.sql("from own")["a"]) == list(range(10))


def test_a_writer_waits_for_a_call_that_reads(writer: Warehouse) -> None:
    waits = threading.Event()
    alone = writer._turns.alone

    def waiting() -> AbstractContextManager[None]:
        waits.set()
        return alone()

    with ThreadPoolExecutor(1) as pool:
        with writer, writer._reading() as connection, pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer._turns, "alone", waiting)
            written = pool.submit(writer.execute, "create table mine (a int)")
            assert waits.wait(60)
            assert not written.done()
            assert connection.execute("select 1").fetchall() == [(1,)]
        assert written.result().is_empty()
    assert writer.sql("from mine").is_empty()


def test_a_writer_waits_for_a_relation_that_a_thread_reads(
    writer: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, waits = threading.Event(), threading.Event()

    def told(number: int) -> int:
        reads.set()
        assert waits.wait(60)
        return number

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: waits.set())
    monkeypatch.setattr("warehouse.api.database_file.time", clock)
    with ThreadPoolExecutor(1) as pool, writer:
        writer._of_thread().create_function("told", told, [int], int)
        rows = pool.submit(writer.relation("select told(1)").fetchall)
        assert reads.wait(60)
        assert writer.execute("create table mine (a int)").is_empty()
        assert rows.result() == [(1,)]


def test_a_relation_ends_when_a_method_writes(writer: Warehouse) -> None:
    with writer:
        models = writer.relation("from model")
        assert models.fetchall()
        writer.execute("create table mine (a int)")
        with pytest.raises(duckdb.Error, match="losed"):
            models.fetchall()
        assert writer.relation("from mine").fetchall() == []


def test_a_missing_database_is_an_error_unless_it_may_be_made(tmp_path: Path) -> None:
    path = tmp_path / "none.duckdb"
    with pytest.raises(DatabaseError, match="no such database"):
        Warehouse(path).sql("select 1")
    with pytest.raises(DatabaseError, match="no such database"), Warehouse(path):
        pass
    assert not path.exists()
    with Warehouse(path, writable=True) as warehouse:
        assert warehouse.sweep(STUDY).rows > 0
        assert warehouse.sql("select count(*) > 0 from configuration").item()


# ---- writing ----


@pytest.mark.parametrize(
    "write",
    [
        lambda warehouse: warehouse.sweep(STUDY),
        lambda warehouse: warehouse.measure(pl.DataFrame(), "mine"),
        lambda warehouse: warehouse.execute("create table mine (a int)"),
    ],
    ids=["sweep", "measure", "execute"],
)
def test_nothing_is_written_unless_it_is_asked_for(
    quickstart: Quickstart, write: Callable[[Warehouse], object]
) -> None:
    before = quickstart.database.stat().st_mtime_ns
    with pytest.raises(UsageError) as caught:
        write(Warehouse(quickstart.database))
    assert "this warehouse is read-only" in caught.value.message
    assert caught.value.hint.endswith("writable=True)")
    assert quickstart.database.stat().st_mtime_ns == before


def test_a_plan_is_stored_as_by_the_command_and_takes_the_names_of_its_options(
    tmp_path: Path,
) -> None:
    reader: Any = Warehouse(tmp_path / "new.duckdb")  # its type has the long names alone
    question = {"model": "megatron_1.7B", "accelerator": "A100", "tokens": "1G"}
    planned = reader.plan(**question, gpus=8, batch=64)
    assert planned.num_gpus == 8
    assert reader.rank(gpus=8, batch=64).height > 0
    with pytest.raises(UsageError, match="`gpus` and `num_gpus` are the same"):
        reader.rank(gpus=8, num_gpus=8)


def test_any_statement_is_executed_and_its_rows_returned(writer: Warehouse, tmp_path: Path) -> None:
    out = tmp_path / "mine.csv"
    mine = pl.DataFrame({"a": [1, 2]})
    with writer:
        assert writer.view("model").height > 0
        found = writer.execute(
            "create table own as from mine; insert into own values ($more); from own order by a",
            mine=mine,
            more=np.int64(3),
        )
        assert found["a"].to_list() == [1, 2, 3]
        assert writer.execute(f"copy own to '{out}'").item() == 3
        assert writer.execute("begin; delete from own where a = 3; commit").height == 0
        assert writer.sql("from own").equals(mine)
        assert writer.execute("").is_empty()
    assert out.read_text().splitlines() == ["a", "1", "2", "3"]


def test_a_transaction_without_a_commit_is_refused(writer: Warehouse) -> None:
    writer.execute("create table own (a integer)")
    with pytest.raises(InputError, match="is not committed: nothing of it is stored") as caught:
        writer.execute("begin; insert into own values (1)")
    assert caught.value.hint.startswith("add `commit` at the end")
    assert writer.sql("from own").is_empty()
    assert writer.execute("begin; insert into own values (1); rollback").is_empty()


@pytest.mark.parametrize(
    ("value", "kind", "read"),
    [
        (np.datetime64("2020-01-01T00:00:00.5", "ns"), "TIMESTAMP", "2020-01-01 00:00:00.5"),
        (np.datetime64("2020-02", "M"), "DATE", "2020-02-01"),
        (np.timedelta64(5000, "ns"), "INTERVAL", "00:00:00.000005"),
        (np.array(["2020-01-01"], dtype="M8[ns]"), "TIMESTAMP[]", "['2020-01-01 00:00:00']"),
        (np.array("2020-01-01", dtype="M8[D]"), "DATE", "2020-01-01"),
        ({5}, "INTEGER[]", "[5]"),
        (frozenset({np.int64(5)}), "INTEGER[]", "[5]"),
    ],
)
def test_times_of_numpy_and_sets_keep_their_values(
    reader: Warehouse, value: Any, kind: str, read: str
) -> None:
    found = reader.sql("select typeof($value) as kind, $value::varchar as read", value=value)
    assert found.row(0) == (kind, read)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.timedelta64(5, "ns"), "no whole number of microseconds"),
        (np.datetime64("2020-01-01T00:00:00.000000001", "ns"), "no whole number of microseconds"),
        (np.datetime64(20_000, "Y"), "beyond the times of Python"),
        (np.timedelta64(2, "M"), "no fixed length"),
        ([np.timedelta64(2)], "no fixed length"),
    ],
)
def test_times_of_numpy_that_python_does_not_have_are_refused(
    reader: Warehouse, value: Any, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        reader.sql("select $value as value", value=value)


def test_numbers_of_numpy_within_collections_are_parameters(writer: Warehouse) -> None:
    found = writer.sql("select $a.b as b, len($c) as n", a={"b": np.int64(3)}, c=[np.float64(1)])
    assert found.rows() == [(3, 1)]
    assert writer.sql("select a from mine", mine=pl.LazyFrame({"a": [1]})).item() == 1


def test_a_failed_read_in_execute_says_what_is_stored(writer: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        writer.execute(f"from read_csv('{tmp_path / 'missing.csv'}')")
    assert caught.value.hint == "only what a statement committed is stored"


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("insert into own values ('a')", "Could not convert"),
        ("from nowhere", "nowhere"),
        ("copy own to '/no/such/folder.csv'", "Cannot open file"),
        ("select $unknown", "unknown"),
    ],
)
def test_statements_are_run_all_or_not_at_all(writer: Warehouse, last: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        writer.execute(f"create table own (a int); insert into own values (1); {last}")
    with pytest.raises(InputError, match="`own` is no table"):
        writer.view("own")


def test_a_study_is_swept_from_a_mapping_or_a_file_alike(writer: Warehouse, tmp_path: Path) -> None:
    with writer:
        report = writer.sweep(STUDY)
        stored = writer.sql("select count(*) from configuration").item()
    assert report.rows == stored > 0
    path = tmp_path / "one.toml"
    path.write_text(
        'name = "one"\nestimator = "roofline"\n[space]\nmodel = "gpt3"\n'
        'strategy = "tensor_1d"\naccelerator = "H200"\nnvlink_size = 8\nnum_gpus = [8]\n'
        "global_batch_size = 8\n",
        encoding="utf-8",
    )
    again = writer.sweep(path)
    assert (again.rows, again.rows_before) == (0, stored)


@pytest.mark.long
def test_a_plan_stores_the_layouts_that_it_misses(writer: Warehouse) -> None:
    asked: dict[str, Any] = {"model": "gpt3_1.3B", "accelerator": "H100", "num_gpus": 1}
    with writer:
        assert writer.view("cell").height == 0
        run = writer.plan(**asked, tokens="1B", global_batch_size=16)
        stored = writer.view("cell").height
        again = writer.plan(**asked, tokens="1B", global_batch_size=16)
        assert writer.view("cell").height == stored > 0
    assert (run.num_gpus, run.document["swept"]["cells"]) == (1, stored)
    assert again.document["swept"]["cells"] == 0
    assert again.layouts.equals(run.layouts)


@pytest.mark.long
def test_a_sweep_or_plan_that_is_too_large_is_refused_as_by_the_commands(
    writer: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("sweep.sizes", "sweep.estimate", "plan.run"):
        monkeypatch.setattr(f"warehouse.{place}.LEAST_ROWS", 1)
    monkeypatch.setattr("warehouse.sweep.sizes.MOST_ROWS", 10)
    asked: dict[str, Any] = {"model": "gpt3_1.3B", "accelerator": "H100", "num_gpus": 1}
    with writer:
        for store in (
            lambda: writer.sweep(STUDY),
            lambda: writer.plan(**asked, tokens="1B", global_batch_size=16),
        ):
            with pytest.raises(UsageError, match="rows are more than 10") as caught:
                store()
            assert "--yes (in Python: allow_large=True)" in caught.value.hint
        assert writer.view("cell").height == 0
        assert writer.sweep(STUDY, allow_large=True).rows > 10


def test_every_fault_of_a_mapping_is_listed(writer: Warehouse) -> None:
    faulty = {**STUDY, "space": {**STUDY["space"], "num_gpus": "many", "colour": 1}}
    with pytest.raises(InputError) as caught:
        writer.sweep(faulty)
    assert "one: `num_gpus`" in str(caught.value)
    assert "one: `colour`" in str(caught.value)
    with pytest.raises(InputError, match="neither a file nor one that comes with the package"):
        writer.sweep("no_such_study")


@pytest.mark.long
def test_measured_runs_are_compared_and_a_faulty_row_stores_nothing(writer: Warehouse) -> None:
    measured = pl.DataFrame([{**LAYOUT, "step_seconds": 2.5}])
    with pytest.raises(InputError, match=r"frame: row 2: `step_seconds`"):
        writer.measure(pl.concat([measured, measured.with_columns(step_seconds=-1.0)]), name="mine")
    assert writer.view("measurement").height == 0
    [row] = writer.measure(measured, name="mine").to_dicts()
    assert row["time_relative_error"] == pytest.approx(row["step_seconds"] / 2.5 - 1)
    with pytest.raises(InputError, match="stored already"):
        writer.measure(measured, name="mine")
    assert writer.measure(measured, name="mine", replace=True).height == 1


# ---- values and errors ----


def test_numbers_are_checked_as_those_of_options(reader: Warehouse) -> None:
    with pytest.raises(InputError, match="`tokens` -1 must be above 0"):
        reader.plan(**{**FLAGSHIP, "tokens": -1})
    with pytest.raises(UsageError, match=r"`num_gpus` 1\.5 is not a whole number"):
        reader.rank(num_gpus=1.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="`top` 0 must be at least 1"):
        reader.rank(top=0)


def test_an_error_has_the_text_and_the_hint_of_the_command(reader: Warehouse) -> None:
    layout = {**LAYOUT, "model": "no such model"}
    with pytest.raises(InputError) as caught:
        reader.why(**layout)
    pairs = [f"{name}={value}" for name, value in layout.items()]
    code, _, err = call("why", *pairs, "--db", reader.path)
    assert (code, err) == (caught.value.exit_code, f"error: {caught.value}\n")
    assert caught.value.hint


def test_remarks_are_warnings(reader: Warehouse) -> None:
    frame = pl.DataFrame([{**LAYOUT, "tensor_paralel": 2}]).drop("tensor_parallel")
    with pytest.warns(UserWarning, match="did you mean `tensor_parallel`"):
        reader.evaluate("training_step", frame)
    frame = pl.DataFrame([LAYOUT, {**LAYOUT, "tensor_parallel": 5}])
    with pytest.warns(UserWarning, match="row 2"):
        assert reader.evaluate("training_step", frame, keep_valid=True).height == 1


def test_the_package_is_imported_without_duckdb_until_it_is_needed() -> None:
    code = (
        "import sys, warehouse; assert not {'duckdb', 'polars', 'numpy'} & set(sys.modules); "
        "from warehouse import Warehouse; assert 'duckdb' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_warehouse_goes_to_another_process(reader: Warehouse) -> None:
    other = pickle.loads(pickle.dumps(reader))
    assert (other.path, other.writable, other.wait) == (
        *(reader.path, reader.writable, reader.wait),
    )
    assert other.sql("select 1 as one").item() == 1


def test_the_largest_whole_number_stays_what_it_is_in_a_frame(reader: Warehouse) -> None:
    largest = str(2**128 - 1)
    assert reader.sql(f"select '{largest}'::uhugeint as x").item() == largest
