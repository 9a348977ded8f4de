"""Names of `--columns` that no answer has are refused; every column of an answer is known."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.shared import Command, Quickstart
from warehouse.cli import common
from warehouse.cli.output import refuse_unknown_columns

ANSWERS = (
    ("rank",),
    ("cost", "--model", "gpt3_1T", "--tokens", "20e12"),
    ("energy", "--model", "gpt3_1T", "--tokens", "20e12"),
    ("operations", "--best", "--model", "gpt3_1T", "--num-gpus", "4096"),
    ("explain", "model=llama3_8B", "accelerator=H100", "num_gpus=8"),
    ("why", "model=llama3_8B", "accelerator=H100", "num_gpus=8", "tensor_parallel=4"),
    ("why", "model=llama3_8B", "accelerator=H100", "num_gpus=8", "tensor_parallel=3"),
    pytest.param(("validate",), marks=pytest.mark.long),
    pytest.param(("calibrate", "published_megatron_recompute"), marks=pytest.mark.long),
    ("profiles",),
    ("status",),
    ("status", "gpt3_1T_1d"),
    ("config",),
    ("schema",),
    ("schema", "cell"),
    ("schema", "step_seconds"),
    ("plot",),
    ("sweep", "megatron", "--dry-run"),
)


@pytest.mark.usefixtures("same_fits")
@pytest.mark.parametrize("command", ANSWERS, ids=lambda words: " ".join(words[:2]))
def test_every_column_of_an_answer_can_be_chosen(
    warehouse: Command,
    quickstart: Quickstart,
    tiny_swept: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    names: set[str] = set()
    write = common._write

    def noted(columns: Sequence[str], *arguments: Any) -> None:
        names.update(columns)
        write(columns, *arguments)

    monkeypatch.setattr(common, "_write", noted)
    database = tiny_swept if command == ("validate",) else quickstart.database
    for form in ("table", "csv"):
        code, out, err = warehouse(*command, "--format", form, "--db", database)
        assert code in (0, 4), err
        names.update(next(csv.reader(io.StringIO(out)), ()) if form == "csv" else ())
    assert names
    refuse_unknown_columns([name for name in names if "," not in name and name])
