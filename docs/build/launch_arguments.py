"""Arguments that programs have, from checkouts of them: the list that tests of launch files read.

``python -m docs.build.launch_arguments CHECKOUT...`` writes the rows of each checkout anew: of
Megatron-LM alone, of Megatron-Bridge with Megatron-LM beside it, or of torchtitan. Those of
Megatron-LM are what its parser has, so that they need a Python with PyTorch. The others are read
from the text of the classes. ``--check CHECKOUT`` reads lines of JSON with `args`, `env`, `world`
and `major`, the compute capability, and prints for each what Megatron-LM says: its parser, its
checks, and its configuration of a transformer.
"""

from __future__ import annotations

import argparse
import ast
import csv
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import types
import typing
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

LIST = Path(__file__).parents[2] / "tests" / "warehouse" / "launch_arguments.csv"
COLUMNS = ("program", "commit", "argument", "kind", "values")

BRIDGE = {
    "model": ("models/mla_provider.py", "MLAModelProvider"),
    "train": ("training/config.py", "TrainingConfig"),
    "optimizer": ("training/config.py", "OptimizerConfig"),
    "scheduler": ("training/config.py", "SchedulerConfig"),
    "ddp": ("training/config.py", "DistributedDataParallelConfig"),
    "dist": ("training/config.py", "DistributedInitConfig"),
    "comm_overlap": ("training/comm_overlap.py", "CommOverlapConfig"),
    "mixed_precision": ("training/mixed_precision.py", "MixedPrecisionConfig"),
    "dataset": ("training/config.py", "MockGPTDatasetConfig"),
    "tokenizer": ("training/tokenizers/config.py", "TokenizerConfig"),
    "checkpoint": ("training/config.py", "CheckpointConfig"),
    "rng": ("training/config.py", "RNGConfig"),
    "rerun_state_machine": ("training/config.py", "RerunStateMachineConfig"),
}
TITAN = {
    "training": "TrainingConfig",
    "parallelism": "ParallelismConfig",
    "compile": "CompileConfig",
}
Row = tuple[str, str, str]


# ---- classes, read as text ----


def fields_of(path: Path, name: str, roots: list[Path]) -> dict[str, str]:
    """Return the fields of a class and of those that it inherits from, with their annotations."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            near = [path.parents[node.level - 1]] if node.level else roots
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _elsewhere(node.module, alias.name, near, roots)
        if isinstance(node, ast.ClassDef) and node.name == name:
            for base in node.bases:
                plain = ast.unparse(base).partition("[")[0]
                found |= fields_of(path, plain, roots)
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    found[part.target.id] = ast.unparse(part.annotation)
    return found


def _elsewhere(module: str, name: str, near: list[Path], roots: list[Path]) -> dict[str, str]:
    for root in near:
        plain = root / module.replace(".", "/")
        for path in (plain.with_suffix(".py"), plain / "__init__.py"):
            if path.is_file():
                return fields_of(path, name, roots)
    return {}


def rows_of_bridge(checkout: Path, megatron: Path) -> list[Row]:
    """Return the keys of each section."""
    roots = [checkout / "src", megatron]
    return [
        (f"{section}.{field}", "field", kind)
        for section, (path, name) in BRIDGE.items()
        for field, kind in fields_of(
            checkout / "src" / "megatron" / "bridge" / path, name, roots
        ).items()
    ]


def rows_of_torchtitan(checkout: Path) -> list[Row]:
    """Return the fields of each section that launch files set."""
    path = checkout / "torchtitan" / "config" / "configs.py"
    rows = [
        (f"{section}.{field}", "field", kind)
        for section, name in TITAN.items()
        for field, kind in fields_of(path, name, [checkout]).items()
    ]
    policies = checkout / "torchtitan" / "distributed" / "activation_checkpoint.py"
    classes = {n.name for n in ast.parse(policies.read_text()).body if isinstance(n, ast.ClassDef)}
    known = {"FullAC", "SelectiveAC"} & classes
    return [*rows, ("activation_checkpoint", "field", "|".join(sorted(known)))]


# ---- Megatron-LM's own parser ----


class _Empty(MetaPathFinder, Loader):
    """Modules of kernels that a machine without a GPU does not have, with nothing in them."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        is_one = name.partition(".")[0] == "triton"
        return ModuleSpec(name, self, is_package=True) if is_one else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__dict__.update(__version__="0", __getattr__=_nothing)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave it empty."""


_BEFORE = (
    *("torch.utils.flop_counter", "torch._dynamo", "torch.nn.attention.flex_attention"),
    *("torch._inductor.runtime.triton_compat", "torch._inductor.runtime.triton_heuristics"),
)
"""Modules that ask whether there is triton, imported while there is none."""


_KERNELS = {
    "megatron.core.models.common.embeddings.rope_utils": (
        *("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"),
    ),
    "megatron.core.transformer.moe.moe_utils": (
        *("fused_permute", "fused_permute_with_probs", "fused_sort_chunks_by_index"),
        *("fused_sort_chunks_by_index_with_probs", "fused_unpermute"),
    ),
}
"""Functions of Transformer Engine that a configuration asks for."""


def _nothing(name: str) -> MagicMock:
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock(name=name)


def megatron_arguments(checkout: Path) -> Any:
    """Return module `arguments` of a checkout of Megatron-LM."""
    sys.path.insert(0, str(checkout))
    vars(typing).setdefault("override", lambda function: function)  # of Python 3.12
    if importlib.util.find_spec("triton") is None:
        for name in _BEFORE:
            importlib.import_module(name)
        torch: Any = importlib.import_module("torch")
        torch.compile = lambda function=None, **_: function or (lambda inner: inner)
        sys.meta_path.insert(0, _Empty())
    return importlib.import_module("megatron.training.arguments")


def rows_of_megatron(checkout: Path) -> list[Row]:
    """Return the arguments of the parser: switches, and those of one or several values."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    megatron_arguments(checkout).add_megatron_arguments(parser)
    rows = []
    for action in parser._actions:
        kind = "switch" if action.nargs == 0 else "several" if action.nargs else "one"
        values = "|".join(str(choice) for choice in action.choices or ())
        values = values or (getattr(action.type, "__name__", "") if kind != "switch" else "")
        rows += [(flag.lstrip("-"), kind, values) for flag in action.option_strings]
    return sorted(rows)


def check(checkout: Path) -> None:
    """Print what Megatron-LM says of arguments: `ok`, or its error."""
    arguments = megatron_arguments(checkout)
    torch: Any = importlib.import_module("torch")
    utils: Any = importlib.import_module("megatron.training.argument_utils")
    for place, names in _KERNELS.items():
        module = importlib.import_module(place)
        vars(module).update({name: getattr(module, name) or _nothing(name) for name in names})
    core: Any = importlib.import_module("megatron.core.utils")
    core.get_te_version = lambda: core.PkgVersion("99")
    for line in sys.stdin:
        case = json.loads(line)
        os.environ |= {"WORLD_SIZE": str(case["world"]), "RANK": "1", **case["env"]}
        device = types.SimpleNamespace(major=case["major"], minor=0)
        torch.cuda.get_device_properties = lambda *_, device=device: device
        torch.cuda.get_device_capability = lambda *_, device=device: (device.major, 0)
        arguments.is_te_min_version = lambda *_, **__: True
        sys.argv = ["pretrain_gpt.py", *case["args"]]
        said = "ok"
        try:
            with open(os.devnull, "w") as nowhere:  # noqa: PTH123 (a device)
                sys.stdout = nowhere
                parsed = arguments.parse_args()
                arguments.validate_args(parsed)
                utils.core_transformer_config_from_args(parsed)
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            sys.stdout = sys.__stdout__
        print(json.dumps(said), flush=True)


# ---- the list ----


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def write(checkouts: list[Path]) -> None:
    """Write the rows of some checkouts anew; those of other programs stay."""
    found: dict[str, tuple[str, list[Row]]] = {}
    megatron = next((each for each in checkouts if (each / "pretrain_gpt.py").is_file()), None)
    for each in checkouts:
        if each == megatron and len(checkouts) == 1:
            found["megatron"] = (_commit(each), rows_of_megatron(each))
        elif (each / "torchtitan").is_dir():
            found["torchtitan"] = (_commit(each), rows_of_torchtitan(each))
        elif (each / "src" / "megatron" / "bridge").is_dir() and megatron is not None:
            found["bridge"] = (_commit(each), rows_of_bridge(each, megatron))
    with LIST.open(newline="", encoding="utf-8") as file:
        kept = [row for row in csv.reader(file) if row[0] not in (*found, "program")]
    new = [[name, commit, *row] for name, (commit, rows) in found.items() for row in rows]
    with LIST.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *sorted([*kept, *new])])


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(Path(sys.argv[2]).resolve())
    else:
        write([Path(each).resolve() for each in sys.argv[1:]])
