"""Queries of plots: filters as lines of their own, values as a shell takes them."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pytest

from estimators.contract import Scalar
from tests.warehouse.scans import rows_read
from warehouse.plot.draw import rows_of
from warehouse.plot.registry import PLOTS, Plot, filtered, parameters_of, with_values

QUERY = """\
-- What it costs in $: no parameter.
select $tokens as dataset_tokens
from cell
where
    true
    and model = $model
    and num_gpus = $num_gpus
"""


def test_a_line_whose_parameter_has_no_value_is_left_out() -> None:
    assert parameters_of(QUERY) == ("tokens", "model", "num_gpus")
    assert filtered(QUERY, {"tokens": 1.0, "num_gpus": 8}).splitlines()[-2:] == [
        "    true",
        "    and num_gpus = $num_gpus",
    ]


def test_values_are_written_as_sql_takes_them() -> None:
    shown = with_values(QUERY, {"tokens": 1e12, "model": "it's", "num_gpus": 8})
    assert "select 1e+12 as dataset_tokens" in shown
    assert "model = 'it''s'" in shown
    assert shown.endswith("num_gpus = 8\n")
    assert with_values("$a", {"a": 0.1 + 0.2}) == "0.30000000000000004\n"
    assert with_values("$a", {"a": True}) == "true\n"


@pytest.mark.parametrize("name", PLOTS)
def test_a_query_says_what_it_gives_and_its_grain(name: str) -> None:
    first, second = PLOTS[name].sql.splitlines()[:2]
    assert first.startswith("-- ") and first.endswith(".")
    assert second.startswith("-- Grain: one row per ")


@pytest.mark.long
@pytest.mark.parametrize("name", PLOTS)
def test_a_query_is_one_without_a_filter_and_runs_with_every_one(
    name: str, empty: duckdb.DuckDBPyConnection
) -> None:
    plot = PLOTS[name]
    values = {"tokens": 1e12, "num_gpus": 8, "nvlink_size": 8, "global_batch_size": 8}
    every = {each: plot.defaults.get(each, values.get(each, "x")) for each in plot.filters}
    columns = empty.sql(with_values(plot.sql, every)).columns
    assert set(plot.single) <= set(columns)
    # with fewer conditions only the syntax can be another: to bind it takes as long
    [statement] = empty.extract_statements(with_values(plot.sql, plot.defaults))
    assert statement.type == duckdb.StatementType.SELECT


@pytest.mark.long
def test_a_filter_reaches_the_scan(quickstarted: duckdb.DuckDBPyConnection) -> None:
    plot = PLOTS["training_days"]

    def read(**values: Scalar) -> dict[str, int]:
        return rows_read(quickstarted, with_values(plot.sql, {**plot.defaults, **values}))

    everything = read()
    assert read(accelerator="no system").get("problem", 0) == 0 < everything["problem"]
    # the best layouts are stored: no layout of a study is read
    assert "leading_row" in everything
    assert "roofline" not in everything


@dataclass(frozen=True)
class Points(Plot):
    """A picture of a table of points."""

    @property
    def sql(self) -> str:
        return "select * from points\nwhere true\nand model = $model\nand study = $study\n"


def test_a_known_model_is_drawn_and_not_a_shape_with_more_points(
    empty: duckdb.DuckDBPyConnection,
) -> None:
    empty.execute(
        "create or replace temp table points as select * from (values "
        "('shapes', null, 1), ('shapes', null, 2), ('shapes', null, 3), "
        "('models', 'gpt3_1T', 4), ('models', 'vit_era5', 5), ('models', 'vit_era5', 6)"
        ") as point (study, model, speed)"
    )
    plot = Points("points", "networks", "", (), ("model", "study"))
    frame, values, chosen = rows_of(empty, plot, {})
    assert frame["speed"].to_list() == [4]
    assert values == {"model": "gpt3_1T", "study": "models"}
    assert chosen == {"model": ("gpt3_1T", ("vit_era5",))}
    # the query with these values gives the rows that are drawn, also if there is one model alone
    empty.execute("delete from points where model = 'gpt3_1T'")
    frame, values, _ = rows_of(empty, plot, {})
    assert frame["speed"].to_list() == [5, 6]
    assert empty.sql(with_values(plot.sql, values)).pl().equals(frame)
    frame, _, _ = rows_of(empty, plot, {"study": "shapes"})
    assert frame["speed"].to_list() == [1, 2, 3]
