"""Launch files of nested keys: YAML and JSON, as paths of keys with their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import yaml

from warehouse.errors import InputError

if TYPE_CHECKING:
    from warehouse.launch.arguments import Value
    from warehouse.launch.table import Table

MOST_KEYS = 20_000
"""Keys of a file: those of the largest resolved configurations have fifteen hundred. Repeated parts
of YAML count as often as they stand."""

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
    return _mapping(content, file)


def read_json(text: str, file: str) -> dict[str, Any]:
    """Return the keys of a JSON file."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise InputError(f"{file}: is nested too deeply") from None
    except ValueError as error:
        reason = str(error) if text.strip() else "it is empty"
        raise InputError(f"{file}: is not valid JSON: {reason}") from None
    return _mapping(content, file)


def _mapping(content: object, file: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise InputError(f"{file}: must be keys with values", "name the file that starts the run")
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
        return value if value else None if value is None else False
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


# ---- as arguments ----


def as_arguments(
    values: Mapping[str, Value], known: Table
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
                ignored[path] = f"as a part of {whole.replace('-', '_')}"
                arguments.setdefault(whole, True)
                places.setdefault(whole, path.rpartition(".")[0])
                continue
        if flag in arguments and value in ("none", [], ""):
            continue
        if value == "none" and not known.knows(flag):
            ignored[path] = "as it has no value"
            continue
        arguments[flag], places[flag] = value, path
    return arguments, places, ignored


def _meant(key: str, value: Value, known: Table) -> tuple[str, Value]:
    """Return the argument that a key means, and its value; a switch may be the opposite."""
    plain = key.lstrip("!").replace("_", "-")
    if key.startswith("!"):
        return plain, _opposite(value)
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


def _opposite(value: Value) -> Value:
    return (
        value if isinstance(value, list) or value == "none" else value in (False, "false", "False")
    )
