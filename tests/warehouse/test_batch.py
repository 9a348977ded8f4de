"""Batches: every row evaluated in its place, or refused with its number and reason."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from estimators.contract import RefusedError
from tests.small_estimator import CATALOG, OTHER_RELATION, SMALL_RELATION, SmallEstimator
from tests.warehouse.batches import Batches
from warehouse.evaluate import file
from warehouse.evaluate.file import find_relation

RESULTS = ["step_seconds", "flops_per_gpu", "fits_memory"]
ROWS = "hidden_size,num_layers,num_gpus,tensor_parallel\n8,2,4,2\n8,3,1,1\n16,2,2,1\n"


def test_each_row_is_evaluated_in_its_place(run: Batches) -> None:
    found = run(ROWS)
    assert found["step_seconds"].to_list() == [4e-6, 24e-6, 16e-6]
    assert found["flops_per_gpu"].to_list() == [32.0, 48.0, 64.0]
    assert found["fits_memory"].to_list() == [True, True, True]
    assert run.report.num_rows == 3


def test_mends_reach_the_estimator(run: Batches) -> None:
    assert run(ROWS, mends=frozenset({"S1"}))["step_seconds"].to_list() == [6e-6, 36e-6, 24e-6]


def test_input_columns_stay_and_results_are_appended(run: Batches) -> None:
    found = run("note,num_layers,hidden_size\na,2,8\n")
    assert found.columns == ["note", "num_layers", "hidden_size", *RESULTS]


def test_results_in_the_input_are_ignored_and_replaced_in_place(run: Batches) -> None:
    found = run("num_layers,fits_memory,hidden_size,step_seconds\n2,what,8,-1\n")
    assert found.columns == ["num_layers", "fits_memory", "hidden_size", *RESULTS[:2]]
    assert found.row(0) == (2, True, 8, 16e-6, 32.0)


def test_missing_columns_and_empty_cells_take_the_estimators_defaults(run: Batches) -> None:
    found = run(
        "model,hidden_size,activation_recompute,hbm_bytes\n"
        "tiny,,,\ntiny,32,full,\n, 32 , none ,1\n".replace("\n, 32", "\ntiny, 32")
    )
    assert found["step_seconds"].to_list() == [16e-6, 128e-6, 64e-6]
    assert found["fits_memory"].to_list() == [True, True, False]
    assert found["hbm_bytes"].to_list() == [None, None, 1]  # kept as given


def test_results_do_not_depend_on_the_size_of_blocks(
    run: Batches, small: SmallEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"{8 * i},{i}\n" for i in range(1, 24))
    whole = run("hidden_size,num_layers\n" + rows)
    monkeypatch.setattr(file, "BLOCK_ROWS", 5)
    small.block_sizes.clear()
    assert run("hidden_size,num_layers\n" + rows, "blocks.csv").equals(whole)
    assert small.block_sizes == [5, 5, 5, 5, 3]


def test_another_relation_may_be_named(run: Batches, small: SmallEstimator) -> None:
    found = run(ROWS, relation=find_relation(small, "small_part"))
    assert found.columns[-1] == "step_seconds"
    assert find_relation(small, None) is SMALL_RELATION
    with pytest.raises(RefusedError, match="known: small, small_part"):
        find_relation(small, "large")
    assert find_relation(small, "small_part") is OTHER_RELATION


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("num_gpus\nx\n", 'row 1: `num_gpus` "x" must be a whole number'),
        ("num_gpus\n4\n2.5\n", "row 2: `num_gpus` 2.5 must be a whole number"),
        ("num_gpus\nNaN\n1\n", "row 1: `num_gpus` nan is not a finite number"),
        ("num_gpus\n1\n-inf\n", "row 2: `num_gpus`"),
        ("hbm_bytes\n1\ninf\n", "row 2: `hbm_bytes` inf is not a finite number"),
        ("hbm_bytes\n1e999\n", "is not a finite number"),
        ("hbm_bytes\n0\n", "row 1: `hbm_bytes` 0 must be at least 1"),
        ("num_gpus\n9007199254740993\n", "row 1: `num_gpus` 9007199254740993 must be at most"),
        ("num_gpus\n99999999999999999999\n", "must be at most"),
        ("num_gpus\n1\n0\n", "row 2: `num_gpus` 0 must be at least 1"),
        ("num_gpus\ntrue\n", "column of type Boolean; it must hold a whole number"),
        ("activation_recompute\nsome\n", 'row 1: `activation_recompute` "some" is not known'),
        ("model\nhuge\n", 'row 1: `model` "huge" is not known\nhint: use tiny'),
        ("hidden_size,num_layers\n8,\n", "row 1: `num_layers` is missing"),
        ("hidden_size,num_layers\n8,2\n,\n8,2\n", "row 2: `row` (none) has no value at all"),
        ("hidden_size,num_layers\n8,2\n8\n", "line 3 has 1 cells, not 2"),
        ("hidden_size,num_layers\n8,2,4\n", "line 2 has 3 cells, not 2\nhint: write numbers"),
        ("hidden_size,hidden_size\n8,2\n", "column `hidden_size` is twice in the header"),
        ("hidden_size;num_layers\n8;2\n", "has semicolons between its columns"),
        ("colour\nred\n", "no column that the estimator reads"),
        ("", "has no header"),
        ("\n\n", "has no header"),
        (b"hidden_size\n\xff\n", "UTF-8"),
        (b"hidden_\xff\n8\n", "not UTF-8"),
        ('hidden_size,num_layers\n"8,2\n', "cannot be read"),
    ],
)
def test_a_faulty_file_is_refused_with_row_column_value_and_reason(
    refusal: Callable[..., str], rows: bytes | str, expected: str
) -> None:
    message = refusal(rows).lower()
    assert "in.csv: " in message
    assert expected.lower() in message


def test_all_refusals_are_reported_in_order_of_rows(
    refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "BLOCK_ROWS", 2)
    message = refusal(
        "model,num_gpus,tensor_parallel,hbm_bytes\n"
        "huge,4,2,\ntiny,4,2,\ntiny,0,2,-1\ntiny,4,3,\ntiny,4,4,x\n"
    )
    assert re.findall(r"row (\d): `(\w+)`", message) == [
        ("1", "model"),
        ("3", "hbm_bytes"),
        ("3", "num_gpus"),
        ("4", "tensor_parallel"),
        ("5", "hbm_bytes"),
    ]


def test_a_parquet_column_of_another_kind_is_refused(refusal: Callable[..., str]) -> None:
    frame = pl.DataFrame({"hidden_size": [[1], [2]], "model": [1, 2]})
    message = refusal(frame)
    assert "`hidden_size`" in message
    assert "List(Int64); it must hold a whole number" in message
    assert "Int64; it must hold a text" in message


def test_valid_rows_can_be_kept(run: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "BLOCK_ROWS", 2)
    found = run(
        "id,model,hbm_bytes\na,tiny,1\nb,huge,1\nc,tiny,x\nd,tiny,-1\ne,tiny,\nf,tiny,5\n",
        keep_valid=True,
    )
    assert found["id"].to_list() == ["a", "e", "f"]
    assert found["step_seconds"].to_list() == [16e-6] * 3
    assert [(r.row, r.column) for r in run.report.refusals] == [
        (1, "model"),
        (2, "hbm_bytes"),
        (3, "hbm_bytes"),
    ]
    assert run.report.num_rows == 3


def test_keeping_valid_rows_of_none_gives_no_rows(run: Batches) -> None:
    assert run("model\nhuge\n", keep_valid=True).height == 0


def test_a_refusal_without_a_row_refuses_every_row_and_is_reported_once(
    refusal: Callable[..., str], small: SmallEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "BLOCK_ROWS", 1)

    monkeypatch.setattr(small, "resolve", lambda *_: CATALOG.find("model", "none such"))
    message = refusal("model\ntiny\ntiny\n")
    assert message.count("none such") == 1


def test_a_misspelt_column_is_passed_through_with_a_warning(run: Batches) -> None:
    warnings: list[str] = []
    found = run("hiden_size,hidden_size,num_layers,id\n1,8,2,3\n", warn=warnings.append)
    assert len(warnings) == 1
    assert "`hiden_size` is not read; did you mean `hidden_size`?" in warnings[0]
    assert found["hiden_size"].to_list() == [1]


def test_a_misspelt_column_is_reported_even_if_the_file_is_refused(
    refusal: Callable[..., str],
) -> None:
    warnings: list[str] = []
    refusal("hiden_size,num_layers\n8,2\n", warn=warnings.append)
    assert "hiden_size" in warnings[0]


def test_a_million_rows_keep_their_order(run: Batches) -> None:
    size = np.arange(1, 1_000_001)
    frame = pl.DataFrame({"hidden_size": size, "num_layers": np.ones_like(size)})
    found = run(frame, "out.parquet")
    assert np.array_equal(found["flops_per_gpu"].to_numpy(), 2.0 * size)
