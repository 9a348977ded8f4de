"""The catalog: what estimators may look up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import duckdb
import pytest

from estimators.contract import Catalog, RefusedError
from estimators.names import folded
from warehouse.database.catalog import packaged_catalog
from warehouse.database.sql_text import quoted

FILES = {
    "model": "model,seq_len,hbm_bytes,is_mended,evaluated_at,source\n"
    "gpt,2048,80e9,true,2024-05-31,x\nbert,,,,,x\n",
    "system": "accelerator,hbm_bytes,source\nA100,80e9,x\nH200,141e9,x\n",
    "price": "accelerator,hbm_bytes,source\nA100,1,x\nA100,2,x\n",
    "gap": "model,seq_len,source\ngpt,1,x\n,2,x\n",
    "numbered": "num_gpus,seq_len,source\n4,1,x\n8,2,x\n",
    "nothing": "model,source\n",
    "accelerator_alias": "alias,accelerator,source\nA100-80GB,A100,x\nH200,A100,x\n",
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    place = tmp_path_factory.mktemp("reference")
    for name, text in FILES.items():
        (place / f"{name}.csv").write_text(text)
    return packaged_catalog(place)


def test_tables_whose_first_column_is_a_key_can_be_looked_up_in(catalog: Catalog) -> None:
    assert set(catalog.tables) == {"model", "system", "accelerator_alias"}
    assert list(catalog.tables["system"]) == ["A100", "H200"]


def test_rows_are_scalars_by_the_kind_of_their_column_and_null_is_none(catalog: Catalog) -> None:
    row = catalog.find("model", "gpt")

    assert list(row.items())[:4] == [
        *(("model", "gpt"), ("seq_len", 2048), ("hbm_bytes", 80e9), ("is_mended", True)),
    ]
    assert [type(value) for value in row.values()] == [str, int, float, bool, str, str]
    assert str(row["evaluated_at"]).startswith("2024-05-31")
    bert = catalog.find("model", "bert")
    assert [bert[name] for name in ("seq_len", "hbm_bytes", "is_mended")] == [None, None, None]


def test_other_spellings_of_an_accelerator_find_its_row(catalog: Catalog) -> None:
    assert catalog.find("system", "A100-80GB")["accelerator"] == "A100"
    assert "model" not in catalog.aliases


def test_a_spelling_that_is_itself_a_name_keeps_its_own_row(catalog: Catalog) -> None:
    assert catalog.find("system", "H200")["hbm_bytes"] == 141e9


def test_an_unknown_name_is_refused_with_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(RefusedError, match="A100"):
        catalog.find("system", "A10")


def test_a_database_has_the_rows_of_the_packaged_catalog(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    catalog = packaged_catalog()
    assert catalog.find("model", "gpt3_1T")["hidden_size"] == 25600
    assert catalog.find("system", "H200")["hbm_bytes"] == 141e9
    clusters = catalog.tables["own_system"]
    for table, records in catalog.tables.items():
        if table == "own_system":  # made of table named_cluster
            continue
        is_system = table == "system"
        rows = {n: row for n, row in records.items() if not (is_system and n in clusters)}
        stored = warehouse_connection.execute(f"from {quoted(table)}").fetchall()
        columns = [name for name, *_ in warehouse_connection.description or ()]
        texts = [
            {
                n: v.isoformat() if isinstance(v, date) else v
                for n, v in zip(columns, row, strict=True)
            }
            for row in stored
        ]
        assert sorted(texts, key=repr) == sorted(rows.values(), key=repr), table


def test_packaged_spellings_lead_to_systems_there_are() -> None:
    catalog = packaged_catalog()
    for spelling in catalog.aliases["system"]:
        assert catalog.find("system", spelling)


def packaged_names() -> Iterator[tuple[str, dict[str, str]]]:
    """Every table that is looked up in, with its names and aliases and the keys they mean."""
    catalog = packaged_catalog()
    for table, rows in catalog.tables.items():
        if not table.endswith("_alias"):
            aliases = catalog.aliases.get(table, {})
            yield table, {**{name: name for name in rows}, **aliases}


@pytest.mark.parametrize(("table", "names"), list(packaged_names()))
def test_no_two_entries_of_a_reference_table_have_names_that_are_taken_for_one_another(
    table: str, names: dict[str, str]
) -> None:
    meant: dict[str, set[str]] = {}
    for name, key in names.items():
        meant.setdefault(folded(name), set()).add(key)

    assert {name: keys for name, keys in meant.items() if len(keys) > 1} == {}
    assert len(meant) >= len(packaged_catalog().tables[table])


def test_a_name_whose_decimal_point_is_lost_finds_no_other_model() -> None:
    catalog = packaged_catalog()
    models = catalog.tables["model"]
    lost = {name.replace(".", "") for name in models if "." in name} - set(models)
    assert {"megatron_17B", "megatron_75B"} <= lost  # gpt3_13B is a model of its own
    for name in lost:
        with pytest.raises(RefusedError, match="is not in the `model` table"):
            catalog.find("model", name)


def test_a_name_in_other_letters_and_separators_finds_its_entry() -> None:
    catalog = packaged_catalog()
    for table, names in packaged_names():
        for name, key in names.items():
            spelt = name.swapcase().replace("_", " ").replace("-", " ")
            assert next(iter(catalog.find(table, spelt).values())) == key


def test_sql_takes_the_same_names_for_one_another(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    asked = [name for _, names in packaged_names() for name in names]
    asked += ["gpt3-1-3B", " mpt .7B ", "A..B 1.. 2", "", "3 b 4", "größe 1.5"]

    found = warehouse_connection.execute("select folded_name(unnest(?))", [asked]).fetchall()

    assert [name for (name,) in found] == [folded(name) for name in asked]
