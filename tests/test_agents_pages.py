"""AGENTS.md, the skill, CITATION.cff and the release workflow; their commands run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.build.console import CONSOLE, commands, comparable, printed
from tests.cli.test_json_schemas import faults
from tests.shared import Shared, call
from warehouse.cli import commands as listed

ROOT = Path(__file__).parents[1]
SKILL = (ROOT / "skills" / "training-warehouse" / "SKILL.md").read_text("utf-8")
AGENTS = (ROOT / "AGENTS.md").read_text("utf-8")
PAGE = (ROOT / "docs" / "agents.md").read_text("utf-8")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
QUESTIONS = re.split(r"^### (\d+)\. (.+\?)$", SKILL, flags=re.MULTILINE)[1:]
COMMANDS = [one.text for block in CONSOLE.findall(SKILL) for one in commands(block)]


def keys_in(value: Any) -> set[str]:
    """Return every key of a JSON value."""
    if isinstance(value, list):
        return {key for each in value for key in keys_in(each)}
    return set(value) | keys_in([*value.values()]) if isinstance(value, dict) else set()


@pytest.fixture(scope="module")
def answers(shared: Shared) -> dict[str, Any]:
    """What the commands of the skill answer, one after the other, in an empty database."""

    def make(place: Path) -> None:
        found = {}
        for command in COMMANDS:
            arguments = shlex.split(command)[1:]
            code, out, err = call(*arguments, "--db", place / "warehouse.duckdb")
            assert code == 0, f"{command}\n{err}"
            found[command] = json.loads(out)
        (place / "answers.json").write_text(json.dumps(found), encoding="utf-8")

    found = json.loads((shared("skill", make) / "answers.json").read_text("utf-8"))
    return dict(found)


def test_the_skill_says_when_to_use_it() -> None:
    _, front, _ = SKILL.split("---\n", 2)
    said = yaml.safe_load(front)
    assert said["name"] == "training-warehouse"
    assert 50 < len(said["description"]) < 1024
    assert len(SKILL.splitlines()) < 500


def test_the_skill_has_ten_questions_each_with_one_command_and_how_to_read_its_answer() -> None:
    assert [int(number) for number in QUESTIONS[::3]] == list(range(1, 11))
    for text in QUESTIONS[2::3]:
        assert len([*commands("".join(CONSOLE.findall(text)))]) == 1
        assert "`" in CONSOLE.sub("", text)
    assert len(COMMANDS) == 10


@pytest.mark.parametrize("number", range(10), ids=lambda number: f"question {number + 1}")
@pytest.mark.long
def test_a_command_of_the_skill_answers_and_has_the_keys_that_it_names(
    answers: dict[str, Any], number: int
) -> None:
    answer = answers[COMMANDS[number]]
    assert faults(COMMANDS[number].split()[1], answer) == []
    reading = CONSOLE.sub("", QUESTIONS[2::3][number])
    words = re.findall(r"`([a-z][a-z_]+)`", reading)
    names = {word for word in words if word not in {each.name for each in listed.COMMANDS}}
    # `rules` is the key of a layout that is excluded
    assert names - keys_in(answer) <= {"rules"}


@pytest.mark.parametrize("text", [AGENTS, SKILL, PAGE], ids=["AGENTS.md", "SKILL.md", "agents.md"])
def test_commands_and_options_that_a_page_names_exist(text: str) -> None:
    names = {entry.name for entry in listed.COMMANDS}
    assert set(re.findall(r"`warehouse ([a-z]+)", text)) <= names
    from tests.cli.promises import options

    known = {option for found in options().values() for option in found} | {"--version", "--help"}
    assert set(re.findall(r"`(--[\w-]+)", text)) <= known


@pytest.mark.parametrize("path", ["AGENTS.md", "docs/agents.md"])
def test_links_lead_somewhere(path: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / path).read_text("utf-8")):
        assert ((ROOT / path).parent / target).exists(), target


def test_the_entries_for_an_agents_program_start_the_server() -> None:
    for text in (AGENTS, PAGE):
        [block] = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
        [entry] = json.loads(block)["mcpServers"].values()
        assert [entry["command"], *entry["args"]][:3] == [
            "uvx",
            "--from",
            "training-warehouse[mcp]",
        ]
        assert entry["args"][2:] == ["training-warehouse", "serve", "--mcp"]


@pytest.mark.long
def test_the_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    [block] = CONSOLE.findall(PAGE)
    for command in commands(block):
        assert comparable(printed(command.text, tmp_path)) == comparable(command.printed)


# ---- the release ----

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))


def test_the_citation_has_the_version_and_what_its_form_needs() -> None:
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert said["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type"} <= said.keys()
    assert said["version"] == VERSION
    assert said["license"] == "Apache-2.0"


def test_the_release_builds_and_tries_the_wheel_before_it_publishes() -> None:
    jobs = WORKFLOW["jobs"]
    assert list(jobs) == ["build", "try", "publish"]
    assert (jobs["try"]["needs"], jobs["publish"]["needs"]) == ("build", "try")
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert runs == [
        ".ci/run",
        "PYTHON=.venv/bin/python .ci/release build dist",
        ".ci/release try dist/*.whl",
    ]
    # nobody but the last job may ask the index for trust, and no step has a password
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in json.dumps(WORKFLOW)
    assert jobs["publish"]["if"] == "github.event_name == 'push'"
    oldest = re.findall(r"Python :: (\d\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert jobs["try"]["strategy"]["matrix"]["python"] == [oldest[0], oldest[-1]]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["build", "dist"], "the tag v9.9 is not v"),
        (["try"], "name a wheel"),
        ([], "Usage: .ci/release build"),
    ],
)
def test_a_release_refuses_another_tag_and_wrong_usage(
    given: list[str], reason: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [ROOT / ".ci" / "release", *given],
        env={**os.environ, "GITHUB_REF": "refs/tags/v9.9"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert reason in done.stderr
    assert [*tmp_path.iterdir()] == []
