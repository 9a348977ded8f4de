"""Reads a launch file: which program it starts, and what its arguments say of a run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from estimators.columns import names_in
from warehouse.errors import InputError
from warehouse.evaluate.inputs import input_names
from warehouse.launch.arguments import Arguments, Value
from warehouse.launch.megatron import readers
from warehouse.launch.sections import as_arguments, paths, read_json, read_yaml
from warehouse.launch.shell import Script, read_script
from warehouse.launch.table import Table, table
from warehouse.show.formats import count
from warehouse.studies.toml_files import Faults

if TYPE_CHECKING:
    from estimators.contract import Relation
    from estimators.estimator import Estimator
    from warehouse.launch.shell import RunCommand

MAX_BYTES = 1_000_000
"""Largest launch file: those of the largest runs have some kilobytes."""

LEAST_FLAGS = 3
"""Known arguments that make a command a launch."""

SHOWN = 40
"""Arguments of one kind that a line names; others are counted."""

_SHAPE = ("model", *names_in("Model"), *names_in("Shape of a decoder"))
_TOGETHER = (
    {"model": _SHAPE},
    {"precision": ("number_recipe", "keeps_quantized_weights", "quantizes_output_layer")},
    {"number_recipe": ("precision",)},
    {"data_parallel": ("num_gpus",)},
)
"""Columns that a user gives -> those of a file that do not count beside them."""


@dataclass(frozen=True)
class LaunchFile:
    """What a launch file says.

    Attributes
    ----------
    columns
        Column -> its value in text.
    read
        Arguments that are read, as given.
    ignored
        Reason -> arguments that change nothing in the estimates.
    unmodelled
        Argument -> what it does, which is not modelled.
    unknown
        Arguments that the program does not have, with a hint.
    unsettled
        Arguments behind a condition that was not evaluated, with their lines.
    lacking
        Columns that the estimator does not have.
    """

    file: str
    program: str
    columns: Mapping[str, str]
    read: tuple[str, ...]
    ignored: Mapping[str, tuple[str, ...]]
    unmodelled: Mapping[str, str]
    unknown: Mapping[str, str]
    unsettled: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    def remarks(self) -> list[str]:
        """Return what was read, and what matters and was not, in lines for people."""
        silent = sum(map(len, self.ignored.values()))
        lines = [
            f"read from {self.file} ({self.program}): {count(len(self.read), 'argument')}; "
            f"{silent} change nothing here, {len(self.unmodelled)} matter and are not modelled, "
            f"{len(self.unknown)} unknown"
        ]
        lines += [f"not modelled: {flag}: {does}" for flag, does in self.unmodelled.items()]
        lines += [f"unknown: {flag}{hint}" for flag, hint in self.unknown.items()]
        if self.unsettled:
            lines.append(f"not read, as the file does not say whether: {_names(self.unsettled)}")
        if self.lacking:
            lines.append(f"no inputs of this estimator: {', '.join(self.lacking)}")
        return lines

    def silent(self) -> list[str]:
        """Return the arguments that change nothing here, in lines for people."""
        return [f"no effect here, {why}: {_names(flags)}" for why, flags in self.ignored.items()]

    def free_layout(self) -> list[str]:
        """Return what a plan does with the layout of the file, in lines for people."""
        return [f"its layout is left free: `warehouse why --from {shlex.quote(self.file)}` has it"]

    def document(self) -> dict[str, object]:
        """Return the same as JSON."""
        return {
            "file": self.file,
            "program": self.program,
            "columns": dict(self.columns),
            "read": list(self.read),
            "no_effect": {why: list(flags) for why, flags in self.ignored.items()},
            "not_modelled": dict(self.unmodelled),
            "unknown": list(self.unknown),
            "not_settled": list(self.unsettled),
        }


def _names(flags: Sequence[str]) -> str:
    more = len(flags) - SHOWN
    return ", ".join(flags[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def read_launch(path: Path, given: Mapping[str, str] | None = None) -> LaunchFile:
    """Read a launch file; the columns that a user gives besides count before those of the file."""
    text, file, given = _text(path), str(path), given or {}
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return _of_sections(read_yaml(text, file), file, given)
    if suffix == ".json":
        return _of_sections(read_json(text, file), file, given)
    return _of_script(read_script(text, file), text, file, given)


def with_launch(
    path: Path, given: Mapping[str, str], estimator: Estimator, relation: Relation
) -> tuple[dict[str, str], LaunchFile]:
    """Return the inputs of a launch file with those that a user gives besides, which count first.

    A file that does not say how many GPUs run is refused unless the user does.
    """
    launch = read_launch(path, given)
    known = input_names(estimator, relation)
    columns = {name: text for name, text in launch.columns.items() if name not in given}
    lacking = tuple(name for name in columns if name not in known)
    texts = {name: text for name, text in columns.items() if name in known} | dict(given)
    if "num_gpus" in known and not texts.keys() & {"num_gpus", "data_parallel"}:
        reason = "does not say how many GPUs run: no number of processes and nodes"
        raise InputError(f"{path}: {reason}", "give --gpus")
    return texts, replace(launch, lacking=lacking)


def _text(path: Path) -> str:
    file = str(path)
    hint = "name the script, YAML or JSON that starts the run"
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{file}: is no file", hint)
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file", hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{file}: cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{file}: has more than {MAX_BYTES / 1e6:g} MB", hint)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{file}: line {line} is not UTF-8 text", hint) from None


# ---- scripts ----


def _of_script(script: Script, text: str, file: str, given: Mapping[str, str]) -> LaunchFile:
    known = table("megatron")
    found: dict[tuple[str, ...], RunCommand] = {}
    doubtful = 0
    for command in script.commands:
        _, words = _parted(command.words)
        flags = [word[2:].partition("=")[0] for word in words if word.startswith("--")]
        if sum(map(known.knows, flags)) >= LEAST_FLAGS:
            doubtful = doubtful or (0 if command.is_certain else command.line)
            if command.is_certain:
                found[tuple(words)] = command
    if not found:
        hint = "write the command line into a file of its own, with its values"
        if doubtful:
            reason = "starts a program in a loop, a function or behind a condition"
            raise InputError(f"{file}: line {doubtful} {reason}", hint)
        reason = "no command has arguments of a program that is known"
        raise InputError(f"{file}: {reason}: {known.name}", hint)
    if len(found) > 1:
        lines = ", ".join(str(command.line) for command in found.values())
        raise InputError(f"{file}: lines {lines} start different runs", "keep one of them")
    [command] = found.values()
    launcher, words = _parted(command.words)
    asked = given.get("num_gpus", "")
    gpus = int(asked) if asked.isdecimal() else _num_gpus(launcher, script, text)
    values = _values(words)
    launch = _read(known, values, file, given, gpus)
    unsettled = tuple(
        f"{flag} (line {line})" for line, flag in script.uncertain if flag[2:] not in values
    )
    return replace(launch, unsettled=unsettled)


def _parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of the launcher, and those of the program behind it."""
    at = next((place for place, word in enumerate(words) if word.endswith(".py")), None)
    if at is None:
        return [], list(words)
    return list(words[:at]), list(words[at + 1 :])


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


_LAUNCHERS = {
    "processes": ("nproc_per_node", "nproc-per-node", "ntasks-per-node", "gpus-per-node"),
    "nodes": ("nnodes", "nodes", "num_nodes"),
}


def _num_gpus(launcher: Sequence[str], script: Script, text: str) -> int | None:
    """Return the GPUs that a launcher starts, or a scheduler's comments ask for."""
    values = {key: value for key, value in _values(launcher).items() if isinstance(value, str)}
    comments = dict(re.findall(r"^#SBATCH\s+--([a-z-]+)[= ](\S+)", text, re.MULTILINE))
    short = dict(re.findall(r"^#SBATCH\s+-(N)\s*(\d+)", text, re.MULTILINE))
    comments |= {"nodes": short["N"]} if short else {}
    gres = re.search(r"^#SBATCH\s+--gres[= ]gpu:(?:\w+:)?(\d+)", text, re.MULTILINE)
    if gres:
        comments.setdefault("gpus-per-node", gres[1])

    def first(names: Iterable[str]) -> int | None:
        both = [source[name] for source in (values, comments) for name in names if name in source]
        return next((int(each) for each in both if each.isdecimal() and len(each) < 8), None)

    processes, nodes = map(first, _LAUNCHERS.values())
    if processes is not None:
        is_asked = any(name in values for name in _LAUNCHERS["nodes"])
        return processes * nodes if nodes else None if is_asked else processes
    world = script.variables.get("WORLD_SIZE", [""])[0]
    return int(world) if world.isdecimal() and len(world) < 8 else None


# ---- files of keys ----


def _of_sections(content: Mapping[str, Any], file: str, given: Mapping[str, str]) -> LaunchFile:
    program = next((name for name, is_one in _PROGRAMS.items() if is_one(content)), None)
    if program is None:
        programs = ", ".join(table(name).name for name in _PROGRAMS)
        reason = "has the keys of no program that is known"
        raise InputError(f"{file}: {reason}", f"known: {programs}")
    known, values = table(program), paths(content, file)
    arguments, places, ignored = as_arguments(values, known)
    launch = _read(known, arguments, file, given, _gpus_of(values, given), places)
    silent = {why: list(names) for why, names in launch.ignored.items()}
    for path, why in ignored.items():
        silent.setdefault(why, []).append(path)
    return replace(launch, ignored={why: tuple(names) for why, names in silent.items()})


_PROGRAMS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "bridge": lambda keys: {"model", "train"} <= keys.keys(),
}
"""Program -> whether a file of keys is one of its."""


def _gpus_of(values: Mapping[str, Value], given: Mapping[str, str]) -> int | None:
    """Return the GPUs of a file of keys: given, as devices of nodes, or as replicas of degrees."""

    def whole(*names: str) -> int:
        for name in names:
            text = str(values.get(name, ""))
            if text.isdecimal() and len(text) < 8:
                return int(text)
        return 0

    if given.get("num_gpus", "").isdecimal():
        return int(given["num_gpus"])
    if whole("trainer.devices"):
        return whole("trainer.devices") * max(whole("trainer.num_nodes"), 1)
    degrees = ("tensor", "pipeline", "context")
    of = [f"{name}{degree}" for name in ("model.", "model.transformer.") for degree in degrees]
    product = whole("comm_overlap.data_parallel_size", "data_parallel_size")
    for path in of:
        part = "_parallel_size" if path.endswith("context") else "_model_parallel_size"
        product *= whole(path + part) or 1
    return product or None


# ---- arguments ----


def _read(
    known: Table,
    values: Mapping[str, Value],
    file: str,
    given: Mapping[str, str],
    num_gpus: int | None,
    places: Mapping[str, str] | None = None,
) -> LaunchFile:
    """Sort the arguments into those that are read and those that are not, and read the first."""
    faults = Faults()
    settled = {*given}
    for each in _TOGETHER:
        settled |= {name for column, names in each.items() if column in given for name in names}
    implied: dict[str, Value] = dict.fromkeys(known.implied, True)
    arguments = Arguments(
        known, implied | dict(values), faults, num_gpus, frozenset(settled), places or {}
    )
    if num_gpus is not None:
        arguments.put("num_gpus", num_gpus)
    arguments.put("framework", known.framework)
    for flag in values:
        if flag in known.refused and arguments.has(flag):
            reason = f"has {known.refused[flag]}, which the estimates do not have"
            faults.add(arguments.called(flag), values[flag], reason)
    arguments.read()
    functions = dict.fromkeys(flag.by for flag in known.flags.values() if flag.by)
    for function in readers([*functions]):
        function(arguments)
        arguments.fill()
    if faults.refusals:
        raise InputError.from_refusals(faults.refusals, file)
    return _sorted(arguments, file)


def _sorted(arguments: Arguments, file: str) -> LaunchFile:
    known, values = arguments.table, arguments.values
    read: list[str] = []
    ignored: dict[str, list[str]] = {}
    unknown: dict[str, str] = {}
    matters = {arguments.called(flag): does for flag, does in arguments.notes.items()}
    for flag in values:
        if flag in known.implied:
            continue
        name = arguments.called(flag)
        if flag in known.flags or flag in known.absent or flag in known.absent_of_experts:
            read.append(name)
        elif flag in known.ignored:
            ignored.setdefault(known.ignored[flag], []).append(name)
        elif flag in known.matters and arguments.differs(flag):
            matters[name] = known.matters[flag]
        elif flag in known.matters or flag in known.refused:
            ignored.setdefault("as it is off or at its default", []).append(name)
        else:
            names = [*known.flags, *known.ignored, *known.matters]
            near = get_close_matches(flag, names, n=1, cutoff=0.8)
            unknown[name] = f"; did you mean {near[0]}?" if near else ""
    missing = {**known.absent, **(known.absent_of_experts if arguments.has("num-experts") else {})}
    matters |= {
        f"no {arguments.called(flag)}": does
        for flag, does in missing.items()
        if not arguments.has(flag)
    }
    return LaunchFile(
        file,
        known.name,
        arguments.columns,
        tuple(read),
        {why: tuple(names) for why, names in ignored.items()},
        matters,
        unknown,
    )
