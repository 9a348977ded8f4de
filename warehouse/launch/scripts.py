"""Launch files that are shell scripts: the command that starts a program, and its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
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
    from warehouse.launch.table import ProgramTable

LEAST_FLAGS = 3
"""Known arguments that make a command a launch."""

_PROGRAMS = ("megatron", "torchtitan", "megatron_deepspeed", "hugging_face")
"""Programs that a command line starts; of two that know as many arguments the first counts."""

_LAUNCHERS = (
    "torchrun",
    "deepspeed",
    "accelerate",
    "torch.distributed.launch",
    "torch.distributed.run",
)
"""Programs that start a process for each GPU; each task of a scheduler starts one of them."""

_STARTED = ("run_train.sh", "torchtitan.train")
"""Programs that are launches without arguments: variables name the configuration."""

_PROCESSES = ("nproc_per_node", "nproc-per-node", "num_gpus", "gpus-per-node")
_NODES = ("nnodes", "nodes", "num_nodes")
_GPUS_OF_A_NODE = re.compile(r"--(?:gres[= ]gpu:|gpus-per-node[= ])(?:[a-z][\w.-]*:)?(\d+)\S*")
_OPEN = re.compile(r"\$\w+|\$[@*]|\$\{.*\}|\$\(.*\)|`.*`", re.DOTALL)
_MANY = re.compile(r"[@*]|ARG|OPT|FLAG|EXTRA|PARAM|OVERRIDE", re.IGNORECASE)
"""A variable that the script does not set, and its name if it has several words."""


def of_script(text: str, path: Path) -> Given:
    """Return the arguments of the one command of a script that starts a known program."""
    file = str(path)
    script = read_script(text, file)
    command = _launch(script, file)
    launcher, name, words = _parted(command.words)
    values = _values(words)
    counts = _known(values)
    program = "torchtitan" if name in _STARTED else max(counts, key=lambda name: counts[name])
    num_gpus = _num_gpus(launcher, script, text)
    columns: Mapping[str, str] = {}
    places: Mapping[str, str] = {}
    if program == "torchtitan":
        plain = {flag.replace("-", "_"): value for flag, value in values.items()}
        values = {flag.replace(".no_", "."): ".no_" not in flag and plain[flag] for flag in plain}
        places = {flag: f"--{flag}" for flag in values}
        module, config = (
            str(values.get(n) or _set(script, n.upper())) for n in ("module", "config")
        )
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
    unknown = {w: "" for w in takewhile(lambda w: w[:1] != "-", words) if not _OPEN.fullmatch(w)}
    if any(word.startswith("--config_file") for word in launcher):
        unknown["--config_file"] = "; its file is not read: give what it says besides"
    unsettled = [each for each in script.uncertain if each[1][2:] not in values]
    unsettled += [(command.line, word) for word in _open(words, table(program))]
    return Given(
        table(program),
        values,
        num_gpus,
        places,
        columns,
        unknown={word: hint for word, hint in unknown.items() if ":" not in word},
        unsettled=tuple(f"{flag} (line {line})" for line, flag in unsettled),
    )


def _launch(script: Script, file: str) -> RunCommand:
    found: dict[tuple[str, ...], RunCommand] = {}
    doubtful = 0
    for command in script.commands:
        _, name, words = _parted(command.words)
        if max(_known(_values(words)).values()) >= LEAST_FLAGS or name in _STARTED:
            doubtful = doubtful or (0 if command.is_certain else command.line)
            if command.is_certain:
                found[tuple(words)] = command
    hint = "write the command line into a file of its own, with its values"
    if not found and doubtful:
        reason = "starts a program in a loop, a function or behind a condition"
        raise InputError(f"{file}: line {doubtful} {reason}", hint)
    if not found:
        reason = "no command has arguments of a program that is known: "
        programs = ", ".join(table(name).name for name in _PROGRAMS)
        raise InputError(f"{file}: {reason}{programs}", hint)
    if len(found) > 1:
        lines = ", ".join(str(command.line) for command in found.values())
        raise InputError(f"{file}: lines {lines} start different runs", "keep one of them")
    [command] = found.values()
    return command


def _known(flags: Iterable[str]) -> dict[str, int]:
    """Return for each program how many of the arguments it has."""
    names = [{flag, flag.replace("-", "_")} for flag in flags]
    return {name: sum(any(map(table(name).knows, each)) for each in names) for name in _PROGRAMS}


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


def _open(words: Sequence[str], known: ProgramTable) -> Iterator[str]:
    """Yield the variables that the script does not set and that may be arguments: no values."""
    for before, word in zip(("", *words), words, strict=False):
        flag = known.flags.get(before[2:])
        is_value = before.startswith("--") and "=" not in before and not (flag and flag.is_switch)
        if _OPEN.fullmatch(word) and (not is_value or _MANY.search(word)):
            yield word


def _set(script: Script, name: str) -> str:
    return (script.variables.get(name) or [""])[0]


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 8 else None


def _num_gpus(launcher: Sequence[str], script: Script, text: str) -> int | None:
    """Return the GPUs that a launcher starts, or a scheduler's comments ask for."""
    values = _asked(" ".join(launcher))
    comments = _asked(" ".join(re.findall(r"^#SBATCH\s+([^#\n]*)", text, re.MULTILINE)))

    def first(names: Iterable[str]) -> int | None:
        texts = [source[name] for source in (values, comments) for name in names if name in source]
        return next(filter(None, map(_count, texts)), None)

    if "num_processes" in values:  # of accelerate: those of all nodes
        return _count(values["num_processes"])
    starts = any(word.rpartition("/")[2] in _LAUNCHERS for word in launcher)
    tasks = () if starts else ("ntasks-per-node",)
    per_node, num_nodes = first(tasks) or first(_PROCESSES), first(_NODES)
    if per_node is None:
        totals = ("gpus",) if starts else ("ntasks", "gpus")
        return first(totals) or _count(_set(script, "WORLD_SIZE"))
    is_asked = any(name in values for name in (*_NODES, "hostfile"))
    return per_node * num_nodes if num_nodes else None if is_asked else per_node


def _asked(text: str) -> dict[str, str]:
    """Return the options of a launcher or a scheduler, each with its first value."""
    text = _GPUS_OF_A_NODE.sub(r"--gpus-per-node=\1", text)
    for short, name in (("N", "nodes"), ("n", "ntasks"), ("G", "gpus")):
        text = re.sub(rf"(?<!\S)-{short}\s*(?=\d)", f"--{name}=", text)
    values = _values(text.split()).items()
    return {name: value[0] if isinstance(value, list) else str(value) for name, value in values}
