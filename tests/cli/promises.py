"""What docs/stability.md promises of the commands: their options, and the keys of their JSON.

``python -m tests.cli.promises`` writes promises.json anew. Do so when something came, or when it
went in the way that the page describes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warehouse.cli.commands import COMMANDS
from warehouse.cli.documents import DOCUMENTS, document_schema
from warehouse.cli.lazy import LazyCommand

FILE = Path(__file__).with_name("promises.json")


def options() -> dict[str, list[str]]:
    """Return the long options of each command."""
    found = {}
    for entry in COMMANDS:
        parameters = LazyCommand(entry).loaded().params
        names = (name for each in parameters for name in (*each.opts, *each.secondary_opts))
        found[entry.name] = sorted(name for name in names if name.startswith("--"))
    return found


def keys(schema: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yield the keys of a schema with their places and kinds, as ``layouts[].mfu: number``."""
    for each in schema.get("anyOf", ()):
        yield from keys(each, place)
    if "items" in schema:
        yield from keys(schema["items"], f"{place}[]")
    for name, inner in schema.get("properties", {}).items():
        if name == "answers":  # each is the object of one question
            continue
        kinds = {kind for each in (inner, *inner.get("anyOf", ())) for kind in kinds_of(each)}
        inside = f"{place}.{name}" if place else name
        yield f"{inside}: {' '.join(sorted(kinds - {'null'})) or 'any'}"
        yield from keys(inner, inside)


def kinds_of(schema: dict[str, Any]) -> list[str]:
    """Return the types of a schema."""
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def promises() -> dict[str, Any]:
    """Return the options of each command, and version and keys of the JSON of each."""
    documents = {
        name: {"version": DOCUMENTS[name].version, "keys": sorted({*keys(document_schema(name))})}
        for name in DOCUMENTS
    }
    return {"options": options(), "json": documents}


if __name__ == "__main__":
    FILE.write_text(json.dumps(promises(), indent=1) + "\n", encoding="utf-8")
