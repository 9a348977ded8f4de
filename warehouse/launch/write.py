"""Launch files of a layout: the tables of programs read backwards, and what the file needs besides.

Each file is read again before it is given out: whoever reads it gets the inputs and the step that it
was made of, or it is refused with the columns that differ.
"""

from __future__ import annotations

import math
import shlex
import string
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from estimators.contract import Refusal, RefusedError
from warehouse.errors import InputError, UsageError
from warehouse.evaluate.inputs import input_names
from warehouse.evaluate.one import show_configuration
from warehouse.launch.backwards import arguments_of, conflicts, text_of
from warehouse.launch.bridge import keys_of
from warehouse.launch.read import launch_of
from warehouse.launch.table import table
from warehouse.launch.trainer_config import (
    command_of,
    fields_of,
    function_of,
    same_shapes,
)
from warehouse.show.units import layout_in_words

if TYPE_CHECKING:
    from warehouse.evaluate.one import Evaluation
    from warehouse.launch.arguments import Value
    from warehouse.launch.backwards import Found

READ_ONLY = ("deepspeed", "hugging_face", "megatron_deepspeed", "nemo")
"""Programs whose launch files are read, and not written."""

_PLACEMENT = {
    *("pipeline_layout", "layers_in_first_stage", "layers_in_last_stage", "counts_embedding"),
    *("counts_loss", "virtual_pipeline"),
}
_NAMES = ("model", "profile")
"""Columns of names alone: their values are in others."""
_LARGEST_SERVER = 16
"""GPUs of the largest server; a larger NVLink domain is a rack of servers with four each."""

_BLACKWELL = 10.0
"""Compute capability from which Megatron-LM needs no order of launches from the environment."""


@dataclass(frozen=True)
class RunToLaunch:
    """A layout that a program is to run.

    Attributes
    ----------
    planned
        Its estimate, of inputs in texts.
    machine
        Inputs that no launch file has: the accelerator, its domain, constants; in texts.
    about
        Sentences of the plan for the head of the file.
    num_steps
        Steps of the run; None: not known.
    """

    planned: Evaluation
    machine: Mapping[str, str]
    about: Sequence[str] = ()
    num_steps: int | None = None

    @property
    def per_node(self) -> int:
        """GPUs of a server that the run can use: as many on each."""
        gpus, domain = (int(self.planned.values[name] or 8) for name in ("num_gpus", "nvlink_size"))
        return math.gcd(gpus, domain if domain <= _LARGEST_SERVER else 4)

    @property
    def num_nodes(self) -> int:
        """Servers of the run."""
        return int(self.planned.values["num_gpus"] or 1) // self.per_node


def check_program(program: str) -> None:
    """Refuse the name of a program that no launch file is written for."""
    hint = f"choose {', '.join(_WRITERS)}"
    if program in READ_ONLY:
        reason = f"launch files of {table(program).name} are read, not written"
        raise UsageError(f"`--launch` {program}: {reason}", hint)
    if program not in _WRITERS:
        raise UsageError(f"`--launch` {program} is not a program that is known", hint)


def launch_text(program: str, run: RunToLaunch, *, slurm: bool = False) -> str:
    """Return the launch file of a layout for a program; refuse what it cannot say, by column."""
    check_program(program)
    if "framework" not in run.planned.problem:
        reason = f"the layouts of {run.planned.estimator.name} are those of no program"
        raise UsageError(f"`--launch` {program}: {reason}", "plan with the default estimator")
    return _WRITERS[program](run, slurm)


# ---- read again ----


def read_again(run: RunToLaunch, text: str, name: str) -> None:
    """Refuse a launch file that would be read as another layout or another step."""
    planned = run.planned
    launch = launch_of(text, Path(name), {})
    known = input_names(planned.estimator, planned.relation)
    texts = {name: value for name, value in launch.columns.items() if name in known}
    texts |= {name: value for name, value in run.machine.items() if name not in _said_by(run)}
    try:
        found = show_configuration(
            *(planned.estimator, planned.relation, texts, planned.mends, planned.catalog),
            has_ends=False,
        )
    except RefusedError as error:
        raise _refused(launch.program, error.refusals) from None
    measures = planned.relation.measures  # what follows from them may count the names of choices
    others = [n for n in measures if not _is_same(found.results[n], planned.results[n])]
    must = {*planned.estimator.shape_columns, *planned.relation.keys, "num_gpus"} - _PLACEMENT
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


def _said_by(run: RunToLaunch) -> set[str]:
    """Return the columns that a launch file has to say: shape, choices, degrees, batch."""
    planned = run.planned
    names = {*planned.estimator.shape_columns, *planned.estimator.choice_columns}
    return names | {*planned.relation.keys, "model", "num_gpus", "global_batch_size", "framework"}


def _is_same(one: object, other: object) -> bool:
    numbers = (int, float)
    if isinstance(one, numbers) and isinstance(other, numbers):
        return math.isclose(one, other, rel_tol=1e-9) or (one != one and other != other)
    return text_of(one) == text_of(other)


def _refused(program: str, refusals: Sequence[Refusal]) -> InputError:
    return InputError.from_refusals(refusals, f"a launch file of {program}")


# ---- arguments ----


def _arguments(run: RunToLaunch, program: str) -> Found:
    """Return the arguments of a program on Megatron-Core, with those of uneven stages."""
    values, known = run.planned.values, table(program)
    if values["framework"] != known.framework:
        reason = f"is not the program of {known.name}, which is {known.framework}"
        raise _refused(known.name, [Refusal("framework", values["framework"], reason)])
    if refusals := conflicts(values):
        raise _refused(known.name, refusals)
    found = arguments_of(values, known)
    stages = run.planned.estimator.uneven_stages(values)
    if stages is not None and not stages.flags:
        reason = f"is none with stages of {', '.join(map(str, stages.layers))} layers"
        raise _refused(known.name, [Refusal("pipeline_layout", None, reason)])
    for flag in () if stages is None else stages.flags:
        name, _, value = flag.removeprefix("--").partition(" ")
        found[name] = value.strip('"') or True
    if "pipeline-model-parallel-layout" in found:
        found.pop("num-virtual-stages-per-pipeline-rank", None)
    return found | _needed(run, found)


def _needed(run: RunToLaunch, found: Found) -> Found:
    """Return the arguments that follow from others, or without which the program does not run."""
    values = run.planned.values
    needed: Found = {"max-position-embeddings": text_of(values["seq_len"])}
    needed["normalization"] = "RMSNorm" if values["uses_glu"] else "LayerNorm"
    needed["cross-entropy-loss-fusion"] = True
    if values["num_experts"] > 1:
        needed |= {"moe-grouped-gemm": True, "moe-permute-fusion": True}
        needed["moe-router-load-balancing-type"] = "aux_loss"
        needed["moe-aux-loss-coeff"] = "1e-3"
        if values["experts_per_token"] == 1:
            needed["moe-router-pre-softmax"] = True
    if values["dispatcher"] == "flex" and values["num_experts"] > 1:
        needed["moe-router-dtype"] = "fp32"
    if "moe-router-enable-expert-bias" in found:
        needed["moe-router-score-function"] = "sigmoid"
    backends = {"cudnn": "fused", "flash": "flash"}
    program = text_of(values["attention_program"]).partition("_")[0]
    if values["attention"] == "flash" and program in backends:
        needed["attention-backend"] = backends[program]
    return needed


def environment(run: RunToLaunch) -> dict[str, str]:
    """Return the variables of the environment that the program needs for what was estimated.

    Sources: NVIDIA/Megatron-LM @d98e8a64 megatron/training/arguments.py `validate_args`;
    NVIDIA-NeMo/Megatron-Bridge @067f987d scripts/performance/utils/overrides.py (connections),
    src/megatron/bridge/recipes (the others).
    """
    values = run.planned.values
    splits = values["tensor_parallel"] > 1 or values["context_parallel"] > 1
    needs_order = splits and values["zero_stage"] < 2 and not values["overlaps_expert_comm"]
    many = "32" if values["num_experts"] > 1 else "8"
    connections = "1" if needs_order and not _is_blackwell(run) else many
    found = {"CUDA_DEVICE_MAX_CONNECTIONS": connections, "TORCH_NCCL_AVOID_RECORD_STREAMS": "1"}
    found["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if values["uses_cuda_graphs"]:
        found["NCCL_GRAPH_REGISTER"] = "0"
    return found


def _is_blackwell(run: RunToLaunch) -> bool:
    name = str(run.planned.values.get("accelerator"))
    with suppress(RefusedError):
        product = run.planned.catalog.find("accelerator", name)
        return float(product.get("compute_capability") or 0) >= _BLACKWELL
    return False


# ---- Megatron-LM ----

_PARTS = {
    "MODEL": "num-layers",
    "LAYOUT": "tensor-model-parallel-size",
    "PRECISION": "bf16",
    "RECOMPUTATION": "recompute-granularity",
    "KERNELS": "overlap-grad-reduce",
}
"""Array of the script -> the argument of the table with which it begins."""

_PART_OF = {
    "max-position-embeddings": "MODEL",
    "normalization": "MODEL",
    "glu-linear-offset": "MODEL",
    "ckpt-format": "LAYOUT",
    "reuse-grad-buf-for-mxfp8-param-ag": "PRECISION",
}
"""Arguments that the table does not read -> their array; others belong to the kernels."""


def _megatron(run: RunToLaunch, slurm: bool) -> str:
    found = _arguments(run, "megatron")
    parts: dict[str, list[str]] = {name: [] for name in _PARTS}
    for name, value in found.items():
        parts[_part(name)].append(_words(name, value))
    arrays = [f"{name}=(\n{_wrapped(words)}\n)" for name, words in parts.items() if words]
    used = [f'"${{{name}[@]}}"' for name, words in parts.items() if words]
    steps = f" --train-iters {run.num_steps}" if run.num_steps else " --train-iters 100"
    text = _filled(
        "megatron.sh",
        run,
        slurm=slurm,
        arrays="\n".join(arrays),
        arguments=" ".join(used),
        steps=steps.strip(),
    )
    read_again(run, text, "launch file")
    return text


def _part(flag: str) -> str:
    names = [*table("megatron").flags]
    if flag not in names:
        return _PART_OF.get(flag, "KERNELS")
    begun = [part for part, first in _PARTS.items() if names.index(first) <= names.index(flag)]
    return begun[-1]


def _words(name: str, value: Value) -> str:
    if value is True:
        return f"--{name}"
    texts = value if isinstance(value, list) else [str(value)]
    return " ".join([f"--{name}", *map(shlex.quote, texts)])


def _wrapped(words: Sequence[str]) -> str:
    """Return arguments in lines of at most a hundred characters, none of them broken."""
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) > 95:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return textwrap.indent("\n".join([*lines, line]), "    ")


class _Template(string.Template):
    """A text with ~{name} where a value stands: shells and Python use the usual sign."""

    delimiter = "~"


def _filled(name: str, run: RunToLaunch, *, slurm: bool, **values: str) -> str:
    """Return a template of this folder with its values, and those that all have."""

    def part(file: str, **more: str) -> str:
        text = files("warehouse.launch").joinpath(file).read_text("utf-8")
        return _Template(text).substitute(more)

    sizes = {"nodes": str(run.num_nodes), "per_node": str(run.per_node)}
    exports = "\n".join(f"export {name}={value}" for name, value in environment(run).items())
    start = part("start_slurm.sh" if slurm else "start.sh", **sizes)
    header = part("slurm.sh", **sizes) if slurm else ""
    given = {"header": header, "start": start, "about": _about(run), "exports": exports}
    return part(name, **sizes, **given, **values)


def _about(run: RunToLaunch) -> str:
    """Return the head of a file as comments: the layout, its estimate, what is assumed besides."""
    planned = run.planned
    values = planned.values
    pairs = [f"{name}={value}" for name, value in run.machine.items() if name not in _said_by(run)]
    lines = [
        f"{values['model'] or 'custom model'} on {values['num_gpus']:,} x "
        f"{values['accelerator'] or 'custom system'}: {layout_in_words(values)}",
        f"estimated: {values['step_seconds']:.4g} s a step",
        *run.about,
        f"the estimate of this file: warehouse why --from FILE {shlex.join(pairs)}",
    ]
    if routing := values.get("expert_routing"):
        lines += [f"the estimate has {routing} routing"] if values["num_experts"] > 1 else []
    if planned.mends:
        lines.append("")
    return "\n".join(f"# {line}" for line in lines if line)


# ---- Megatron-Bridge ----


def _bridge(run: RunToLaunch, slurm: bool) -> str:
    found = _arguments(run, "bridge")
    replicas = int(run.planned.layout["data_parallel"] or 1)
    keys = keys_of(found, replicas, environment(run), run.num_steps or 100)
    read_again(run, keys, "launch file.yaml")
    return _filled("bridge_slurm.sh" if slurm else "bridge.yaml", run, slurm=slurm, keys=keys)


# ---- torchtitan ----


def _torchtitan(run: RunToLaunch, slurm: bool) -> str:
    values, name = run.planned.values, table("torchtitan").name
    if values["framework"] not in ("fsdp", "fsdp_compile"):
        reason = f"is not the program of {name}, which is fsdp or fsdp_compile"
        raise _refused(name, [Refusal("framework", values["framework"], reason)])
    found = fields_of(values)
    error: InputError | None = None
    configurations, nearest = same_shapes(values)
    for module, config in configurations:
        command = command_of(module, config, found, int(values["num_gpus"] or 1))
        try:
            read_again(run, command, "launch file")
        except InputError as refused:
            error = error or refused
            continue
        body = function_of(module, config, found, run.num_steps or 100)
        template = "torchtitan_slurm.sh" if slurm else "torchtitan.py.txt"
        return _filled(template, run, slurm=slurm, body=body, config=config)
    reason = f"is no model of a configuration of its registry{nearest}"
    raise error or _refused(name, [Refusal("model", values["model"], reason)])


_WRITERS: dict[str, Callable[[RunToLaunch, bool], str]] = {
    "megatron": _megatron,
    "bridge": _bridge,
    "torchtitan": _torchtitan,
}

PROGRAMS = tuple(_WRITERS)
"""Programs that launch files are written for."""
