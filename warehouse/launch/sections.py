"""Launch files of nested keys: YAML and JSON, as paths of keys with their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import yaml

from warehouse.errors import InputError
from warehouse.files import json_object, read_text
from warehouse.launch.arguments import Given
from warehouse.launch.table import table
from warehouse.studies.hugging_face import FILE_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.launch.arguments import Value
    from warehouse.launch.table import ProgramTable

MOST_KEYS = 20_000
"""Keys of a file: those of the largest resolved configurations have fifteen hundred. Repeated parts
of YAML count as often as they stand."""

MAX_BYTES = 1_000_000
"""Largest launch file: those of the largest runs have some kilobytes."""

HINT = "name the script, YAML or JSON that starts the run"

_DEEPEST = 50
_REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")
_STAGES = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


def read_yaml(text: str, file: str) -> dict[str, Any]:
    """Return the keys of a YAML file; objects of Python are not made."""
    try:
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        reason = getattr(error, "problem", None) or "it is nested too deeply"
        raise InputError(f"{file}: {line}is not valid YAML: {reason}") from None
    if not isinstance(content, dict):
        raise InputError(f"{file}: must be keys with values", HINT)
    return content


_Loader: Any = type("_Loader", (yaml.SafeLoader,), {})
"""YAML whose unknown tags are values without the tag."""


def _untagged(loader: Any, _suffix: str, node: Any) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else None


_Loader.add_multi_constructor("", _untagged)


def paths(content: Mapping[str, Any], file: str) -> dict[str, Value]:
    """Return the values of a file by the paths of their keys; references to other keys followed."""
    found: dict[str, Value] = {}
    for path, value in _walk(content, (), file):
        found[path] = value
        if len(found) > MOST_KEYS:
            raise InputError(f"{file}: has more than {MOST_KEYS:,} keys")
    for path, value in found.items():
        if isinstance(value, str) and "${" in value:
            found[path] = _followed(path, value, found)
    return found


def _walk(
    content: Mapping[str, Any], above: tuple[str, ...], file: str
) -> Iterator[tuple[str, Value]]:
    if len(above) > _DEEPEST:
        raise InputError(f"{file}: is nested too deeply")
    for key, value in content.items():
        path = (*above, str(key))
        plain = _plain(value)
        if plain is None and isinstance(value, Mapping):
            yield from _walk(value, path, file)
        elif str(key) not in ("_target_", "_call_", "_builder_", "_partial_", "_args_"):
            yield ".".join(path), "none" if plain is None else plain


def _plain(value: object) -> Value | None:
    """Return a value as a text, a switch or texts; None for keys with values, and for none."""
    if isinstance(value, Mapping):
        if "_name_" in value:  # a member of an enumeration
            return str(value["_name_"])
        if "_target_" in value and set(value) <= {"_target_", "_call_"}:  # a type, a function
            return str(value["_target_"]).rpartition(".")[2]
        return None
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, list | tuple | set):
        return _list([*value])
    return str(value)


def _list(values: list[Any]) -> Value:
    if values and all(isinstance(each, list) for each in values):  # stages of a pipeline
        stages = [[str(name) for name in stage] for stage in values]
        if all(name in _STAGES for stage in stages for name in stage):
            return "|".join("".join(_STAGES[name] for name in stage) for stage in stages)
    return [str(_plain(each)) for each in values]


def _followed(path: str, value: str, found: Mapping[str, Value], depth: int = 0) -> Value:
    """Return a text with ``${model.seq_length}`` or ``${.seq_length}`` as what it refers to."""
    match = _REFERENCE.fullmatch(value.strip())
    if match is None or depth > _DEEPEST:
        return value
    dots, name = match.groups()
    above = path.split(".")[: -len(dots)] if dots else []
    target = ".".join([*above, name])
    other = found.get(target, value)
    is_reference = isinstance(other, str) and "${" in other and target != path
    return _followed(target, str(other), found, depth + 1) if is_reference else other


# ---- programs ----

_DEEPSPEED = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size")
_TRAINER = ("per_device_train_batch_size", "gradient_checkpointing", "learning_rate")
_PROGRAMS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "bridge": lambda keys: {"model", "train"} <= keys.keys(),
    "nemo": lambda keys: "trainer" in keys and not keys.keys().isdisjoint(("model", "data")),
    "megatron_yaml": lambda keys: not keys.keys().isdisjoint(("language_model", "model_parallel")),
    "hugging_face": lambda keys: not keys.keys().isdisjoint(_TRAINER),
    "deepspeed": lambda keys: not keys.keys().isdisjoint(_DEEPSPEED),
}
"""Program -> whether a file of keys is one of its."""


def of_keys(text: str, path: Path) -> Given:
    """Return the arguments of a YAML or JSON file."""
    file = str(path)
    is_json = path.suffix.lower() == ".json"
    content = json_object(text, file, HINT) if is_json else read_yaml(text, file)
    program = next((name for name, is_one in _PROGRAMS.items() if is_one(content)), None)
    if program is None:
        names = ", ".join(table(name).name for name in _PROGRAMS)
        hint = "a model goes with --model" if "hidden_size" in content else f"known: {names}"
        raise InputError(f"{file}: has the keys of no program that is known", hint)
    known, values = table(program), paths(content, file)
    if program == "deepspeed":
        values = {f"deepspeed.{name}": value for name, value in values.items()}
    if program in ("deepspeed", "hugging_face"):
        values = with_deepspeed(values, path.parent, file)
        places = {name: name.removeprefix("deepspeed.") for name in values}
        places = places if program == "deepspeed" else {name: name for name in values}
        return Given(known, values, places=places, columns=model_beside(values, path.parent))
    arguments, places, ignored = as_arguments(values, known)
    return Given(known, arguments, _num_gpus(values), places, ignored=ignored)


def with_deepspeed(values: Mapping[str, Value], folder: Path, file: str) -> dict[str, Value]:
    """Return arguments with those of the JSON that they name for DeepSpeed or FSDP."""
    found = dict(values)
    for flag in ("deepspeed", "deepspeed_config", "deepspeed-config", "fsdp_config"):
        named = values.get(flag)
        if isinstance(named, str) and named.endswith(".json"):
            path = folder / named
            if not path.is_file():
                hint = "put it there, or name it by its path from the folder of this file"
                raise InputError(f"{file}: `{flag}` {named}: there is no such file", hint)
            text = read_text(path, MAX_BYTES, HINT)
            more = paths(json_object(text, str(path), HINT), str(path))
            section = flag if flag == "fsdp_config" else "deepspeed"
            found |= {f"{section}.{name}": value for name, value in more.items()}
    return found


def model_beside(values: Mapping[str, Value], folder: Path) -> dict[str, str]:
    """Return the model: config.json of the folder that is named, or of that of the file."""
    named = [values.get(name) for name in ("model_name_or_path", "config_name")]
    for each in (*(folder / name for name in named if isinstance(name, str)), folder):
        with suppress(OSError, ValueError):
            if (each / FILE_NAME).is_file():
                return {"model": str(each / FILE_NAME)}
    return {}


def _num_gpus(values: Mapping[str, Value]) -> int | None:
    """Return the GPUs of a file of keys: devices of nodes, or replicas times degrees."""

    def whole(*names: str) -> int:
        texts = (str(values.get(name, "")) for name in names)
        return next((int(text) for text in texts if text.isdecimal() and len(text) < 8), 0)

    if devices := whole("trainer.devices"):
        return devices * (whole("trainer.num_nodes") or 1)
    if world := whole("world_size"):
        return world
    product = whole("comm_overlap.data_parallel_size", "data_parallel_size")
    for degree in ("tensor_model", "pipeline_model", "context"):
        key = f"{degree}_parallel_size"
        product *= whole(f"model.{key}", f"model.transformer.{key}") or 1
    return product or None


# ---- as arguments ----


def as_arguments(
    values: Mapping[str, Value], known: ProgramTable
) -> tuple[dict[str, Value], dict[str, str], dict[str, str]]:
    """Return the arguments that paths mean, the path of each, and the reasons of ignored paths.

    Of two paths with one argument the later counts, unless it has no value.
    """
    arguments: dict[str, Value] = {}
    places: dict[str, str] = {}
    ignored: dict[str, str] = {}
    for path, value in values.items():
        section, key = path.partition(".")[0], path.rpartition(".")[2]
        meaning = known.same.get(path)
        if meaning is None and section in known.sections:
            ignored[path] = known.sections[section]
            continue
        if section in known.refused:
            key, value = section, value if value == "none" else True
        flag, value = _meant(meaning or known.same.get(key) or key, value, known)
        if not known.knows(flag):  # a part of a key that is known
            above = (each.replace("_", "-") for each in reversed(path.split(".")[1:-1]))
            if (whole := next(filter(known.knows, above), None)) is not None:
                ignored[path] = known.why_ignored(whole) or f"a part of {whole.replace('-', '_')}"
                if ignored[path] != known.why_ignored(whole):
                    arguments.setdefault(whole, True)
                    places.setdefault(whole, path.rpartition(".")[0])
                continue
        if flag in arguments:
            is_empty = value in ("none", [], "")
            ignored[path if is_empty else places[flag]] = (
                "as another key of the same argument counts"
            )
            if is_empty:
                continue
        if value == "none" and not known.knows(flag):
            ignored[path] = "without a value"
            continue
        arguments[flag], places[flag] = value, path
    return arguments, places, ignored


def _meant(key: str, value: Value, known: ProgramTable) -> tuple[str, Value]:
    """Return the argument that a key means, and its value; a switch may be the opposite."""
    plain = key.lstrip("!").replace("_", "-")
    if key.startswith("!"):
        has_none = isinstance(value, list) or value == "none"
        return plain, value if has_none else value in (False, "false", "False")
    if known.knows(plain):
        return plain, value
    if isinstance(value, bool):
        for prefix in ("no-", "disable-"):
            if known.knows(prefix + plain):
                return prefix + plain, not value
    for prefix in ("moe-", "use-", "log-"):
        if known.knows(prefix + plain):
            return prefix + plain, value
    return key, value
