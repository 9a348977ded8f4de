"""Bad studies: a clear refusal, or rows that say they do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from tests.shared import Command

HEAD = """\
name = "bad"
estimator = "roofline"
variant = "corrected"
[space]
"""
SMALL = """\
num_layers = 4
hidden_size = 768
num_heads = 3
seq_len = 1024
accelerator = "H200"
nvlink_size = 8
num_gpus = 14
global_batch_size = 8
"""
GPT3 = """\
model = "gpt3"
accelerator = "H200"
nvlink_size = 8
num_gpus = 8
global_batch_size = 8
"""


@pytest.fixture
def sweep(
    warehouse: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[tuple[int, str, str], Path]]:
    """Sweep a study; return exit code, stdout and stderr, and the database it was to write."""

    def sweep(text: str) -> tuple[tuple[int, str, str], Path]:
        database, study = tmp_path / "warehouse.duckdb", tmp_path / "bad.toml"
        study.write_text(text)
        monkeypatch.chdir(tmp_path)
        return warehouse("sweep", "bad.toml", "--db", database), database

    return sweep


@pytest.mark.parametrize(
    ("study", "expected"),
    [
        pytest.param(
            HEAD + GPT3.replace("nvlink_size = 8", "nvlink_size = 0"),
            ["`nvlink_size` 0 must be at least 1"],
            id="a domain without GPUs",
        ),
        pytest.param(
            HEAD + SMALL + "tensor_parallel = 7\n",
            ["`tensor_parallel` 7 does not divide `num_heads` 3", "hint: use 1 or 3"],
            id="3 heads on 7-way tensor parallelism",
        ),
        pytest.param(
            HEAD + "[models.mine]\n" + SMALL.partition("accelerator")[0] + "ffn_hidden_size = 700\n"
            '[[case]]\nmodel = "mine"\naccelerator = "H200"\nnum_gpus = 3\nnvlink_size = 3\n'
            "tensor_parallel = 3\n",
            ["`tensor_parallel` 3 does not divide `ffn_hidden_size` 700"],
            id="a feed-forward width that cannot be split",
        ),
        pytest.param(
            HEAD + SMALL.replace("num_heads = 3", "num_heads = 5"),
            ["`num_heads` 5 does not divide `hidden_size` 768"],
            id="heads of unequal width",
        ),
        pytest.param(HEAD, ["`space` (none) is empty", "hint: name"], id="an empty space"),
        pytest.param(
            HEAD + GPT3.replace("num_gpus = 8", "num_gpus = []"),
            ['`num_gpus` "[]" is empty'],
            id="an empty list",
        ),
        pytest.param(
            HEAD.replace("corrected", "published")
            + GPT3.replace("nvlink_size = 8", "nvlink_size = 7"),
            ["`num_gpus` 8 leaves no layout", "fill fast domains of 7 GPUs exactly"],
            id="a space without a layout",
        ),
        pytest.param(
            HEAD + GPT3 + "[system]\nhbm_bytes = 0\n",
            ["`hbm_bytes` 0 must be at least 1"],
            id="no memory at all",
        ),
        pytest.param(
            HEAD + GPT3 + '[systems.H200]\nbased_on = "A100"\n',
            ['`systems` "H200" is in the `system` table already', 'based_on = "H200"'],
            id="a name that is taken",
        ),
    ],
)
def test_it_is_refused_with_value_and_rule_and_nothing_is_written(
    sweep: Callable[[str], tuple[tuple[int, str, str], Path]],
    study: str,
    expected: list[str],
) -> None:
    (code, out, err), database = sweep(study)
    assert (code, out) == (3, "")
    assert err.startswith("error: bad.toml: ")
    assert "Traceback" not in err
    for part in expected:
        assert part in err
    assert list(database.parent.iterdir()) == [database.with_name("bad.toml")]


@pytest.mark.long
def test_a_capacity_below_the_weights_gives_rows_that_do_not_fit(
    sweep: Callable[[str], tuple[tuple[int, str, str], Path]], warehouse: Command
) -> None:
    (code, _, err), database = sweep(HEAD + GPT3 + "[system]\nhbm_bytes = 1e9\n")
    assert code == 0, err
    with duckdb.connect(str(database), read_only=True) as connection:
        [(rows, fitting, least, capacity)] = connection.execute(
            "select count(*), count(*) filter (fits_memory), min(weights_bytes), max(hbm_bytes)"
            " from configuration"
        ).fetchall()
    assert rows > 0
    assert fitting == 0
    assert least > capacity == 1e9

    code, out, err = warehouse("rank", "--format", "json", "--db", database)
    assert (code, json.loads(out)) == (0, [])
    assert "no layout fits in memory: 1 problem" in err
