"""The tables of programs: complete, of known columns, and one-to-one."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from estimators.columns import COLUMNS
from warehouse.launch import hugging_face, megatron, torchtitan
from warehouse.launch.read import read_launch
from warehouse.launch.table import ProgramTable, table

HERE = Path(__file__).parent
FOLDER = HERE.parent.parent / "warehouse" / "launch"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.toml"))
FUNCTIONS = {"hugging_face": hugging_face, "megatron": megatron, "torchtitan": torchtitan}
ARGUMENTS = (HERE / "launch_megatron.txt").read_text(encoding="utf-8").split("\n")[1:-1]
"""The arguments of Megatron-LM's parser."""


def listed(known: ProgramTable) -> list[str]:
    """Return the arguments of every list of a table."""
    lists = (known.flags, known.ignored, known.matters, known.refused, known.absent)
    return [flag for names in (*lists, known.absent_of_experts) for flag in names]


def test_every_argument_of_megatron_has_its_place() -> None:
    known = table("megatron")
    assert len(ARGUMENTS) > 800
    assert [flag for flag in ARGUMENTS if not known.knows(flag)] == []


def test_an_argument_has_one_place() -> None:
    flags = listed(table("megatron"))
    assert sorted({flag for flag in flags if flags.count(flag) > 1}) == []


def test_arguments_that_are_read_are_those_of_the_parser() -> None:
    known = table("megatron")
    older = {"activations-checkpoint-method", "activations-checkpoint-num-layers"}
    for names in (known.flags, known.matters, known.absent, known.refused, known.only_with):
        others = {name for name in {*names} - {*ARGUMENTS} if not name.endswith(".py")}
        assert others <= older


@pytest.mark.parametrize("program", PROGRAMS)
def test_columns_and_functions_of_a_table_exist(program: str) -> None:
    known = table(program)
    assert known.flags
    for name, flag in known.flags.items():
        named = {flag.column, flag.default_as, *flag.on, *flag.off} - {""}
        assert named <= {*COLUMNS}, name
        assert named or flag.by, name
        if flag.by:
            module, _, function = flag.by.partition(".")
            assert callable(getattr(FUNCTIONS[module], function))
        assert not flag.beside or known.knows(flag.beside)
    assert {*known.only_with.values()} <= {*listed(known)}
    assert {*known.neutral} <= {*known.matters}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_key_means_an_argument_that_is_known(program: str) -> None:
    known = table(program)
    meanings = {meaning.lstrip("!") for meaning in known.same.values()}
    assert {name for name in meanings if name not in listed(known)} == set()


@pytest.mark.parametrize("program", PROGRAMS)
def test_values_of_a_column_lead_back_to_an_argument(program: str) -> None:
    for name, flag in table(program).flags.items():
        kept = {*flag.values.values(), flag.default}
        choices = COLUMNS[flag.column].choices if flag.column else ()
        if flag.values and choices:  # every value that a file can mean is one of the column
            assert kept - {None} <= {*choices}, name
        for column in flag.on.keys() & flag.off.keys():
            assert flag.on[column] != flag.off[column], name


def given_and_expected(random: Random) -> tuple[list[str], dict[str, str]]:
    """Return arguments of Megatron-LM that the table makes of columns, and these columns."""
    words = ["--bf16"]
    columns: dict[str, str] = {}
    known = table("megatron")
    for name, flag in known.flags.items():
        if flag.by or flag.beside or name.startswith("encoder-"):
            continue
        if flag.is_switch:
            is_on = random.random() < 0.5
            words += [f"--{name}"] if is_on else []
            columns |= flag.on if is_on else flag.off
            continue
        ours = random.choice([*flag.values.values()]) if flag.values else str(random.randint(1, 99))
        theirs = next((each for each, meant in flag.values.items() if meant == ours), ours)
        words += [f"--{name}", theirs]
        columns[flag.column] = ours
    return words, columns


def test_columns_go_out_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    for seed in range(200):
        words, expected = given_and_expected(Random(seed))
        path.write_text(f"torchrun pretrain_gpt.py {' '.join(words)}")
        found = read_launch(path, {"vocab_size": "1"}).columns
        expected.pop("vocab_size")
        same = {name: text.removesuffix(".0") for name, text in found.items() if name in expected}
        assert same == expected, seed


def test_reasons_are_sentences_without_ends() -> None:
    for program in PROGRAMS:
        known = table(program)
        texts = {*known.ignored.values(), *known.matters.values(), *known.refused.values()}
        assert all(re.fullmatch(r"[A-Za-z].*[^.\s]", text) for text in texts)
