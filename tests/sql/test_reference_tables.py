"""What holds for the packaged reference tables beyond the checks of sql/checks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from estimators.registry import all_estimators, get
from warehouse.database import resources
from warehouse.database.catalog import packaged_catalog

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted(resources.reference_directory().glob("*.csv"))


NEAREST = {
    "A100 SXM 40GB": "A100",
    "A100 SXM 80GB": "A100",
    "H100 SXM 80GB": "H200",
    "H200 SXM 141GB": "H200",
    "B200 SXM 180GB": "B200",
    "GB200 (per GPU)": "B200",
    "B300 SXM": "B200",
    "MI300X": "H200",
    "A800 SXM 80GB": "A100",
    "H20 SXM 96GB": "H200",
    "GH200 96GB": "H200",
    "MI325X": "H200",
    "MI350X": "B200",
    "MI355X": "B200",
    "MI250X (per GCD)": "A100",
}
"""Real accelerators -> the published system that their assumed figures are taken from."""


@pytest.mark.parametrize(("name", "nearest"), NEAREST.items())
def test_what_a_real_system_assumes_is_taken_from_the_system_its_note_names(
    name: str, nearest: str
) -> None:
    systems = packaged_catalog().tables["system"]
    real, published = systems[name], systems[nearest]
    assumed = str(real["assumed"]).split(";")
    assert {attribute: real[attribute] for attribute in assumed} == {
        attribute: published[attribute] for attribute in assumed
    }
    assert f"assumed values are those of the system {nearest}" in str(real["note"])
    assert published["assumed"] is None


@pytest.mark.parametrize("name", NEAREST)
def test_a_real_system_has_its_accelerators_published_figures(name: str) -> None:
    tables = packaged_catalog().tables
    system, accelerator = tables["system"][name], tables["accelerator"][name]
    assert system["matrix_flops_per_second"] == accelerator["bf16_flops_per_second"]
    assert system["network_bytes_per_second"] == accelerator["nic_bytes_per_second"]
    for attribute in ("hbm_bytes_per_second", "hbm_bytes", "nvlink_bytes_per_second"):
        assert system[attribute] == accelerator[attribute]


def test_every_system_is_the_papers_a_known_accelerator_or_a_named_cluster() -> None:
    tables = packaged_catalog().tables
    papers = {"A100", "H200", "B200", "B200-next"}
    assert set(tables["system"]) == {*papers, *NEAREST, *tables["named_cluster"]}
    assert set(NEAREST) <= set(tables["accelerator"])


PARAMETERS = {
    # Hugging Face model cards: all weights of the checkpoint
    "llama2_7B": (6_738_415_616, 1e-4),
    "llama2_13B": (13_015_864_320, 1e-4),
    "llama2_70B": (68_976_648_192, 1e-4),
    "llama3_8B": (8_030_261_248, 1e-4),
    "llama3_70B": (70_553_706_496, 1e-4),
    "llama3_405B": (405_853_388_800, 1e-4),
    # arXiv 2005.14165 table 2.1, rounded there to two or three digits
    "gpt3_125M": (125e6, 0.01),
    "gpt3_350M": (350e6, 0.02),
    "gpt3_760M": (760e6, 0.01),
    "gpt3_1.3B": (1.3e9, 0.02),
    "gpt3_2.7B": (2.7e9, 0.02),
    "gpt3_6.7B": (6.7e9, 0.01),
    "gpt3_13B": (13.0e9, 0.02),
    "gpt3_175B": (175.0e9, 0.003),
}


@pytest.mark.parametrize(("name", "published"), PARAMETERS.items())
def test_the_shape_of_a_model_has_the_parameters_its_publication_counts(
    name: str, published: tuple[float, float]
) -> None:
    row = packaged_catalog().tables["model"][name]
    layers, hidden, ffn, heads, groups, sequence, vocabulary = (
        int(row[column] or 0)
        for column in (
            *("num_layers", "hidden_size", "ffn_hidden_size", "num_heads", "num_kv_heads"),
            *("seq_len", "vocab_size"),
        )
    )
    attention = 2 * hidden**2 + 2 * hidden * (hidden // heads) * groups
    if row["uses_glu"]:  # Llama: three matrices, no biases, an output layer of its own
        layer, embedding = attention + 3 * hidden * ffn + 2 * hidden, 2 * vocabulary * hidden
    else:  # GPT: two matrices, biases, two norms with biases, learned positions
        layer = attention + 4 * hidden + 2 * hidden * ffn + ffn + hidden + 4 * hidden
        embedding = (vocabulary + sequence) * hidden
    count, tolerance = published
    assert layers * layer + embedding == pytest.approx(count, rel=tolerance)


def test_heads_without_a_width_divide_that_of_the_model_and_groups_divide_heads() -> None:
    for row in packaged_catalog().tables["model"].values():
        width, heads = int(row["hidden_size"] or 0), int(row["num_heads"] or 1)
        assert row["head_size"] is not None or width % heads == 0, row
        assert int(row["num_heads"] or 0) % int(row["num_kv_heads"] or 1) == 0, row


def test_a_model_says_what_the_roofline_leaves_out_of_it() -> None:
    for row in packaged_catalog().tables["model"].values():
        note = str(row["note"])
        assert ("three matrices" in note) == bool(row["uses_glu"]), row
        assert ("grouped queries" in note) == (row["num_kv_heads"] != row["num_heads"]), row


@pytest.mark.parametrize("table", ["model", "system"])
def test_what_is_assumed_is_an_attribute_of_the_row_and_explained(table: str) -> None:
    for row in packaged_catalog().tables[table].values():
        assumed = str(row.get("assumed") or "").split(";")
        assert all(row[name] is not None for name in assumed if name), row
        assert row["note"] or not any(assumed), row


def test_every_attribute_an_estimator_takes_of_a_system_is_given() -> None:
    taken = {
        name
        for estimator in all_estimators()
        if estimator.search is not None
        for name in estimator.search.system_columns
    }
    for table in ("system", "device"):
        for record in packaged_catalog().tables[table].values():
            names = taken & set(record)
            assert len(names) >= 3
            assert all(record[name] is not None for name in names)


def test_every_model_whose_heads_fill_its_width_can_be_searched_on_every_system() -> None:
    catalog, estimator = packaged_catalog(), get("roofline")
    search = estimator.search
    assert search is not None
    models = catalog.tables["model"].values()
    divided = [
        row for row in models if int(row["hidden_size"] or 0) % int(row["num_heads"] or 1) == 0
    ]
    assert len(divided) > 0.9 * len(models)
    space: dict[str, tuple[Any, ...]] = {
        "model": tuple(str(row["model"]) for row in divided),
        "accelerator": tuple(catalog.tables["system"]),
        "nvlink_size": (8,),
        "num_gpus": (64,),
        "global_batch_size": (64,),
    }
    cells = list(search.cells(space, catalog, frozenset(estimator.mends)))
    assert len(cells) == len(space["model"]) * len(space["accelerator"])
    assert all(search.count(cell) > 0 for cell in cells)


def test_every_mend_is_explained(scratch: duckdb.DuckDBPyConnection) -> None:
    for estimator in all_estimators():
        rows = scratch.execute(
            "select erratum from erratum where estimator = ? and is_mended", [estimator.name]
        ).fetchall()
        assert set(estimator.mends) <= {erratum for (erratum,) in rows}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_source_is_a_publication_not_a_local_file(path: Path) -> None:
    assert not re.search(r"[0-9a-f]{16}\.txt|/(work|tmp|home)/", path.read_text("utf-8"))
