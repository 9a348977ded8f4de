"""The JSON of every command is as its schema says, and what is promised of it stays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator

from tests.cli.planning import QUESTION
from tests.cli.promises import FILE, options, promises
from tests.cli.test_every_command import COMMANDS, WITHOUT_ROWS
from tests.shared import Command, Quickstart
from warehouse.cli import commands
from warehouse.cli.documents import DOCUMENTS, document_schema
from warehouse.show.json_schema import Deprecated, schema_of
from warehouse.sweep import progress

LAYOUT = (
    *("model=llama3_8B", "accelerator=H100", "num_gpus=64", "global_batch_size=256"),
    "tensor_parallel=4",
)
RUN = ("--num-gpus", 8, "--global-batch-size", 64, "--model", "gpt3_1.3B", "--accelerator", "H100")
SHAPE = ("num_layers=8", "hidden_size=1024", "data_parallel=8")
TIMINGS = Path(__file__).parents[2] / "docs" / "timings_b200.csv"

READING: dict[str, tuple[object, ...]] = {
    "why": ("why", *LAYOUT),
    "why excluded": ("why", *LAYOUT[:-1], "tensor_parallel=7"),
    "rank": ("rank",),
    "rank by memory": ("rank", "--model", "gpt3_1T", "--by", "memory_bytes", "--top", 1),
    "cost": ("cost", "--model", "gpt3_1T", "--tokens", 20e12),
    "energy": ("energy", "--model", "gpt3_1T", "--tokens", 20e12),
    "explain": ("explain", *LAYOUT),
    "operations": (
        *("operations", "--best", "--model", "gpt3_1T", "--accelerator", "H200"),
        *("--num-gpus", 4096),
    ),
    "show": ("show", *LAYOUT),
    "show another estimator": ("show", "--estimator", "pipeline", "chip=A100_40GB", *SHAPE),
    "show a table": ("show", "--estimator", "cluster", "--table", "compute"),
    "plot": ("plot",),
    "calibrate kernels": ("calibrate", "--kernels", TIMINGS),
    "profiles": ("profiles",),
    "sweep": ("sweep", "gpt3_1T_1d", "--dry-run"),
    "sql": ("sql", "select 1 as a, null as b, [1.5] as c, {'d': 'e'} as f"),
    "schema": ("schema",),
    "schema of a view": ("schema", "configuration_rank"),
    "schema of a column": ("schema", "num_gpus"),
    "config": ("config",),
    "status": ("status",),
    "status of a study": ("status", "gpt3_1T_1d"),
    "plan dry run": ("plan", *QUESTION, "--gpus", 8, "--dry-run"),
}
"""Commands that write nothing."""

WRITING: dict[str, tuple[object, ...]] = {
    "plan": ("plan", *QUESTION, "--gpus", 8),
    "plan several": ("plan", *QUESTION, "--gpus", 8, "--gpus", 1, "--fit-probability", 0.99),
    "measure": ("measure", "--name", "mine", "--seconds", 0.5, *RUN),
    "calibrate": ("calibrate", "published_megatron_recompute", "--name", "mine"),
    "profiles stored": ("profiles",),
}
"""Commands that write; each sees what those before it wrote."""


def faults(name: str, answer: Any) -> list[str]:
    """Return where an answer of a command breaks its schema."""
    errors = Draft202012Validator(document_schema(name)).iter_errors(answer)
    return [f"{each.json_path}: {each.message[:300]}" for each in errors]


def answer_of(warehouse: Command, case: tuple[object, ...], database: Path) -> Any:
    code, out, err = warehouse(*case, "--json", "--db", database)
    assert code == 0, err
    return json.loads(out)


def test_every_command_that_prints_an_answer_has_a_schema_and_a_case() -> None:
    assert set(DOCUMENTS) == COMMANDS.keys() - WITHOUT_ROWS
    tried = {case[0] for case in (*READING.values(), *WRITING.values())} | {"validate"}
    assert tried == set(DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_one_and_has_its_version_in_its_id(warehouse: Command, name: str) -> None:
    code, out, err = warehouse("schema", "--json-schema", name)
    assert (code, err) == (0, "")
    schema = json.loads(out)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:training-warehouse:{name}:{DOCUMENTS[name].version}"
    assert schema == document_schema(name)


@pytest.mark.parametrize("case", READING)
@pytest.mark.long
def test_an_answer_is_as_its_schema_says(
    warehouse: Command, quickstart: Quickstart, case: str
) -> None:
    answer = answer_of(warehouse, READING[case], quickstart.database)
    assert faults(str(READING[case][0]), answer) == []


@pytest.mark.usefixtures("same_fits")
@pytest.mark.long
def test_answers_of_commands_that_write_are_as_their_schemas_say(
    warehouse: Command, empty_warehouse: Path, tmp_path: Path
) -> None:
    database = Path(shutil.copyfile(empty_warehouse, tmp_path / "warehouse.duckdb"))
    for case, arguments in WRITING.items():
        answer = answer_of(warehouse, arguments, database)
        assert faults(str(arguments[0]), answer) == [], case
        assert answer, case


@pytest.mark.long
def test_checks_are_as_their_schema_says(warehouse: Command, quickstart: Quickstart) -> None:
    answer = answer_of(warehouse, ("validate",), quickstart.database)
    assert faults("validate", answer) == []
    assert answer["published_accuracy"]


def test_a_running_sweep_is_as_its_schema_says(
    warehouse: Command, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("study", "rows", "total_rows", "cells", "total_cells", "rows_per_second", "pid")
    values = {**dict.fromkeys(names, 1), "study": "big", "rows_per_second": 0.5}
    monkeypatch.setattr(progress, "read_progress", lambda _: values)
    answer = answer_of(warehouse, ("status",), empty_warehouse)
    assert answer["running"]["study"] == "big"
    assert faults("status", answer) == []


def mutations(answer: Any) -> Iterator[tuple[str, Any]]:
    """Yield an answer with each key gone, or of another type, and what was done to it."""
    first = answer[0] if isinstance(answer, list) else answer
    for name in first:
        changed = {key: value for key, value in first.items() if key != name}
        yield f"no {name}", [changed] if isinstance(answer, list) else changed


@pytest.mark.parametrize(
    ("case", "may_go"),
    [
        ("why", set()),
        ("explain", set()),
        ("cost", set()),
        ("status", set()),
        # other problems have other columns
        ("rank", {"seq_len", "framework", "profile", "precision", "number_recipe"}),
    ],
)
@pytest.mark.long
def test_a_schema_misses_every_key_that_is_gone(
    warehouse: Command, quickstart: Quickstart, case: str, may_go: set[str]
) -> None:
    answer = answer_of(warehouse, READING[case], quickstart.database)
    passed = {said for said, changed in mutations(answer) if not faults(case, changed)}
    assert passed - {"no rank_by_time", "no recompute_modules"} == {f"no {each}" for each in may_go}


def test_a_schema_finds_a_wrong_type(planned: tuple[Path, dict[str, Any], str]) -> None:
    plan = planned[1]
    assert faults("plan", plan) == []
    for wrong in (
        {**plan, "more": 1},
        {**plan, "num_gpus": "8"},
        {**plan, "layouts": [{}]},
        {"answers": [{"question": plan["question"], "num_gpus": 8, "error": 1, "hint": ""}]},
    ):
        assert faults("plan", wrong)
    unanswered = {"question": plan["question"], "num_gpus": 8, "error": "none fits", "hint": ""}
    assert faults("plan", {"answers": [plan, unanswered]}) == []


def test_no_command_has_the_schema_of_a_command_without_an_answer(warehouse: Command) -> None:
    code, out, err = warehouse("schema", "--json-schema", "compact")
    assert (code, out) == (2, "")
    assert err.startswith("error: `--json-schema` compact: no command prints JSON of it\nhint: use")
    code, _, err = warehouse("schema", "model", "--json-schema", "plan")
    assert code == 2
    assert "exclude one another" in err


# ---- what is promised ----

PROMISED = json.loads(FILE.read_text("utf-8"))


def broken(promised: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the promises that are not kept."""
    lost = []
    for name, names in promised["options"].items():
        known = {*now["options"].get(name, ()), *commands.FORMER_OPTIONS}
        lost += [f"{name} {option}" for option in names if option not in known]
    for name, document in promised["json"].items():
        found = now["json"].get(name, {"version": 0, "keys": []})
        if found["version"] == document["version"]:
            lost += [f"{name} {key}" for key in document["keys"] if key not in found["keys"]]
        elif found["version"] < document["version"]:
            lost.append(f"{name} has no version {document['version']}")
    return lost


def test_options_and_keys_that_are_promised_are_there() -> None:
    assert broken(PROMISED, promises()) == [], (
        "docs/stability.md says how an option or a key goes; then `python -m tests.cli.promises`"
    )


def test_a_promise_that_is_broken_is_found() -> None:
    now = promises()
    assert now == PROMISED, "something came: run `python -m tests.cli.promises`"
    now["options"]["plan"].remove("--days")
    now["json"]["plan"]["keys"].remove("cost_usd: number")
    now["json"]["why"] = {"version": 2, "keys": []}  # said by its number
    assert broken(PROMISED, now) == ["plan --days", "plan cost_usd: number"]


def test_a_former_option_works_and_says_so(
    warehouse: Command, monkeypatch: pytest.MonkeyPatch, empty_warehouse: Path
) -> None:
    given = ("rank", "--cards=8", "--json", "--db", empty_warehouse)
    assert warehouse(*given)[0] == 2
    monkeypatch.setitem(commands.FORMER_OPTIONS, "--cards", "--num-gpus")
    _, _, err = warehouse(*given)
    assert err.startswith("deprecated: --cards is now --num-gpus; the next version drops that name")
    assert "no configuration is stored" in err
    assert "--cards" not in options()["rank"]


def test_the_schema_of_a_key_that_goes_names_the_new_one() -> None:
    @dataclass
    class Answer:
        step_seconds: float
        step_time: Annotated[float, Deprecated("step_seconds")]

    properties = schema_of(
        Answer,
    )["properties"]
    assert "deprecated" not in properties["step_seconds"]
    assert properties["step_time"]["deprecated"] is True
    assert properties["step_time"]["description"] == "deprecated: use step_seconds"
