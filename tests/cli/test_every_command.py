"""Rules for every command: the same options, formats, an example, and short functions."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.shared import Command, Quickstart
from warehouse.cli import commands, main
from warehouse.cli.groups import expanded
from warehouse.cli.lazy import LazyCommand
from warehouse.cli.output import Output
from warehouse.limits import Number

COMMANDS = {entry.name: entry.function() for entry in commands.COMMANDS}

WITHOUT_ROWS = {
    *("quickstart", "init", "drop", "evaluate", "export", "import", "collect", "backup"),
    *("compact", "rebuild", "repair", "report", "explore", "serve", "catalog"),
}
"""Commands that print no rows: some write a file, the others say what they did."""

OUTPUT = {"--format", "--out", "--json"}

LONGEST = 90
"""Lines of a command at most."""

MOST_PARAMETERS = 12
"""Parameters of a command at most; a group of options is one."""

REPEATED = (
    *("--global-batch-size", "--batch", "--num-gpus", "--gpus", "--tokens", "--accelerator"),
    *("--pue", "--electricity-price"),
)
"""Options that repeat in a plan."""

OWN_MEANING = {
    *(
        ("evaluate", "--out"),
        ("export", "--out"),
        ("plot", "--out"),
        ("report", "--out"),
        ("catalog", "--out"),
        ("catalog", "--name"),
        ("catalog", "--from"),
        ("plot", "--show-sql"),
    ),
    *(("sweep", "--force"), ("cost", "--price")),
    *(product(("plan", "report"), REPEATED)),
    *(product(("plan", "report", "why", "explain", "show", "operations"), ("--model",))),
    ("validate", "--details"),
}
"""Options that differ on purpose. Two commands write files of any size, and one adds to
a file, under a name. A plot is a picture of one query, or the list of plots. A sweep replaces
cells. A cost has a row for each price, a plan a row for each repeated value. A model is a file, or
a filter. Details are those of the command."""


def parameters(name: str) -> list[Any]:
    """Return the options and arguments of a command as the command line has them."""
    command = main.program.commands[name]
    assert isinstance(command, LazyCommand)
    return list(command.loaded().params)


def options_of(name: str) -> Iterator[tuple[str, Any]]:
    """Yield each long name of an option with the option."""
    for parameter in parameters(name):
        if parameter.param_type_name == "option":
            for spelling in parameter.opts:
                yield spelling, parameter


def type_of(name: str, parameter: str) -> str:
    """Return the type of an option's value, whether or not it has a default."""
    annotation = expanded(COMMANDS[name]).__annotations__[parameter]
    return str(get_args(annotation)[0]).removesuffix(" | None").removeprefix("<class '").strip("'>")


def test_every_command_is_looked_at() -> None:
    assert set(main.program.commands) == set(COMMANDS)
    gone = WITHOUT_ROWS - set(COMMANDS)
    assert not gone, f"take {sorted(gone)} out of WITHOUT_ROWS: there are no such commands"


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT_ROWS))
def test_a_command_that_prints_rows_has_every_format_and_a_file(name: str) -> None:
    missing = OUTPUT - {option for option, _ in options_of(name)}
    assert not missing, (
        f"give {name} the parameter `output: Output` of warehouse/cli/output.py; "
        "if it prints no rows, add it to WITHOUT_ROWS"
    )


@pytest.mark.parametrize("name", sorted(WITHOUT_ROWS - {"catalog", "evaluate", "export", "report"}))
def test_a_command_that_prints_no_rows_has_no_format(name: str) -> None:
    given = OUTPUT & {option for option, _ in options_of(name)}
    assert not given, f"take {name} out of WITHOUT_ROWS: it has {sorted(given)}"


@pytest.mark.parametrize("entry", commands.COMMANDS, ids=lambda entry: entry.name)
def test_the_summary_of_a_command_is_the_first_sentence_of_its_help(
    entry: commands.Listing,
) -> None:
    assert entry.function().__name__.rstrip("_") == entry.name
    paragraph = inspect.getdoc(COMMANDS[entry.name]) or ""
    assert " ".join(paragraph.partition("\n\n")[0].split()) == entry.summary()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_an_example(name: str) -> None:
    examples = {entry.name: entry.example for entry in commands.COMMANDS}
    assert examples[name].splitlines()[-1].startswith(f"warehouse {name}"), (
        f"end the example of {name} in warehouse/cli/commands.py with a line that runs it"
    )


def test_an_option_means_the_same_in_every_command() -> None:
    meanings: dict[str, dict[str, list[str]]] = {}
    for command in COMMANDS:
        for name, option in options_of(command):
            if (command, name) not in OWN_MEANING:
                kind = type_of(command, option.name)
                meaning = (option.help, option.metavar, kind, option.opts)
                meanings.setdefault(name, {}).setdefault(str(meaning), []).append(command)
    differing = {name: found for name, found in meanings.items() if len(found) > 1}
    assert not differing
    assert len(meanings["--db"][next(iter(meanings["--db"]))]) == len(COMMANDS)


def test_a_meaning_has_the_same_option_in_every_command() -> None:
    options: dict[str, set[tuple[str, ...]]] = {}
    for command in COMMANDS:
        for _, option in options_of(command):
            options.setdefault(str(option.help), set()).add(tuple(option.opts))
    assert not {meaning: found for meaning, found in options.items() if len(found) > 1}


TOGETHER = {
    "--model": {"--accelerator", "--num-gpus", "--estimator"},
    "--profile": {"--db"},
    "--mend": {"--variant"},
    "--study": {"--variant", "--estimator"},
    "--out": {"--db"},
}
"""Options of stored rows and of problems -> those that every command with them has, too."""


@pytest.mark.parametrize("option", TOGETHER)
def test_commands_with_an_option_have_those_that_go_with_it(option: str) -> None:
    having = {
        name: found
        for name in COMMANDS
        if option in (found := {each for each, _ in options_of(name)})
    }
    assert having
    lacking = {name: TOGETHER[option] - found for name, found in having.items()}
    assert not {name: missing for name, missing in lacking.items() if missing}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_in_a_sentence(name: str) -> None:
    for option, parameter in options_of(name):
        assert parameter.help, option
        assert parameter.help.endswith("."), option


@pytest.mark.parametrize("name", COMMANDS)
def test_a_numeric_option_takes_numbers_as_people_write_them(name: str) -> None:
    for option, annotation in expanded(COMMANDS[name]).__annotations__.items():
        kind, *marks = get_args(annotation) or (annotation,)
        if re.search(r"\b(int|float)\b", str(kind)):
            assert any(isinstance(getattr(mark, "parser", None), Number) for mark in marks), option


@pytest.mark.parametrize("name", COMMANDS)
def test_the_database_comes_last_and_the_formats_before_it(name: str) -> None:
    names = [option for option, _ in options_of(name)]
    assert names[-1] == "--db"
    if name not in WITHOUT_ROWS:
        assert names[-7:-1] == [
            *("--format", "--out", "--json", "--wide", "--columns", "--ids-as-text")
        ]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_short_and_has_few_parameters(name: str) -> None:
    command = COMMANDS[name]
    assert len(inspect.getsource(command).splitlines()) <= LONGEST
    assert len(inspect.signature(command).parameters) <= MOST_PARAMETERS


def test_no_function_of_the_command_line_has_many_parameters() -> None:
    for command in COMMANDS.values():
        module = inspect.getmodule(command)
        for _, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__.startswith("warehouse.cli"):
                assert len(inspect.signature(function).parameters) <= MOST_PARAMETERS, function


def test_a_group_is_made_of_what_the_command_line_gave() -> None:
    seen: list[Output] = []

    def command(*, output: Output) -> None:
        seen.append(output)

    given = {"named": None, "out": None, "wide": False, "columns": None, "ids_as_text": False}
    expanded(command)(as_json=True, **given)
    assert seen == [Output(as_json=True)]


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_of_one_value_is_refused_with_two(warehouse: Command, name: str) -> None:
    single = [
        (spelling, option)
        for spelling, option in options_of(name)
        if not option.is_flag and not option.multiple
    ]
    assert single
    for spelling, option in single:
        code, out, err = warehouse(name, spelling, "a1", option.opts[-1], "b2")
        assert (code, out) == (2, ""), spelling
        named = (f"error: `{each}` is given twice: a1, b2\nhint: " for each in option.opts)
        assert err.startswith(tuple(named)), spelling


def test_an_option_given_twice_names_all_values_and_a_way_out(warehouse: Command) -> None:
    ways = ("--accelerator", "H100", "--model=gpt3_1T", "--accelerator=MI300X")
    assert warehouse("rank", *ways)[2] == (
        "error: `--accelerator` is given twice: H100, MI300X\n"
        "hint: give one; run the command once for each\n"
    )
    err = warehouse("rank", *ways, "--accelerator", "H100")[2]
    assert "is given 3 times: H100, MI300X, H100\n" in err
    err = warehouse("rank", "--columns", "model", "--columns", "rank,variant")[2]
    assert "hint: give it once, with commas: --columns model,rank,variant\n" in err


def test_flags_and_equal_values_may_be_repeated(warehouse: Command) -> None:
    code, out, _ = warehouse(
        *(
            "show",
            "--estimator",
            "pipeline",
            "chip=A100_40GB",
            "num_layers=120",
            "hidden_size=12288",
        ),
        *("data_parallel=8", "--json", "--json", "--format", "json", "--format=json"),
    )
    assert code == 0
    assert json.loads(out)["inputs"]["hidden_size"] == 12288


READING = {
    "rank": ("rank", "--model", "gpt3_1T", "--num-gpus", "4096"),
    "cost": ("cost", "--model", "gpt3_1T", "--tokens", "20T", "--num-gpus", "4_096"),
    "energy": ("energy", "--model", "gpt3_1T", "--tokens", "20T", "--num-gpus", "4096.0"),
    "sql": ("sql", "select estimator, count(*) as n from cell group by all order by all"),
    "schema": ("schema", "configuration_rank"),
    "status": ("status",),
    "profiles": ("profiles",),
    "plot": ("plot",),
    "sweep": ("sweep", "megatron", "--dry-run"),
}
"""Commands that only read the quickstart's database, with arguments that leave a few rows."""


@pytest.mark.parametrize("name", READING)
@pytest.mark.long
def test_a_command_writes_its_rows_to_a_file_and_to_stdout(
    warehouse: Command, quickstart: Quickstart, tmp_path: Path, name: str
) -> None:
    command = (*READING[name], "--db", quickstart.database)
    out = tmp_path / "rows.json"
    assert warehouse(*command, "--out", out)[:2] == (0, "")
    code, printed, _ = warehouse(*command, "--json")
    assert (code, printed) == (0, out.read_text(encoding="utf-8"))
    assert json.loads(printed) is not None


def test_every_format_is_written_the_same_to_a_file_and_to_stdout(
    warehouse: Command, quickstart: Quickstart, tmp_path: Path
) -> None:
    command = (*READING["profiles"], "--db", quickstart.database)
    endings = {".txt": "table", ".json": "json", ".csv": "csv", ".md": "markdown"}
    for ending, form in endings.items():
        out = tmp_path / f"rows{ending}"
        assert warehouse(*command, "--out", out)[:2] == (0, "")
        code, printed, _ = warehouse(*command, "--format", form)
        assert (code, printed) == (0, out.read_text(encoding="utf-8"))
    assert len({path.read_text("utf-8") for path in tmp_path.iterdir()}) == 4
    assert (tmp_path / "rows.md").read_text("utf-8").lstrip("#\n").startswith("|")


def test_a_command_that_fails_leaves_the_file_as_it_was(
    warehouse: Command, quickstart: Quickstart, tmp_path: Path
) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("old")
    code, *_ = warehouse("sql", "select 1 / nonsense", "--out", out, "--db", quickstart.database)
    assert code == 3
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_a_sweep_prints_rows_with_a_dry_run_alone(
    warehouse: Command, quickstart: Quickstart
) -> None:
    code, out, err = warehouse("sweep", "megatron", "--json", "--db", quickstart.database)
    assert (code, out) == (2, "")
    assert "need `--dry-run`" in err


@pytest.mark.parametrize("spelt", ["12_288", "12,288", "12.288k", "12288"])
def test_a_pair_takes_numbers_as_an_option_does(warehouse: Command, spelt: str) -> None:
    pairs = ("chip=A100_40GB", "Num-Layers=120", "data_parallel=8")
    code, out, _ = warehouse(
        "show", "--estimator", "pipeline", *pairs, f"hidden_size={spelt}", "--json"
    )
    assert code == 0
    assert json.loads(out)["inputs"]["hidden_size"] == 12288
