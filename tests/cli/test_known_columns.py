"""Commands declare their columns, and refuse other names of `--columns` before any work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.shared import Command, Quickstart
from warehouse.cli import common
from warehouse.cli.output import Output
from warehouse.show.formats import Format

OF_PAGES: tuple[tuple[str, ...], ...] = (
    ("rank",),
    ("cost", "--model", "gpt3_1T", "--tokens", "20e12"),
    ("energy", "--model", "gpt3_1T", "--tokens", "20e12"),
    ("operations", "--best", "--model", "gpt3_1T", "--num-gpus", "4096"),
    ("explain", "model=llama3_8B", "accelerator=H100", "num_gpus=8"),
    ("why", "model=llama3_8B", "accelerator=H100", "num_gpus=8", "tensor_parallel=4"),
    ("why", "model=llama3_8B", "accelerator=H100", "num_gpus=8", "tensor_parallel=3"),
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
"""Commands that know the columns of their tables before they open a database."""

ANSWERS = (
    *OF_PAGES,
    pytest.param(("validate",), marks=pytest.mark.long),
    pytest.param(("calibrate", "published_megatron_recompute"), marks=pytest.mark.long),
)


@pytest.mark.usefixtures("same_fits")
@pytest.mark.parametrize("form", ["table", "csv"])
@pytest.mark.parametrize("command", ANSWERS, ids=lambda words: " ".join(words[:2]))
def test_every_column_of_an_answer_is_declared(
    warehouse: Command,
    quickstart: Quickstart,
    tiny_swept: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    form: str,
) -> None:
    names: set[str] = set()
    declared: list[tuple[Sequence[str], ...]] = []
    write, expect = common._write, Output.expect

    def noted(columns: Sequence[str], *arguments: Any) -> None:
        names.update(columns)
        write(columns, *arguments)

    def expected(output: Output, *columns: Sequence[str], **of_csv: Sequence[str]) -> None:
        declared.append((*columns, *of_csv.values()))
        expect(output, *columns, **of_csv)

    monkeypatch.setattr(common, "_write", noted)
    monkeypatch.setattr(Output, "expect", expected)
    database = tiny_swept if command == ("validate",) else quickstart.database
    code, _, err = warehouse(*command, "--format", form, "--db", database)
    assert code in (0, 4), err
    chosen = ",".join(name for name in names if "," not in name and name)
    for columns in declared:  # `validate` has some only where columns are chosen
        expect(Output(named=Format(form), columns=chosen or None), *columns)


@pytest.mark.parametrize("command", OF_PAGES, ids=lambda words: " ".join(words[:2]))
def test_an_unknown_column_is_refused_before_the_database_is_opened(
    warehouse: Command, tmp_path: Path, command: tuple[str, ...]
) -> None:
    missing = tmp_path / "missing.duckdb"
    for form in ("table", "csv"):
        code, out, err = warehouse(
            *command, "--columns", "no_such", "--format", form, "--db", missing
        )
        assert (code, out) == (2, "")
        assert "`--columns` no_such: the result has no such column" in err
    assert not missing.exists()
