"""The reference tables, in which estimators look up names, and the names of accelerators.

Measured tables have thousands of rows without a key, such as rates of kernels by shape. They are
columns of numbers, loaded when an estimator asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

from estimators.names import did_you_mean, folded, has_numbers_of, hint_on_word, nearest
from estimators.refusals import Refusal, RefusedError
from estimators.values import Columns, Scalar

Record = Mapping[str, Scalar]

OWN_SYSTEM = "own_system"
"""Table of the systems that a user defines, and of named clusters: what each states itself, and
`based_on`. Table `system` has the same systems with every attribute."""

NAMED_CLUSTER = "named_cluster"
"""Table of instance types of clouds and of public machines: systems based on a product."""

PRODUCT_COLUMNS: Mapping[str, str] = {
    "matrix_flops_per_second": "bf16_flops_per_second",
    "fp8_flops_per_second": "fp8_flops_per_second",
    "fp4_flops_per_second": "fp4_flops_per_second",
    "hbm_bytes_per_second": "hbm_bytes_per_second",
    "hbm_bytes": "hbm_bytes",
    "nvlink_bytes_per_second": "nvlink_bytes_per_second",
    "network_bytes_per_second": "nic_bytes_per_second",
}
"""Attribute of a system -> its column in the table of accelerators."""

NARROW_RATES = ("fp8_flops_per_second", "fp4_flops_per_second")
"""Rates that table `system` does not have."""

OF_CLUSTERS = ("nvlink_size", "power_limit_watts", "pair_ring_share")
"""Further attributes that a system may state: table `system` does not have them."""

_KNOWN = 24
"""Names that an error lists."""

_OF_ACCELERATORS = ("accelerator", "system", "device")
"""Tables that a name of a chip may be looked up in."""

Made = TypeVar("Made")


class MeasuredTables:
    """Tables by name, as one-dimensional arrays by column name.

    Parameters
    ----------
    load
        Table name -> a function that returns its columns. Each is called once at most.
    """

    def __init__(self, load: Mapping[str, Callable[[], Columns]] | None = None) -> None:
        self._load = dict(load or {})
        self._made: dict[Hashable, object] = {}

    def __contains__(self, name: str) -> bool:
        """Return whether there is a table called `name`."""
        return name in self._load

    def __getitem__(self, name: str) -> Columns:
        """Return the columns of a table; raise `KeyError` if there is none of that name."""
        load = self._load[name]
        return self.made(("table", name), load)

    def __getstate__(self) -> dict[str, object]:
        """Return the loaded tables, for another process."""
        return {"_load": {name: partial(dict, self[name]) for name in self._load}, "_made": {}}

    def made(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the result of `make`, computed at the first request for `key`."""
        if key not in self._made:
            self._made[key] = make()
        return cast(Made, self._made[key])


@dataclass(frozen=True)
class Catalog:
    """The reference tables, in which an estimator looks up names. The warehouse reads them once.

    Attributes
    ----------
    tables
        Table name -> key (the table's first column) -> the row as a mapping.
    aliases
        Table name -> other spelling -> key.
    measured
        Tables of many rows that have no key, as columns.
    """

    tables: Mapping[str, Mapping[str, Record]] = field(repr=False)
    aliases: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    measured: MeasuredTables = field(default_factory=MeasuredTables, repr=False, compare=False)

    def find(self, table: str, key: str) -> Record:
        """Return the row of `table` that `key` or one of its aliases names.

        Capitals, spaces and hyphens do not matter where only one name differs in them alone.
        Numbers must be equal.

        Raises
        ------
        RefusedError
            If there is no such row; the hint lists the nearest names.
        """
        row = self.known(table, key)
        if row is None:
            hint = self.hint_on_name(table, key)
            raise RefusedError([Refusal(table, key, f"is not in the `{table}` table", hint)])
        return row

    def hint_on_name(self, table: str, key: object) -> str:
        """Return the names that an unknown one may mean, or else the known ones.

        A name with other numbers is another thing, and is not suggested alone. A chip whose
        programs no estimator has leads to a sentence that says so.
        """
        other = hint_on_word(str(key), (), "accelerator") if table in _OF_ACCELERATORS else ""
        if other:
            return other
        rows = self.tables.get(table, {})
        if not rows:
            return f"the `{table}` table is empty"
        near = self.nearest(table, key)
        meant = [name for name in near if has_numbers_of(name, key)]
        known = dict.fromkeys((*near, *sorted(rows)))
        return did_you_mean(meant) or f"known: {', '.join([*known][:_KNOWN])}"

    def nearest(self, table: str, key: object) -> list[str]:
        """Return the names of rows of `table` that are most like `key`."""
        rows, aliases = self.tables.get(table, {}), self.aliases.get(table, {})
        near = nearest(key, [*rows, *aliases])
        return list(dict.fromkeys(aliases.get(name, name) for name in near))

    def known(self, table: str, key: str) -> Record | None:
        """Return the row that `find` returns; None where there is none.

        Use it where a name may be unknown: `find` takes a millisecond to look for similar names.
        """
        rows, aliases = self.tables.get(table, {}), self.aliases.get(table, {})
        row = rows.get(aliases.get(key, key))
        if row is None:
            alike = {aliases.get(n, n) for n in (*rows, *aliases) if folded(n) == folded(key)}
            row = rows[alike.pop()] if len(alike) == 1 else None
        return row


def product_of(catalog: Catalog, accelerator: Scalar) -> str | None:
    """Return the accelerator as sold behind a name: the name itself where it is no product.

    A system that a user bases on a product has the constants, the kernels and the measured errors
    of that product. `product_behind` returns None where there is no product.
    """
    if accelerator is None:
        return None
    return product_behind(catalog, accelerator) or _published(catalog, accelerator)


def product_behind(catalog: Catalog, accelerator: Scalar) -> str | None:
    """Return the product of a name, or the product that its system is based on; None without one.

    A system may be based on another system: the first product on the way counts.
    """
    products, systems = catalog.tables.get("accelerator", {}), catalog.tables.get("system", {})
    seen: set[Scalar] = set()
    while accelerator is not None and accelerator not in seen:
        seen.add(accelerator)
        product = _published(catalog, accelerator)
        if product in products:
            return product
        accelerator = systems.get(str(accelerator), {}).get("based_on")
    return None


def base_of(catalog: Catalog, accelerator: str) -> str | None:
    """Return the published name that a user's system is based on; other names are their own base.

    None if the system has no base.
    """
    systems = catalog.tables.get(OWN_SYSTEM, {})
    base = accelerator
    while base in systems:
        stated = systems[base].get("based_on")
        if stated is None:
            return None
        base = str(stated)
    return base


def stated_of(catalog: Catalog, accelerator: Scalar) -> dict[str, Scalar]:
    """Return the attributes that a user's system and those that it is based on state."""
    system = catalog.tables.get(OWN_SYSTEM, {}).get(str(accelerator))
    return {} if system is None else {**stated_of(catalog, system.get("based_on")), **system}


def _published(catalog: Catalog, accelerator: Scalar) -> str:
    """Return the product of a system that a publication describes (table ``priced_as``)."""
    row = catalog.tables.get("priced_as", {}).get(str(accelerator), {})
    return str(row.get("priced_as", accelerator))


def until(table: Mapping[str, Record], key: str, release: float) -> list[Record]:
    """Return the rows of a key that hold for a release of a program, the earliest first.

    A row whose key ends in `until` and a release holds before this release.
    """
    ends = {
        float(str(row["before_release"])): row
        for name, row in table.items()
        if name.startswith(f"{key} until ")
    }
    rows = [ends[end] for end in sorted(ends) if release < end]
    return [*rows, table[key]] if key in table else rows
