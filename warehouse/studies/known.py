"""Models and systems of a user's own, found by name: in a catalog file, or in a stored study."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse import settings
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_as_it_is
from warehouse.errors import DatabaseError
from warehouse.studies.definitions import BASED_ON, SECTIONS, Definitions, load_definitions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from estimators.contract import Record
    from warehouse.studies.study import Study

_PUBLISHED = ("model", "system", "accelerator", "device")
"""Reference tables with models and systems."""


def known_definitions(
    database: Path, names: Iterable[object], catalog: Path | None = None
) -> Definitions:
    """Return the definitions of those names that the reference tables do not have.

    A name is looked up in the catalog file first, then in the stored studies, the newest first.

    Parameters
    ----------
    database
        The file with the studies; it is read only for names that nothing else has, and may be
        missing.
    names
        Models and systems that a question names; values other than texts are passed over.
    catalog
        A TOML file; None: the one of the settings, if there is one.

    Raises
    ------
    InputError
        If the catalog is faulty.
    DatabaseError
        If the database cannot be read.
    """
    asked = {name for name in names if isinstance(name, str)}
    path = catalog or settings.catalog()
    own = load_definitions(path) if path is not None else Definitions()
    unknown = {name for name in asked if not _is_published(name)} - {*own.models, *own.systems}
    if unknown and database.exists():
        for stored in _stored(database):
            found = needed_definitions(stored, unknown)
            unknown -= {*found.models, *found.systems}
            own = replace(
                own,
                models={**found.models, **own.models},
                systems={**found.systems, **own.systems},
                file=own.file or found.file,
            )
    return needed_definitions(own, asked)


def stored_shape(
    database: Path, model: str, columns: Collection[str]
) -> tuple[dict[str, str], str]:
    """Return the shape that a stored study gave a model whose name no table has, and the study.

    Such a study has the shape as columns of its search space. The newest study with one value for
    each column counts. Both are empty if there is none.

    Parameters
    ----------
    columns
        Columns that a shape may have.
    """
    if _is_published(model) or not database.exists():
        return {}, ""
    for study, definition in _definitions(database):
        for space in definition.get("spaces", []):
            shape = {name: space[name] for name in columns if name in space}
            is_one = space.get("model") == [model] and all(len(v) == 1 for v in shape.values())
            if shape and is_one:
                texts = {name: _as_text(values[0]) for name, values in shape.items()}
                return texts, study
    return {}, ""


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def every_definition(database: Path, catalog: Path | None = None) -> Definitions:
    """Return all definitions of the catalog file and of the stored studies, for rows of any name.

    Parameters
    ----------
    database, catalog
        As `known_definitions` takes them. A name in the catalog or in a newer study takes
        precedence. A database that cannot be read, for example during a sweep, adds nothing.

    Raises
    ------
    InputError
        If the catalog is faulty.
    """
    path = catalog or settings.catalog()
    own = load_definitions(path) if path is not None else Definitions()
    if not database.exists():
        return own
    models, systems = dict(own.models), dict(own.systems)
    studies: list[Definitions] = []
    with suppress(DatabaseError):
        studies = _stored(database)
    for stored in studies:
        models = {**_unpublished(stored.models), **models}
        systems = {**_unpublished(stored.systems), **systems}
    return replace(own, models=models, systems=systems)


def with_known_definitions(study: Study, database: Path) -> Study:
    """Return a study with the definitions of models and systems that it names but lacks."""
    names = [
        name
        for space in study.spaces
        for column in ("model", "accelerator")
        for name in space.get(column, ())
        if name not in study.defined.models and name not in study.defined.systems
    ]
    found = known_definitions(database, names)
    if not found.as_data():
        return study
    defined = Definitions(
        models={**found.models, **study.defined.models},
        systems={**found.systems, **study.defined.systems},
        file=study.defined.file or found.file,
    )
    return replace(study, defined=defined, definition={**study.definition, **defined.as_data()})


def _is_published(name: str) -> bool:
    catalog = packaged_catalog()
    return any(
        name in catalog.tables.get(table, {}) or name in catalog.aliases.get(table, {})
        for table in _PUBLISHED
    )


def _unpublished(records: Mapping[str, Record]) -> dict[str, Record]:
    """Return the records whose names this version of the package does not have itself."""
    return {name: record for name, record in records.items() if not _is_published(name)}


def needed_definitions(definitions: Definitions, names: Collection[object]) -> Definitions:
    """Return the definitions of some names, and those that they are based on."""
    return replace(
        definitions,
        models=_chain(definitions.models, names),
        systems=_chain(definitions.systems, names),
    )


def _chain(records: Mapping[str, Record], names: Collection[object]) -> dict[str, Record]:
    wanted = {name for name in records if name in names}
    waiting = list(wanted)
    while waiting:
        base = records[waiting.pop()].get(BASED_ON)
        if isinstance(base, str) and base in records and base not in wanted:
            wanted.add(base)
            waiting.append(base)
    return {name: record for name, record in records.items() if name in wanted}


def _stored(database: Path) -> list[Definitions]:
    """Return the definitions of the stored studies, the newest study first."""
    found = []
    for study, definition in _definitions(database):
        sections = {name: definition[name] for name in SECTIONS if name in definition}
        if sections:
            found.append(Definitions(**sections, file=f"study {study}"))
    return found


def _definitions(database: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the stored studies with what defines them, the newest first."""
    query = "select study, definition from study order by created_at desc"
    with open_as_it_is(database) as connection:
        try:
            rows = connection.execute(query).fetchall()
        except duckdb.CatalogException:  # a file without tables yet
            return []
    return [(study, json.loads(text)) for study, text in rows]
