"""Launch files of a layout: the tables of programs read backwards, and the text around them.

Each file is read again before it is given out: whoever reads it gets the inputs and the step that
it was made of, or it is refused with the columns that differ.
"""

from __future__ import annotations

import math
import shlex
import string
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from estimators.contract import Refusal, RefusedError
from warehouse.errors import InputError, UsageError
from warehouse.evaluate.inputs import input_names
from warehouse.evaluate.one import show_configuration
from warehouse.launch.backwards import (
    arguments_of,
    environment_of,
    refusals_of,
    rules,
    text_of,
    told,
    written,
)
from warehouse.launch.bridge import keys_of
from warehouse.launch.read import launch_of
from warehouse.launch.table import table
from warehouse.launch.trainer_config import command_of, fields_of, function_of, same_shapes
from warehouse.show.units import layout_in_words

if TYPE_CHECKING:
    from warehouse.evaluate.one import Evaluation
    from warehouse.launch.arguments import Value
    from warehouse.launch.backwards import Found

READ_ONLY = ("deepspeed", "hugging_face", "megatron_deepspeed", "nemo")
"""Programs whose launch files are read, and not written."""

_COMPILED = {"torchtitan": ("fsdp_compile",)}
_PLACEMENT = {
    *("pipeline_layout", "layers_in_first_stage", "layers_in_last_stage", "counts_embedding"),
    *("counts_loss", "virtual_pipeline"),
}
_NAMES = ("model", "profile")
"""Columns of names alone: their values are in others."""
_PAIRS = "KEY=VALUE..."
_LARGEST_SERVER = 16
"""GPUs of the largest server; a larger NVLink domain is a rack of servers with four each."""


@dataclass(frozen=True)
class RunToLaunch:
    """A layout that a program is to run.

    Attributes
    ----------
    planned
        Its estimate, of inputs in texts.
    machine
        Inputs that no launch file has: the accelerator, its domain, constants; in texts.
    num_steps
        Steps of the run.
    """

    planned: Evaluation
    machine: Mapping[str, str]
    num_steps: int = 100

    @property
    def per_node(self) -> int:
        """GPUs of a server that the run uses, as many on each; whole tensor groups if it can."""
        gpus, domain = (int(self.planned.values[name] or 8) for name in ("num_gpus", "nvlink_size"))
        server = domain if domain <= _LARGEST_SERVER else 4
        sizes = [n for n in range(1, server + 1) if gpus % n == 0]
        ranks = int(self.planned.values["tensor_parallel"] or 1)
        return max([n for n in sizes if n % ranks == 0] or sizes)

    @property
    def num_nodes(self) -> int:
        """Servers of the run."""
        return int(self.planned.values["num_gpus"] or 1) // self.per_node


def check_program(program: str) -> None:
    """Refuse the name of a program that no launch file is written for."""
    if program not in _WRITERS:
        names = {name: table(name).name for name in READ_ONLY}
        reason = (
            f"launch files of {names[program]} are read, not written" if program in names else ""
        )
        reason = reason or "is not a program that is known"
        raise UsageError(f"`--launch` {program}: {reason}", f"choose {', '.join(_WRITERS)}")


def launch_text(program: str, run: RunToLaunch, *, slurm: bool = False) -> str:
    """Return the launch file of a layout for a program; refuse what it cannot say, by column."""
    check_program(program)
    if "framework" not in run.planned.problem:
        reason = f"the layouts of {run.planned.estimator.name} are those of no program"
        raise UsageError(f"`--launch` {program}: {reason}", "plan with the default estimator")
    framework, known = run.planned.problem["framework"], table(program)
    frameworks = (known.framework, *_COMPILED.get(program, ()))
    if framework not in frameworks:
        reason = f"is not its program, which is {' or '.join(frameworks)}"
        raise _refused(known.name, [Refusal("framework", framework, reason)])
    return _WRITERS[program](run, slurm)


def read_again(run: RunToLaunch, text: str, name: str) -> str:
    """Refuse a launch file that would be read as another layout or another step.

    Return the inputs that it does not have, as pairs for the command that reads it.
    """
    planned = run.planned
    launch = launch_of(text, Path(name), {})
    known = input_names(planned.estimator, planned.relation)
    must = {*planned.estimator.shape_columns, *planned.relation.keys, "num_gpus"} - _PLACEMENT
    said = {*must, *planned.estimator.choice_columns, "model", "global_batch_size", "framework"}
    texts = {name: value for name, value in launch.columns.items() if name in known}
    besides = {n: text for n, text in run.machine.items() if n not in said | texts.keys()}
    texts |= besides
    try:
        found = show_configuration(
            *(planned.estimator, planned.relation, texts, planned.mends, planned.catalog),
            has_ends=False,
        )
    except RefusedError as error:
        raise _refused(launch.program, error.refusals) from None
    measures = planned.relation.measures  # what follows from them may count the names of choices
    others = [n for n in measures if not _is_same(found.results[n], planned.results[n])]
    must -= {"head_size"} if planned.values["kv_lora_rank"] else set()  # latents have other sizes
    wanted = {**planned.problem, **planned.layout}
    got = {**found.problem, **found.layout}
    names = [n for n in wanted if n not in _NAMES and not _is_same(wanted[n], got[n])]
    names = [name for name in names if name in must] or (names if others else [])
    differing = [
        Refusal(name, wanted[name], f"cannot be said: the file would be read as {got[name]}")
        for name in names
    ] or [
        Refusal(name, planned.results[name], f"would be {found.results[name]} as the file is read")
        for name in others
    ]
    if differing:
        raise _refused(launch.program, differing)
    return shlex.join(f"{name}={text}" for name, text in besides.items())


def _is_same(one: object, other: object) -> bool:
    numbers = (int, float)
    if isinstance(one, numbers) and isinstance(other, numbers):
        return math.isclose(one, other, rel_tol=1e-9) or (one != one and other != other)
    return text_of(one) == text_of(other)


def _refused(program: str, refusals: Sequence[Refusal]) -> InputError:
    return InputError.from_refusals(refusals, f"a launch file of {program}")


def _arguments(values: Mapping[str, Any], run: RunToLaunch, program: str) -> Found:
    """Return the arguments of a program on Megatron-Core, with those of uneven stages."""
    known = table(program)
    if refusals := refusals_of(values):
        raise _refused(known.name, refusals)
    found = arguments_of(values, known)
    stages = run.planned.estimator.uneven_stages(values)
    if stages is not None and not stages.flags:
        reason = f"is none with stages of {', '.join(map(str, stages.layers))} layers"
        raise _refused(known.name, [Refusal("pipeline_layout", None, reason)])
    for flag in () if stages is None else stages.flags:
        name, _, value = flag.removeprefix("--").partition(" ")
        found[name] = value.strip('"') or True
    if "pipeline-model-parallel-layout" in found:  # has the chunks
        found.pop("num-virtual-stages-per-pipeline-rank", None)
    return found


def _megatron(run: RunToLaunch, slurm: bool) -> str:
    values = told(run.planned)
    found = _arguments(values, run, "megatron")
    parts: dict[str, list[str]] = {name: [] for name in rules("megatron")["parts"]}
    order = {name: at for at, name in enumerate(table("megatron").flags)}
    for name in sorted(found, key=lambda name: order.get(name, len(order))):
        parts[_part(name, order)].append(_words(name, found[name]))
    arrays = [f"{name}=(\n{_wrapped(words)}\n)" for name, words in parts.items() if words]
    used = [f'"${{{name}[@]}}"' for name, words in parts.items() if words]
    more = {"arrays": "\n".join(arrays), "arguments": " ".join(used)}
    text = _filled("megatron.sh", run, values, slurm=slurm, **more)
    return text.replace(_PAIRS, read_again(run, text, "launch file"))


def _part(flag: str, order: Mapping[str, int]) -> str:
    """Return the array of an argument: by its place in the table."""
    rule = rules("megatron")
    begun = [part for part, first in rule["parts"].items() if order[first] <= order.get(flag, 999)]
    return str(rule["place"].get(flag, begun[-1]))


def _words(name: str, value: Value) -> str:
    if value is True:
        return f"--{name}"
    texts = value if isinstance(value, list) else [str(value)]
    return " ".join([f"--{name}", *map(shlex.quote, texts)])


def _wrapped(words: Sequence[str]) -> str:
    """Return arguments in lines of at most a hundred characters, none of them broken."""
    kept = " ".join(word.replace(" ", "\0") for word in words)
    lines = textwrap.wrap(kept, 96, break_long_words=False, break_on_hyphens=False)
    return textwrap.indent("\n".join(lines).replace("\0", " "), "    ")


class _Template(string.Template):
    """A text with ~{name} where a value stands: shells and Python use the usual sign."""

    delimiter = "~"


def _filled(
    name: str, run: RunToLaunch, values: Mapping[str, Any], *, slurm: bool, **more: str
) -> str:
    """Return a file of folder written/ with its values, and those that all have."""

    def part(file: str, **given: str) -> str:
        filled: str = _Template(written(file)).substitute(given)
        return filled

    sizes = {"nodes": str(run.num_nodes), "per_node": str(run.per_node)}
    exports = [f"export {name}={value}" for name, value in environment_of(values).items()]
    return part(
        name,
        **sizes,
        header=part("slurm.sh", **sizes) if slurm else "",
        start=part("start_slurm.sh" if slurm else "start.sh", **sizes),
        about=_about(run),
        exports="\n".join(exports),
        steps=str(run.num_steps),
        **more,
    )


def _about(run: RunToLaunch) -> str:
    """Return the head of a file as comments: the layout, its estimate, what is assumed besides."""
    values: dict[str, Any] = dict(run.planned.values)
    lines = [
        f"{values['model'] or 'custom model'} on {values['num_gpus']:,} x "
        f"{values['accelerator'] or 'custom system'}: {layout_in_words(values)}",
        f"estimated: {values['step_seconds']:.4g} s a step",
        f"again: warehouse why --from FILE {_PAIRS}",
    ]
    if values["num_experts"] > 1:
        lines.append(f"tokens choose experts: {values['expert_routing']}")
    return "\n".join(f"# {line}" for line in lines)


def _bridge(run: RunToLaunch, slurm: bool) -> str:
    values = told(run.planned)
    found = _arguments(values, run, "bridge")
    keys = keys_of(found, int(values["data_parallel"]), environment_of(values), run.num_steps)
    pairs = read_again(run, keys, "launch file.yaml")
    template = "bridge_slurm.sh" if slurm else "bridge.yaml"
    return _filled(template, run, values, slurm=slurm, keys=keys).replace(_PAIRS, pairs)


def _torchtitan(run: RunToLaunch, slurm: bool) -> str:
    values, name = told(run.planned), table("torchtitan").name
    found = fields_of(values)
    configurations, nearest = same_shapes(values)
    reason = f"is no model of a configuration of its registry{nearest}"
    errors = [_refused(name, [Refusal("model", values["model"], reason)])]
    for module, config in configurations:
        try:
            command = command_of(module, config, found, int(values["num_gpus"]))
            pairs = read_again(run, command, "launch file")
        except InputError as refused:
            errors.append(refused)
            continue
        body = function_of(module, config, found, run.num_steps)
        template = "torchtitan_slurm.sh" if slurm else "torchtitan.py.txt"
        text = _filled(template, run, values, slurm=slurm, body=body, config=config)
        return text.replace(_PAIRS, pairs)
    raise errors[:2][-1]  # that of the first configuration, if there is one


_WRITERS = {"megatron": _megatron, "bridge": _bridge, "torchtitan": _torchtitan}
PROGRAMS = tuple(_WRITERS)
"""Programs that launch files are written for."""
