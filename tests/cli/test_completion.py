"""Completion in a shell: the candidates, and the modules that it imports."""

from __future__ import annotations

import os

import pytest

from tests.cli.test_imports import COMMAND_LINE, imported
from tests.shared import Program, call
from warehouse.cli.commands import COMMANDS


def asked_for(line: str, shell: str = "bash") -> dict[str, str]:
    """Return the variables that a shell sets to complete a line."""
    return {
        "_WAREHOUSE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }


def completed(program: Program, line: str, shell: str = "bash") -> list[str]:
    """What `line`, whose last word is begun, may go on with."""
    done = program(env={**os.environ, **asked_for(line, shell)})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_every_command_is_completed(program: Program) -> None:
    assert completed(program, "warehouse ") == [entry.name for entry in COMMANDS]
    assert completed(program, "warehouse sw") == ["sweep"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rank --model llama3_7", "llama3_70B"),
        ("rank --accelerator H2", "H200"),
        ("plan --accelerator H100_S", "H100_SXM_80GB"),
        ("rank --estimator train", "training_step"),
        ("rank --variant cor", "corrected"),
        ("plan --framework mega", "megatron_core"),
        ("sweep gpt3_1T_1", "gpt3_1T_1d"),
        ("show --estimator roof", "roofline"),
        ("schema configuration_r", "configuration_rank"),
        ("rank --format js", "json"),
        ("rank --nvl", "--nvlink-size"),
    ],
)
def test_values_and_options_are_completed(
    monkeypatch: pytest.MonkeyPatch, line: str, expected: str
) -> None:
    for name, value in asked_for(f"warehouse {line}").items():
        monkeypatch.setenv(name, value)
    code, out, err = call()
    assert (code, err) == (0, "")
    found = out.splitlines()
    assert expected in found
    begun = line.rsplit(" ", maxsplit=1)[-1]
    assert all(word.startswith(begun) and " " not in word for word in found)


def test_a_name_that_is_completed_is_known_to_the_command(program: Program) -> None:
    done = program(
        "show", "--estimator", "training_step", "model=llama3_8B", "accelerator=H100_SXM_80GB"
    )
    assert "`accelerator` table" not in done.stderr
    assert "`num_gpus`" in done.stderr or done.returncode == 0


def test_completion_imports_no_library_but_typer() -> None:
    packages, _ = imported(**asked_for("warehouse rank --model gpt"))
    assert packages <= COMMAND_LINE
