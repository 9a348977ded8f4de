"""Schemas of JSON documents, which follow from the types of dataclasses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from estimators.columns import COLUMNS
from warehouse.show.values import json_value

Schema = dict[str, Any]

_KINDS = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "date": "string",
    "time": "string",
    "NoneType": "null",
}
"""Name of a type, or kind of a column of the data dictionary -> the type in a schema."""


@dataclass(frozen=True)
class Rows:
    """Marks an object, or several, as a row of a query: it has columns, and may have `optional`.

    The data dictionary has their types. Any column may be null, and a row may have more.
    """

    columns: Sequence[str]
    optional: Sequence[str] = ()

    def schema(self) -> Schema:
        """Return the schema of one row."""
        columns = dict.fromkeys((*self.columns, *self.optional))
        return {
            "type": "object",
            "properties": {name: _of_column(name) for name in columns},
            "required": [*dict.fromkeys(self.columns)],
        }


@dataclass(frozen=True)
class Deprecated:
    """Marks a key that goes with the next minor version; `use` is the one that takes its place."""

    use: str


def as_json(value: Any) -> Any:
    """Return a value as JSON can hold it; a dataclass is an object."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    return json_value(dict(value) if isinstance(value, Mapping) else value)


def schema_of(document: Any) -> Schema:
    """Return the schema (JSON Schema, draft 2020-12) of a type.

    The type is a dataclass, a TypedDict, a list of rows, or one of several.
    """
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_schema(document)}


def _schema(kind: Any) -> Schema:
    if get_origin(kind) is Annotated:
        kind, rows = get_args(kind)
        if isinstance(rows, Deprecated):
            said = f"deprecated: use {rows.use}"
            return {**_schema(kind), "deprecated": True, "description": said}
        is_list = get_origin(kind) is Sequence
        return {"type": "array", "items": rows.schema()} if is_list else rows.schema()
    if get_origin(kind) in (Union, UnionType):
        return {"anyOf": [_schema(each) for each in get_args(kind)]}
    if get_origin(kind) is Sequence:
        return {"type": "array", "items": _schema(get_args(kind)[0])}
    if get_origin(kind) is Mapping:
        return {"type": "object", "additionalProperties": _schema(get_args(kind)[1])}
    if is_dataclass(kind) or is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {
            "type": "object",
            "description": (kind.__doc__ or "").strip(),
            "properties": {name: _described(name, _schema(each)) for name, each in hints.items()},
            "required": [*hints],
            "additionalProperties": False,
        }
    return {} if kind is Any else {"type": _KINDS[kind.__name__]}


def _of_column(name: str) -> Schema:
    column = COLUMNS.get(name)
    return _described(name, {"type": [_KINDS[column.kind], "null"]} if column else {})


def _described(name: str, schema: Schema) -> Schema:
    column = COLUMNS.get(name)
    return {**schema, "description": column.meaning} if column else schema
