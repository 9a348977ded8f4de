"""The catalog that estimators read: reference tables by name, then by key.

The key is the first column if it is a text, unique and without gaps. Other tables, for example with
several rows per model, are for SQL only. Measured tables are columns, loaded when one is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from estimators.catalog import NAMED_CLUSTER, OWN_SYSTEM, PRODUCT_COLUMNS
from estimators.columns import COLUMNS
from estimators.contract import Catalog, MeasuredTables, Record, Refusal, RefusedError, Scalar
from estimators.names import did_you_mean, has_numbers_of
from warehouse.database.cache import cached
from warehouse.database.reference import (
    columns_of,
    measured_files,
    read_measured,
    read_table,
    reference_files,
)

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.contract import Columns

    _Stamp = tuple[Path, int, int, int]
    """A file with its time, size and number: equal stamps mean equal content."""

_ALIASES = "_alias"
"""Ending of the tables that list other spellings of a key: alias, key, source."""

_ACCELERATOR = "accelerator"
_MODEL, _SYSTEM = "model", "system"
_BASED_ON = "based_on"
_NAMED_IN = {_MODEL: (_MODEL,), _SYSTEM: (_SYSTEM, _ACCELERATOR)}
"""Tables in which the name of a new row may be: a system may be based on a product."""

_REMARKS = ("assumed", "source", "note")
_NO_ATTRIBUTES = (_ACCELERATOR, "organization", "num_gpus", "quote_number")
"""Columns of table `named_cluster` that no system has."""

_KEPT_CATALOGS = 4
"""Catalogs in the cache directory, of two megabytes each."""

Keyed = dict[str, dict[str, Record]]
Aliases = dict[str, dict[str, str]]


def packaged_catalog(directory: Path | None = None) -> Catalog:
    """Return the reference tables of `directory`, by default the packaged one.

    Files that did not change since the last call are not read again. Do not change the catalog.
    """
    return _read_catalog(
        tuple(map(_stamp_of, reference_files(directory))),
        tuple(map(_stamp_of, measured_files(directory))),
        is_packaged=directory is None,
    )


def _stamp_of(path: Path) -> _Stamp:
    state = path.stat()
    return path, state.st_mtime_ns, state.st_size, state.st_ino


@lru_cache(maxsize=2)
def _read_catalog(
    tables: tuple[_Stamp, ...], measured: tuple[_Stamp, ...], *, is_packaged: bool
) -> Catalog:
    read = partial(_keyed_tables, [path for path, *_ in tables])
    # reading and checking the files takes ten times as long as reading one document
    keyed, aliases = cached("catalog", (), read, _KEPT_CATALOGS) if is_packaged else read()
    loaded = _loaded_once if is_packaged else _loaded
    load = {path.stem: partial(loaded, path) for path, *_ in measured}
    return _with_clusters(Catalog(keyed, aliases, MeasuredTables(load)))


def _with_clusters(catalog: Catalog) -> Catalog:
    """Return a catalog in which named clusters are systems, as those that a user defines are."""
    clusters = catalog.tables.get(NAMED_CLUSTER, {})
    attributes = {
        name: {n: v for n, v in row.items() if n not in _NO_ATTRIBUTES and v is not None}
        for name, row in clusters.items()
    }
    catalog = extended(catalog, {}, attributes)
    spellings = catalog.aliases.get(NAMED_CLUSTER, {})
    both = {
        table: {**catalog.aliases.get(table, {}), **spellings} for table in (_SYSTEM, OWN_SYSTEM)
    }
    return replace(catalog, aliases={**catalog.aliases, **both}) if spellings else catalog


def _keyed_tables(paths: Iterable[Path]) -> tuple[Keyed, Aliases]:
    records = {}
    for path in paths:
        table = read_table(path)
        records[table.name] = _table_records([column.name for column in table.columns], table.rows)
    return _keyed_and_aliases(records)


def _loaded(path: Path) -> Columns:
    return columns_of(read_measured(path))


def _loaded_once(path: Path) -> Columns:
    """Return the columns of a packaged table, from the cache without the import of polars."""
    import numpy as np  # here: names of models need no arrays

    def read() -> dict[str, list[Any]]:
        return {name: values.tolist() for name, values in _loaded(path).items()}

    found = cached("measured", path.name, read, _KEPT_CATALOGS)
    return {
        name: np.array(values, dtype=COLUMNS[name].stored_dtype) for name, values in found.items()
    }


def extended(
    catalog: Catalog, models: Mapping[str, Record], systems: Mapping[str, Record]
) -> Catalog:
    """Return a new catalog that has these models and systems, by name, as well.

    Missing attributes come from the row that `based_on` names, in the catalog or given earlier. A
    name that is taken or that no row has is refused.
    """
    refusals: list[Refusal] = []
    for section, table, key, given in (
        ("models", _MODEL, _MODEL, models),
        ("systems", _SYSTEM, _ACCELERATOR, systems),
    ):
        for name, attributes in given.items():
            try:
                row = {key: name, **_completed(catalog, section, table, name, attributes)}
            except RefusedError as error:
                for refusal in error.refusals:
                    base = refusal.value if refusal.column == _BASED_ON else None
                    is_later = base in given and base != name
                    hint = f"define [{section}.{base}] above [{section}.{name}]"
                    refusals.append(replace(refusal, hint=hint) if is_later else refusal)
                continue
            added = {table: row}
            if table == _SYSTEM:
                based_on = {_BASED_ON: row[_BASED_ON]} if _BASED_ON in attributes else {}
                added[OWN_SYSTEM] = {key: name, **attributes, **based_on}
            tables = {
                target: {**catalog.tables.get(target, {}), name: record}
                for target, record in added.items()
            }
            catalog = replace(catalog, tables={**catalog.tables, **tables})
    if refusals:
        raise RefusedError(refusals)
    return catalog


def _completed(catalog: Catalog, section: str, table: str, name: str, own: Record) -> Record:
    """Return all attributes of a new row, with those of the row that it is based on."""
    for taken in _NAMED_IN[table]:
        other = catalog.aliases.get(taken, {}).get(name)
        if other is not None or name in catalog.tables.get(taken, {}):
            is_there = f"is in the `{taken}` table already"
            reason = f"is another name of {other}" if other else is_there
            hint = f'choose another name; to change some of its attributes: based_on = "{name}"'
            raise RefusedError([Refusal(section, name, reason, hint)])
    if _BASED_ON not in own:
        return own
    try:
        base = _base(catalog, table, str(own[_BASED_ON]))
    except RefusedError as error:
        raise RefusedError(
            Refusal(_BASED_ON, r.value, f"in [{section}.{name}] {r.reason}", r.hint)
            for r in error.refusals
        ) from None
    # The remarks are about the published row. The catalog alone knows other spellings of its name.
    key, *names = base
    inherited = {name: None if name in _REMARKS else base[name] for name in names}
    return {**inherited, **own, _BASED_ON: base[key]}


def _base(catalog: Catalog, table: str, name: str) -> Record:
    """Return the row that another one is based on, or refuse a name that no table has.

    A product without a row in table `system` has the attributes of a system that table
    `accelerator` has: no vector rate, for example.
    """
    row = catalog.known(table, name)
    product = catalog.known(_ACCELERATOR, name) if table == _SYSTEM else None
    if row is not None:
        return row
    if product is not None:
        known: Record = {
            attribute: product.get(column) for attribute, column in PRODUCT_COLUMNS.items()
        }
        return {_ACCELERATOR: product[_ACCELERATOR], **known, "nics_per_gpu": 1}
    if table != _SYSTEM:
        return catalog.find(table, name)
    reason = "is neither in the `system` nor in the `accelerator` table"
    near = [*catalog.nearest(_ACCELERATOR, name), *catalog.nearest(table, name)]
    near = [known for known in near if has_numbers_of(known, name)]
    names = {name for source in _NAMED_IN[table] for name in catalog.tables.get(source, {})}
    hint = did_you_mean(list(dict.fromkeys(near))[:3]) or f"known: {', '.join(sorted(names))}"
    raise RefusedError([Refusal(_BASED_ON, name, reason, hint)])


def _table_records(header: list[str], rows: Iterable[tuple[Any, ...]]) -> list[Record]:
    return [dict(zip(header, map(_scalar, row), strict=True)) for row in rows]


def _scalar(value: Any) -> Scalar:
    return value.isoformat() if isinstance(value, date) else value


def _keyed_and_aliases(records: Mapping[str, list[Record]]) -> tuple[Keyed, Aliases]:
    """Return the tables that have a key, and the other spellings of keys."""
    tables = {name: keyed for name, rows in records.items() if (keyed := _keyed(rows))}
    aliases = {}
    for name, rows in tables.items():
        key = next(iter(next(iter(rows.values()))))
        spellings = records.get(f"{key}{_ALIASES}", [])
        # A spelling that is itself a key of the table keeps its own row.
        others = {
            str(row["alias"]): str(row[key])
            for row in spellings
            if row["alias"] not in rows and row[key] in rows
        }
        if others:
            aliases[name] = others
    return tables, aliases


def _keyed(rows: list[Record]) -> dict[str, Record]:
    """Return the rows by their first column; none if it is not a key."""
    keys = [next(iter(row.values())) for row in rows]
    texts = [key for key in keys if isinstance(key, str)]
    if len(set(texts)) < len(keys):
        return {}
    return dict(zip(texts, rows, strict=True))
