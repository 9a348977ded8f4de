"""Models and systems that a user defines in TOML, in addition to the reference tables.

A study, or a file given with ``--catalog``, has them in tables [models.NAME] and [systems.NAME].
Their keys are the columns of reference tables `model` and `system`. `based_on` names a row that
the missing keys are taken from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from estimators.accelerators import NARROW_RATES, PRODUCT_COLUMNS
from estimators.columns import COLUMNS
from estimators.columns.shape import SHAPE_DETAILS
from estimators.contract import Catalog, Record, RefusedError, Scalar
from estimators.names import did_you_mean
from warehouse.database import resources
from warehouse.database.catalog import extended
from warehouse.database.reference import read_table
from warehouse.errors import InputError
from warehouse.limits import accept
from warehouse.studies.toml_files import Faults, nearest, read_toml

if TYPE_CHECKING:
    from pathlib import Path

SECTIONS = {"models": "model", "systems": "system"}
"""Table of a TOML file -> the reference table that its entries extend."""

BASED_ON = "based_on"

_OF_PRODUCTS = {
    **{column: name for name, column in PRODUCT_COLUMNS.items() if column != name},
    "device_bytes": "hbm_bytes",
}
"""Column of table `accelerator` -> the attribute of a system with another name."""

OPTIONAL = (
    *("ffn_hidden_size", "uses_glu", "num_kv_heads", "vocab_size", "head_size", "ties_embedding"),
    *("num_experts", "experts_per_token", "expert_ffn_hidden_size", "num_shared_experts"),
    "num_dense_layers",
    *(column.name for column in SHAPE_DETAILS),
    *("assumed", "source", "note", *NARROW_RATES),
)
"""Columns that an entry without `based_on` may leave out: estimators have defaults for them, or
do not read them."""


@dataclass(frozen=True)
class Definitions:
    """Models and systems that `file` defines: name -> attributes, checked by the dictionary."""

    models: Mapping[str, Record] = field(default_factory=dict)
    systems: Mapping[str, Record] = field(default_factory=dict)
    file: str = ""

    def as_data(self) -> dict[str, Any]:
        """Return the definitions as JSON-able data, without empty sections."""
        both = {"models": self.models, "systems": self.systems}
        return {
            section: {name: dict(record) for name, record in records.items()}
            for section, records in both.items()
            if records
        }

    def added_to(self, catalog: Catalog) -> Catalog:
        """Return `catalog` with these models and systems.

        Raises
        ------
        InputError
            If a name exists already, or an entry is based on a missing row.
        """
        try:
            return extended(catalog, self.models, self.systems)
        except RefusedError as error:
            raise InputError.from_refusals(error.refusals, self.file) from None


def load_definitions(path: Path) -> Definitions:
    """Read the models and systems of a TOML file; its other tables are ignored.

    Raises
    ------
    InputError
        If it defines none, or anything is wrong with one.
    """
    file = str(path)
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
    return Definitions(**given, file=file)


def _section(table: Mapping[str, Any], section: str, faults: Faults) -> dict[str, Record]:
    given = table[section]
    if not isinstance(given, dict):
        faults.add(section, given, "must be a table", f"start each with a line [{section}.NAME]")
        return {}
    columns = read_table(resources.reference_directory() / f"{SECTIONS[section]}.csv").columns
    more = NARROW_RATES if section == "systems" else ()
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
    return nearest(key, (BASED_ON, *known))
