"""Reads a launch file: which program it starts, and what its arguments say of a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from estimators.columns import names_in
from warehouse.errors import InputError
from warehouse.evaluate.inputs import input_names
from warehouse.files import read_text
from warehouse.launch.arguments import Arguments, Given, Value
from warehouse.launch.scripts import of_script
from warehouse.launch.sections import HINT, MAX_BYTES, of_keys
from warehouse.show.formats import count
from warehouse.studies.toml_files import Faults

if TYPE_CHECKING:
    from estimators.contract import Relation
    from estimators.estimator import Estimator

SHOWN = 40
"""Arguments of one kind that a line names; others are counted."""

_SHAPE = {
    *("model", "uses_glu", "head_size", "ties_embedding"),
    *("expert_ffn_hidden_size", "num_shared_experts", "num_dense_layers"),
    *({*names_in("Model"), *names_in("Shape of a decoder")} - {"seq_len"}),
}
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
            f"no effect here: {silent}, not modelled: {len(self.unmodelled)}, "
            f"unknown: {len(self.unknown)}"
        ]
        alike: dict[str, list[str]] = {}
        for flag, does in self.unmodelled.items():
            alike.setdefault(does, []).append(flag)
        lines += [f"not modelled: {', '.join(flags)}: {does}" for does, flags in alike.items()]
        lines += [f"unknown: {flag}{hint}" for flag, hint in self.unknown.items()]
        if self.unsettled:
            lines.append(f"may be given, and not read: {_names(self.unsettled)}")
        if self.lacking:
            lines.append(f"no inputs of this estimator: {', '.join(self.lacking)}")
        return lines

    def every_line(self) -> list[str]:
        """Return both, for commands that say them beside the answer."""
        return [*self.remarks(), *self.silent()]

    def silent(self) -> list[str]:
        """Return the arguments that change nothing here, in lines for people."""
        return [f"no effect here, {why}: {_names(flags)}" for why, flags in self.ignored.items()]

    def free_layout(self) -> list[str]:
        """Return what a plan does with the layout of the file, in lines for people."""
        command = f"warehouse why --from {shlex.quote(self.file)}"
        return [f"the layout of the file is left free; `{command}` compares it"]

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
    return launch_of(read_text(path, MAX_BYTES, HINT), path, given or {})


def launch_of(text: str, path: Path, given: Mapping[str, str]) -> LaunchFile:
    """Read the text of a launch file; the ending of its path says what it is."""
    asked = given.get("num_gpus", "")
    of = of_keys if path.suffix.lower() in (".yaml", ".yml", ".json") else of_script
    found = of(text, path)
    return _read(found, str(path), given, int(asked) if asked.isdecimal() else found.num_gpus)


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


# ---- arguments ----


def _read(found: Given, file: str, given: Mapping[str, str], num_gpus: int | None) -> LaunchFile:
    """Sort the arguments into those that are read and those that are not, and read the first."""
    known, faults = found.table, Faults()
    settled = {*given}
    for each in _TOGETHER:
        settled |= {name for column, names in each.items() if column in given for name in names}
    implied: dict[str, Value] = dict.fromkeys(known.implied, True)
    arguments = Arguments(
        *(known, implied | dict(found.values), faults, num_gpus, frozenset(settled)),
        user=given,
        places=found.places,
    )
    if num_gpus is not None:
        arguments.put("num_gpus", num_gpus)
    arguments.put("framework", known.framework)
    for column, value in found.columns.items():
        arguments.put(column, value)
    for flag in found.values:
        if flag in known.refused and arguments.has(flag):
            reason = f"has {known.refused[flag]}, which the estimates do not have"
            faults.add(arguments.called(flag), found.values[flag], reason)
    arguments.read()
    for name in dict.fromkeys(flag.by for flag in known.flags.values() if flag.by):
        module, _, function = name.partition(".")
        getattr(import_module(f"warehouse.launch.{module}"), function)(arguments)
        arguments.fill()
    if faults.refusals:
        raise InputError.from_refusals(faults.refusals, file)
    launch = _sorted(arguments, file)
    ignored = {why: [*names] for why, names in launch.ignored.items()}
    for path, why in found.ignored.items():
        ignored.setdefault(why, []).append(path)
    return replace(
        launch,
        ignored={why: tuple(names) for why, names in ignored.items()},
        unknown={**launch.unknown, **found.unknown},
        unsettled=found.unsettled,
    )


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
        elif (why := known.why_ignored(flag)) is not None:
            ignored.setdefault(why, []).append(name)
        elif flag in known.matters and arguments.differs(flag):
            matters[name] = known.matters[flag]
        elif flag in known.matters or flag in known.refused:
            ignored.setdefault("off or at the default", []).append(name)
        else:
            names = [*known.flags, *known.ignored, *known.matters]
            near = get_close_matches(flag, names, n=1, cutoff=0.8)
            unknown[name] = f"; did you mean {arguments.called(near[0])}?" if near else ""
    missing = {**known.absent, **(known.absent_of_experts if arguments.has("num-experts") else {})}
    matters |= {
        f"no {arguments.called(flag)}": does
        for flag, does in missing.items()
        if not arguments.has(flag)
    }
    said = {*arguments.columns} | arguments.settled
    if "seq_len" not in said:
        matters["no length of sequences"] = "the estimate takes its own; give --seq-len"
    if not {"model", "vocab_size"} & said:
        does = "a tokenizer has the vocabulary, and is not read; give vocab_size=, or embedding, "
        matters[f"no {arguments.called('vocab-size')}"] = (
            f"{does}output layer and loss are left out"
        )
    return LaunchFile(
        file,
        known.name,
        arguments.columns,
        tuple(read),
        {why: tuple(names) for why, names in ignored.items()},
        matters,
        unknown,
    )
