"""Launch files that are shell scripts: the command that starts a program, and its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from warehouse.errors import InputError
from warehouse.launch import torchtitan
from warehouse.launch.arguments import Given
from warehouse.launch.sections import model_beside, with_deepspeed
from warehouse.launch.shell import Script, read_script
from warehouse.launch.table import table

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.launch.arguments import Value
    from warehouse.launch.shell import RunCommand

LEAST_FLAGS = 3
"""Known arguments that make a command a launch."""

_PROGRAMS = ("megatron", "torchtitan", "megatron_deepspeed", "hugging_face")
"""Programs that a command line starts; of two that know as many arguments the first counts."""

_PROCESSES = ("nproc_per_node", "nproc-per-node", "ntasks-per-node", "gpus-per-node", "num_gpus")
_NODES = ("nnodes", "nodes", "num_nodes")
_LONGEST = 8
"""Digits of a count."""


def of_script(text: str, path: Path) -> Given:
    """Return the arguments of the one command of a script that starts a known program."""
    file = str(path)
    script = read_script(text, file)
    command = _launch(script, file)
    launcher, name, words = _parted(command.words)
    values = _values(words)
    counts = _known(values)
    program = max(counts, key=lambda name: counts[name])
    num_gpus = _num_gpus(launcher, script, text)
    columns: Mapping[str, str] = {}
    places: Mapping[str, str] = {}
    if program == "torchtitan":
        values = {flag.replace("-", "_"): value for flag, value in values.items()}
        places = {flag: f"--{flag}" for flag in values}
        module, config = (str(values.get(name) or _set(script, name.upper())) for name in _NAMED)
        columns, defaults = torchtitan.named(module, config, file)
        places = {**{flag: flag for flag in defaults}, **places}
        values = defaults | torchtitan.chosen(words, values)
        num_gpus = num_gpus or _count(_set(script, "NGPU"))
    elif program != "megatron":
        known = table(program)
        values = {
            flag if known.knows(flag) else flag.replace("-", "_"): value
            for flag, value in values.items()
        }
        values = with_deepspeed(values, path.parent, file)
        places = {flag: flag if flag.startswith("deepspeed.") else f"--{flag}" for flag in values}
        if program == "hugging_face":
            columns = model_beside(values, path.parent)
    if (kind := table(program).refused.get(name)) is not None:
        reason = f"line {command.line}: {name} trains {kind}, which the estimates do not have"
        raise InputError(f"{file}: {reason}", "name the file that starts pretrain_gpt.py")
    unsettled = (each for each in script.uncertain if each[1][2:] not in values)
    return Given(
        table(program),
        values,
        num_gpus,
        places,
        columns,
        unknown={"--config_file": "; its file is not read: give what it says besides"}
        if any(word.startswith("--config_file") for word in launcher)
        else {},
        unsettled=tuple(f"{flag} (line {line})" for line, flag in unsettled),
    )


_NAMED = ("module", "config")


def _launch(script: Script, file: str) -> RunCommand:
    found: dict[tuple[str, ...], RunCommand] = {}
    doubtful = 0
    for command in script.commands:
        *_, words = _parted(command.words)
        flags = [word[2:].partition("=")[0] for word in words if word.startswith("--")]
        if max(_known(flags).values()) >= LEAST_FLAGS:
            doubtful = doubtful or (0 if command.is_certain else command.line)
            if command.is_certain:
                found[tuple(words)] = command
    hint = "write the command line into a file of its own, with its values"
    if not found and doubtful:
        reason = "starts a program in a loop, a function or behind a condition"
        raise InputError(f"{file}: line {doubtful} {reason}", hint)
    if not found:
        programs = ", ".join(table(name).name for name in _PROGRAMS)
        reason = "no command has arguments of a program that is known"
        raise InputError(f"{file}: {reason}: {programs}", hint)
    if len(found) > 1:
        lines = ", ".join(str(command.line) for command in found.values())
        raise InputError(f"{file}: lines {lines} start different runs", "keep one of them")
    [command] = found.values()
    return command


def _known(flags: Iterable[str]) -> dict[str, int]:
    """Return for each program how many of the arguments it has."""
    plain = [*flags]
    return {
        name: sum(table(name).knows(f) or table(name).knows(f.replace("-", "_")) for f in plain)
        for name in _PROGRAMS
    }


def _parted(words: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Return the words of the launcher, the program without its folder, and its arguments."""
    for at, word in enumerate(words):
        is_module = at and words[at - 1] == "-m" and not word.startswith("torch.distributed")
        if is_module or word.endswith((".py", "run_train.sh")):
            return list(words[:at]), word.rpartition("/")[2], list(words[at + 1 :])
    return [], "", list(words)


def _values(words: Sequence[str]) -> dict[str, Value]:
    """Return the arguments of a command line with their values; the last of two counts."""
    values: dict[str, Value] = {}
    flag = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            flag, has_value, value = word[2:].partition("=")
            values[flag] = value if has_value else True
        elif flag and not re.fullmatch(r"-[A-Za-z]\w*|[0-9]?[<>|].*|2>&1", word):
            former = values[flag]
            if former is True:
                values[flag] = word
            else:
                values[flag] = [*(former if isinstance(former, list) else [str(former)]), word]
        else:
            flag = ""
    return values


def _set(script: Script, name: str) -> str:
    return (script.variables.get(name) or [""])[0]


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < _LONGEST else None


def _num_gpus(launcher: Sequence[str], script: Script, text: str) -> int | None:
    """Return the GPUs that a launcher starts, or a scheduler's comments ask for."""
    values = {key: value for key, value in _values(launcher).items() if isinstance(value, str)}
    comments = dict(re.findall(r"^#SBATCH\s+--([a-z-]+)[= ](\S+)", text, re.MULTILINE))
    if nodes := re.search(r"^#SBATCH\s+-N\s*(\d+)", text, re.MULTILINE):
        comments["nodes"] = nodes[1]
    if gres := re.search(r"^#SBATCH\s+--gres[= ]gpu:(?:\w+:)?(\d+)", text, re.MULTILINE):
        comments.setdefault("gpus-per-node", gres[1])
    if "num_processes" in values:  # of accelerate: those of all nodes
        return _count(values["num_processes"])

    def first(names: Iterable[str]) -> int | None:
        texts = [source[name] for source in (values, comments) for name in names if name in source]
        return next(filter(None, map(_count, texts)), None)

    per_node, num_nodes = first(_PROCESSES), first(_NODES)
    if per_node is None:
        return _count(_set(script, "WORLD_SIZE"))
    is_asked = any(name in values for name in _NODES)
    return per_node * num_nodes if num_nodes else None if is_asked else per_node
