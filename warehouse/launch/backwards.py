"""Arguments of a program from columns: its table read backwards, with written/*.toml.

A column's entry in a table inverts by itself. What several arguments say together is in a file of
predicates: written/megatron.toml says what its entries are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from estimators.contract import Refusal, RefusedError
from estimators.predicates import compiled

if TYPE_CHECKING:
    from warehouse.evaluate.one import Evaluation
    from warehouse.launch.arguments import Value
    from warehouse.launch.table import Flag, ProgramTable

Found = dict[str, "Value"]

_BLACKWELL = 10.0
"""Compute capability from which the order of launches needs no variable of the environment."""


def text_of(value: object) -> str:
    """Return a value as a launch file has it; "" for none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None or value != value else str(value)  # NaN


def written(name: str) -> str:
    """Return a file of the folder of what is written."""
    return files("warehouse.launch").joinpath("written", name).read_text("utf-8")


@cache
def rules(program: str) -> Mapping[str, Any]:
    """Return the rules of a program, from written/PROGRAM.toml."""
    return tomllib.loads(written(f"{program}.toml"))


def told(planned: Evaluation) -> dict[str, Any]:
    """Return the columns of a layout, and those that rules read besides."""
    values: dict[str, Any] = dict(planned.values)
    layers, dense, period = (
        int(values[name] or 0) for name in ("num_layers", "num_dense_layers", "moe_period")
    )
    kinds = f"([0]*{dense}+[1]*{layers - dense})"
    if period > 1:
        rest = f"+[0]*{layers % period}" if layers % period else ""
        kinds = f"(([0]*{period - 1}+[1])*{layers // period}{rest})"
    is_mixture = values["num_experts"] > 1
    captured = ["attn"] if values["captures_attention"] else []
    captured += ["moe_router"] if is_mixture else []
    overlaps = values["overlaps_expert_comm"] and values["expert_parallel"] > 1
    captured += ["mlp"] if (dense and not overlaps) or not is_mixture else []
    is_blackwell = False
    with suppress(RefusedError):
        product = planned.catalog.find("accelerator", str(values.get("accelerator")))
        is_blackwell = float(product.get("compute_capability") or 0) >= _BLACKWELL
    return values | {
        "window_left": int(values["attention_window"] or 0) - 1,
        "expert_pattern": kinds,
        "captured": "+".join(captured),
        "recomputes_moe": "moe" in text_of(values["recompute_modules"]).split("+"),
        "is_blackwell": is_blackwell,
    }


def arguments_of(values: Mapping[str, Any], known: ProgramTable) -> Found:
    """Return the arguments that say these columns; some cannot be said."""
    rule, found = rules("megatron"), said("megatron", values)
    texts = {name: text_of(value) for name, value in values.items()}
    done = {"attention", "global_batch_size"}
    for name, flag in known.flags.items():
        if name in found or flag.by or (flag.beside and flag.beside not in found):
            continue
        if flag.is_switch and _is_on(flag, texts):
            found[name] = rule["at"].get(name, True)
        elif flag.column and flag.column not in done:
            done.add(flag.column)
            if (text := _said(name, flag, texts, rule["always"])) is not None:
                found[name] = text
    if values["attention"] == "unfused":
        found["attention-backend"] = "unfused"
    left_out = {f for each in rule["without"] if _holds(each, values) for f in each["flags"]}
    return {name: value for name, value in found.items() if name not in left_out}


def said(program: str, values: Mapping[str, Any]) -> Found:
    """Return the arguments that the rules of a program give."""
    texts = {name: text_of(value) for name, value in values.items()}
    several = rules(program).get("several", ())
    found: Found = {}
    for name, value in _given(rules(program)["give"], values).items():
        text = value.format_map(texts) if isinstance(value, str) else value
        found[name] = str(text).split("+") if name in several else text
    return found


def refusals_of(values: Mapping[str, Any]) -> list[Refusal]:
    """Return the columns that the program refuses beside others."""
    return [
        Refusal(each["column"], values[each["column"]], each["because"])
        for each in rules("megatron")["refused"]
        if _holds(each, values)
    ]


def environment_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of the environment that a program on Megatron-Core needs."""
    return _given(rules("megatron")["environment"], values)


def _given(entries: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the entries give whose predicates hold; of two the later counts."""
    return {k: v for each in entries if _holds(each, values) for k, v in each["give"].items()}


def _holds(entry: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    return bool(compiled(entry["when"]).holds(values))


def _is_on(flag: Flag, texts: Mapping[str, str]) -> bool:
    if flag.on:
        return all(texts.get(column) == text for column, text in flag.on.items())
    return any(texts.get(column) != text for column, text in flag.off.items())


def _said(name: str, flag: Flag, texts: Mapping[str, str], always: Sequence[str]) -> str | None:
    """Return the value of an argument for its column; None where it is left out."""
    text = texts.get(flag.column, "")
    if text == "" or (text == flag.default and name not in always):
        return None
    if not flag.values:
        return text
    return next((theirs for theirs, ours in flag.values.items() if ours == text), None)
