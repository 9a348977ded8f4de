"""Models and systems that a user defines in TOML, in addition to the reference tables.

A study, or a file given with ``--catalog``, has them in tables [models.NAME] and [systems.NAME].
Their keys are the columns of reference tables `model` and `system`. `based_on` names a row that
the missing keys are taken from. A question finds them by name, in the catalog file or in a stored
study. A model may also be the config.json of a Hugging Face folder, named by its path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from estimators.catalog import NARROW_RATES, OF_CLUSTERS, PRODUCT_COLUMNS
from estimators.columns import COLUMNS, names_in
from estimators.contract import Catalog, Record, RefusedError, Scalar
from estimators.names import did_you_mean, nearest_columns
from warehouse import settings
from warehouse.database import resources
from warehouse.database.catalog import extended, packaged_catalog
from warehouse.database.connection import open_as_it_is
from warehouse.database.reference import read_table
from warehouse.errors import DatabaseError, InputError
from warehouse.limits import accept
from warehouse.studies.hugging_face import FILE_NAME, is_model_file, load_model
from warehouse.studies.toml_files import Faults, nearest, read_toml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

SECTIONS = {"models": "model", "systems": "system"}
"""Table of a TOML file -> the reference table that its entries extend."""

BASED_ON = "based_on"

_PUBLISHED = ("model", "system", "accelerator", "device")
"""Reference tables with models and systems."""

_OF_PRODUCTS = {
    **{column: name for name, column in PRODUCT_COLUMNS.items() if column != name},
    "device_bytes": "hbm_bytes",
}
"""Column of table `accelerator` -> the attribute of a system with another name."""

OPTIONAL = (
    *("ffn_hidden_size", "uses_glu", "num_kv_heads", "vocab_size", "head_size", "ties_embedding"),
    *("num_experts", "experts_per_token", "expert_ffn_hidden_size", "num_shared_experts"),
    "num_dense_layers",
    *names_in("Shape of a decoder"),
    *("assumed", "source", "note", *NARROW_RATES, *OF_CLUSTERS),
)
"""Columns that an entry without `based_on` may leave out: estimators have defaults for them, or
do not read them."""


@dataclass(frozen=True)
class Definitions:
    """Models and systems that `file` defines: name -> attributes, checked by the dictionary.

    `paths` has the name of each model that a question names by the path of its file.
    """

    models: Mapping[str, Record] = field(default_factory=dict)
    systems: Mapping[str, Record] = field(default_factory=dict)
    file: str = ""
    paths: Mapping[str, str] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """Return the definitions as JSON-able data, without empty sections."""
        both = {"models": self.models, "systems": self.systems}
        return {
            section: {name: dict(record) for name, record in records.items()}
            for section, records in both.items()
            if records
        }

    def needed_by(self, names: Collection[object]) -> Definitions:
        """Return the definitions of some names, and those that they are based on."""
        names = {*names, *(self.paths[name] for name in self.paths if name in names)}
        return replace(self, models=_chain(self.models, names), systems=_chain(self.systems, names))

    def before(self, others: Definitions) -> Definitions:
        """Return both; of two entries with one name that of `self` counts."""
        return Definitions(
            {**others.models, **self.models},
            {**others.systems, **self.systems},
            self.file or others.file,
            {**others.paths, **self.paths},
        )

    def added_to(self, catalog: Catalog) -> Catalog:
        """Return `catalog` with these models and systems."""
        try:
            catalog = extended(catalog, self.models, self.systems)
        except RefusedError as error:
            raise InputError.from_refusals(error.refusals, self.file) from None
        if not self.paths:
            return catalog
        spellings = {**catalog.aliases.get("model", {}), **self.paths}
        return replace(catalog, aliases={**catalog.aliases, "model": spellings})

    def has(self, name: str) -> bool:
        """Return whether an entry has this name."""
        return name in self.models or name in self.systems

    def has_model(self, name: str) -> bool:
        """Return whether a name, or the path of a file, is that of a model."""
        return name in self.models or name in self.paths


def load_definitions(path: Path) -> Definitions:
    """Read the models and systems of a TOML file, or the model of a .json file.

    Other tables of a TOML file are ignored.
    """
    file = str(path)
    if is_model_file(file):
        return model_files([file])
    needs = "define models as [models.NAME] and systems as [systems.NAME]"
    table = read_toml(path, "a catalog", needs)
    if not any(section in table for section in SECTIONS):
        raise InputError(f"{file}: defines no model and no system", needs)
    faults = Faults()
    definitions = read_definitions(table, file, faults)
    if faults.refusals:
        raise InputError.from_refusals(faults.refusals, file)
    return definitions


def read_definitions(table: Mapping[str, Any], file: str, faults: Faults) -> Definitions:
    """Return the models and systems that `table` defines; `faults` collects the refusals."""
    given = {name: _section(table, name, faults) for name in SECTIONS if name in table}
    return Definitions(given.get("models", {}), given.get("systems", {}), file)


def _section(table: Mapping[str, Any], section: str, faults: Faults) -> dict[str, Record]:
    given = table[section]
    if not isinstance(given, dict):
        faults.add(section, given, "must be a table", f"start each with a line [{section}.NAME]")
        return {}
    columns = read_table(resources.reference_directory() / f"{SECTIONS[section]}.csv").columns
    more = (*NARROW_RATES, *OF_CLUSTERS) if section == "systems" else ()
    known = (*(column.name for column in columns[1:]), *more)  # the first is the name
    records: dict[str, Record] = {}
    for name, entry in given.items():
        if not (name.strip() and name.isprintable()):
            faults.add(section, name, "must be a name that can be printed on one line")
        elif not isinstance(entry, dict):
            hint = f"start it with a line [{section}.{name}]"
            faults.add(f"{section}.{name}", entry, "must be a table", hint)
        else:
            records[name] = _record(f"[{section}.{name}]", entry, known, faults)
    return records


def _record(
    where: str, entry: Mapping[str, Any], known: tuple[str, ...], faults: Faults
) -> dict[str, Scalar]:
    """Return the attributes of one entry; those that are refused are left out."""
    record: dict[str, Scalar] = {}
    for key, value in entry.items():
        if key == BASED_ON:
            if isinstance(value, str):
                record[key] = value
            else:
                faults.add(key, value, f"in {where} must be a text", 'write it in quotes: "..."')
        elif key not in known:
            faults.add(key, value, f"is not a key of {where}", _hint(key, value, where, known))
        else:
            accepted = faults.catch(accept, COLUMNS[key], value, where=f"in {where} ")
            if accepted is not None:
                record[key] = accepted
    if BASED_ON not in entry and not any(isinstance(value, dict) for value in entry.values()):
        missing = [name for name in known if name not in entry and name not in OPTIONAL]
        for name in missing:
            hint = f"give every attribute, or name the row that {where} is {BASED_ON}"
            faults.add(name, None, f"is missing in {where}", hint)
    return record


def _hint(key: str, value: object, where: str, known: tuple[str, ...]) -> str:
    if isinstance(value, dict):  # TOML takes the dot of `[models.llama_1.5B]` for a level
        section, name = where[1:-1].split(".", 1)
        return f'a name with a dot needs quotes: [{section}."{name}.{key}"]'
    if key in _OF_PRODUCTS and _OF_PRODUCTS[key] in known:
        return did_you_mean([_OF_PRODUCTS[key]])
    if key in COLUMNS:
        places = "[space] or [system]" if where.startswith("[systems.") else "[space]"
        return f"if the estimator takes it, name it under {places}"
    near = did_you_mean(nearest_columns(key, [name for name in known if name in COLUMNS]))
    return near or nearest(key, (BASED_ON, *known))


def _chain(records: Mapping[str, Record], names: Collection[object]) -> dict[str, Record]:
    wanted = {name for name in records if name in names}
    waiting = list(wanted)
    while waiting:
        base = records[waiting.pop()].get(BASED_ON)
        if isinstance(base, str) and base in records and base not in wanted:
            wanted.add(base)
            waiting.append(base)
    return {name: record for name, record in records.items() if name in wanted}


# ---- found by name ----


def known_definitions(
    database: Path, names: Iterable[object], catalog: Path | None = None
) -> Definitions:
    """Return the definitions of those names that the reference tables do not have.

    A name is looked up in the catalog file (None: that of the settings). A path of a model's file
    is read. Others are looked up in the stored studies, the newest first. The database is read only
    for names that nothing else has, and may be missing. Values other than texts are passed over.
    """
    texts = {name for name in names if isinstance(name, str)}
    definitions = catalog_file(catalog)
    unknown = {name for name in texts if not _is_published(name)}
    unknown -= {*definitions.models, *definitions.systems}
    files = model_files(filter(is_model_file, sorted(unknown)))
    definitions = files.before(definitions)
    unknown -= files.paths.keys()
    if unknown and database.exists():
        for of_study in _stored_definitions(database):
            needed = of_study.needed_by(unknown)
            unknown -= {*needed.models, *needed.systems}
            definitions = definitions.before(needed)
    return definitions.needed_by(texts)


def model_files(paths: Iterable[str]) -> Definitions:
    """Return the models of .json files and of folders with a config.json.

    A name that the package has gets the name of the file behind it. Two files with one name are
    numbered.
    """
    models: dict[str, Record] = {}
    names: dict[str, str] = {}
    for path in paths:
        name, attributes = load_model(Path(path))
        if _is_published(name):
            name = f"{name} ({FILE_NAME})"
        number = sum(known.partition(" #")[0] == name for known in models)
        names[path] = name if not number else f"{name} #{number + 1}"
        models[names[path]] = attributes
    return Definitions(models, file=", ".join(names), paths=names)


def every_definition(
    database: Path, catalog: Path | None = None, names: Iterable[object] = ()
) -> Definitions:
    """Return all definitions of the catalog file and of the stored studies, for rows of any name.

    The catalog, then newer studies count first. A database that cannot be read, for example during
    a sweep, adds nothing. Paths of models' files among `names` are read as well.
    """
    texts = {name for name in names if isinstance(name, str) and not _is_published(name)}
    definitions = model_files(filter(is_model_file, sorted(texts))).before(catalog_file(catalog))
    of_studies: list[Definitions] = []
    with suppress(DatabaseError):
        of_studies = _stored_definitions(database) if database.exists() else []
    for of_study in of_studies:
        models, systems = map(_unpublished, (of_study.models, of_study.systems))
        definitions = definitions.before(replace(of_study, models=models, systems=systems))
    return definitions


def stored_shape(
    database: Path, model: str, columns: Collection[str]
) -> tuple[dict[str, str], str]:
    """Return the shape that a stored study gave a model whose name no table has, and the study.

    Such a study has the shape as columns of its search space. The newest study with one value for
    each column counts. Both are empty if there is none.
    """
    if _is_published(model) or not database.exists():
        return {}, ""
    for study, definition in _stored_studies(database):
        for space in definition.get("spaces", []):
            shape = {name: space[name] for name in columns if name in space}
            is_one = space.get("model") == [model] and all(len(v) == 1 for v in shape.values())
            if shape and is_one:
                texts = {name: _as_text(values[0]) for name, values in shape.items()}
                return texts, study
    return {}, ""


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def catalog_file(catalog: Path | None) -> Definitions:
    """Return the definitions of a catalog file, of the settings' one for None; empty without."""
    path = catalog or settings.catalog()
    return load_definitions(path) if path is not None else Definitions()


def _is_published(name: str) -> bool:
    catalog = packaged_catalog()
    return any(
        name in catalog.tables.get(table, {}) or name in catalog.aliases.get(table, {})
        for table in _PUBLISHED
    )


def _unpublished(records: Mapping[str, Record]) -> dict[str, Record]:
    """Return the records whose names this version of the package does not have itself."""
    return {name: record for name, record in records.items() if not _is_published(name)}


def _stored_definitions(database: Path) -> list[Definitions]:
    """Return the definitions of the stored studies, the newest study first."""
    return [
        Definitions(
            definition.get("models", {}), definition.get("systems", {}), file=f"study {study}"
        )
        for study, definition in _stored_studies(database)
        if any(section in definition for section in SECTIONS)
    ]


def _stored_studies(database: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the stored studies with their definitions, the newest first."""
    query = "select study, definition from study order by created_at desc"
    with open_as_it_is(database) as connection:
        try:
            rows = connection.execute(query).fetchall()
        except duckdb.CatalogException:  # a file without tables yet
            return []
    return [(study, json.loads(text)) for study, text in rows]
