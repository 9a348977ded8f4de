"""A new entry of a catalog file: a model or a system that differs from another in some values."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

from estimators.catalog import OWN_SYSTEM, PRODUCT_COLUMNS, product_behind, stated_of
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError, UsageError
from warehouse.studies.definitions import BASED_ON, SECTIONS, Definitions, read_definitions
from warehouse.studies.toml_files import Faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from estimators.contract import Catalog, Scalar

_NO_VALUES = (*SECTIONS.values(), "accelerator", BASED_ON, "assumed", "source", "note")
"""Columns of a row that are no values of an entry."""

_OF_FILES = ("assumed", "source", "note")
"""Of these, what an entry of a model's file states: no other row has it."""

_OF_PRODUCTS = {
    **PRODUCT_COLUMNS,
    "nvlink_size": "gpus_per_node",
    "power_limit_watts": "tdp_watts",
}
"""Attribute of a system -> its column in table `accelerator`."""


def new_definition(
    base: str, name: str, pairs: Sequence[str], known: Definitions, file: str
) -> str:
    """Return an entry as TOML: what it is based on, its values, and in comments all others.

    Of a model that comes from its config.json it states every value: the file may move or change.

    Parameters
    ----------
    base, name
        A model or a system by any of its names, and the name of the entry.
    pairs
        Texts such as ``network_bytes_per_second=25e9``.
    known, file
        Definitions that `base` may be one of, and the name of the file in errors.

    Raises
    ------
    InputError
        If nothing is called `base`, something is called `name`, or a value is refused.
    """
    catalog = known.added_to(packaged_catalog())
    section, row = _base(catalog, base)
    found = next(iter(row.values()))
    values = dict([_pair(pair) for pair in pairs])
    if base in known.paths:
        stated = {key: row[key] for key in row if key in _OF_FILES}
        stated = {**_attributes(catalog, section, str(found)), **stated}
    else:
        stated = {BASED_ON: found}
    written = {key: (value, _text(value)) for key, value in stated.items()} | values
    entry = {key: value for key, (value, _) in written.items()}
    faults = Faults()
    defined = read_definitions({section: {name: entry}}, file, faults)
    if faults.refusals:
        raise InputError.from_refusals(faults.refusals, file)
    defined.added_to(catalog)  # refuses a name that is taken
    lines = [
        f"[{section}.{_key(name)}]",
        *(f"{key} = {text}" for key, (_, text) in written.items()),
    ]
    if BASED_ON in stated:
        others = _attributes(catalog, section, str(found))
        lines += [f"# from {found}, unless stated above:"]
        lines += [f"# {key} = {_text(value)}" for key, value in others.items() if key not in values]
    return "\n".join([*lines, ""])


def _base(catalog: Catalog, name: str) -> tuple[str, Any]:
    """Return the section of a model or a system in any spelling, and its row."""
    for section, table in (("systems", "accelerator"), ("systems", "system"), ("models", "model")):
        if (row := catalog.known(table, name)) is not None:
            return section, row
    hint = catalog.hint_on_name("accelerator", name)
    hint = catalog.hint_on_name("model", name) if hint.startswith("known") else hint
    raise InputError(f"`--from` {name}: is neither a system nor a model", hint)


def _pair(pair: str) -> tuple[str, tuple[Any, str]]:
    """Return a key, its value and the value as TOML."""
    key, _, text = pair.partition("=")
    key, text = key.strip().removeprefix("--"), text.strip()
    if not key or not text:
        raise UsageError(f"`{pair}` is not of the form key=value", "write nvlink_size=8")
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return key, (text, json.dumps(text, ensure_ascii=False))
    is_one = parsed.keys() == {"value"} and text.isprintable() and "#" not in text
    return key, (parsed["value"], text) if is_one else (text, json.dumps(text))


def _attributes(catalog: Catalog, section: str, name: str) -> dict[str, Scalar]:
    """Return the values that an entry takes over from its base."""
    rows = catalog.tables[SECTIONS[section]]
    if section == "models":
        found = dict(rows[name])
    else:
        product = catalog.tables["accelerator"].get(product_behind(catalog, name) or "", {})
        found = {attribute: product.get(column) for attribute, column in _OF_PRODUCTS.items()}
        found["hbm_bytes"] = product.get("device_bytes") or product.get("hbm_bytes")
        if name in catalog.tables.get(OWN_SYSTEM, {}):
            found |= stated_of(catalog, name)
        elif not product:
            found = dict(rows[name])
    return {
        key: value for key, value in found.items() if value is not None and key not in _NO_VALUES
    }


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _text(value: Scalar) -> str:
    """Return a value as TOML; a number as short as it can be."""
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else f"{value:.17g}"
    return json.dumps(value, ensure_ascii=False)
