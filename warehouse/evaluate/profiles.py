"""Calibrated profiles: overlays of the catalog for rows and cells that name one.

A profile replaces values of table `step_constant`, such as ``hbm_efficiency@A100 SXM 80GB``, and
nothing else: a fit on one accelerator says nothing about another. A constant that a study or a row
gives itself wins over both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    Mends,
    OnChecked,
    Refusal,
    RefusedError,
    Relation,
    Scalar,
    Space,
    say_nothing,
)
from estimators.interval import System, place_of
from warehouse.database.catalog import packaged_catalog

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from estimators.estimator import Estimator
    from warehouse.studies.definitions import Definitions
    from warehouse.studies.study import Study

DEFAULT = "default"
"""The profile that changes no value of table `step_constant`."""

COLUMN = "profile"
_TABLE = "step_constant"


@dataclass(frozen=True)
class Profile:
    """Values of rows of table `step_constant`, by key, for one estimator.

    Constants that were fitted to timings of kernels, the `reference`, have `ranges` of their own.
    """

    name: str
    estimator: str
    constants: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reference: str = ""

    def added_to(self, catalog: Catalog) -> Catalog:
        """Return a catalog whose table of constants has the profile's values."""
        table = catalog.tables.get(_TABLE, {})
        # a constant for all accelerators may be fitted for one
        rows = {key: table.get(key, table.get(key.partition("@")[0])) for key in self.constants}
        changed = {}
        for key, row in rows.items():
            if row is None:
                reason = f"was fitted for `{key}`, which table {_TABLE} no longer has"
                raise RefusedError([Refusal(COLUMN, self.name, reason, "calibrate it again")])
            changed[key] = {**row, **self._changes(key)}
        return replace(catalog, tables={**catalog.tables, _TABLE: {**table, **changed}})

    def _changes(self, key: str) -> dict[str, Scalar]:
        changes: dict[str, Scalar] = {_TABLE: key, "constant_value": self.constants[key]}
        if key in self.ranges:
            lowest, highest = self.ranges[key]
            source = f"timings of {self.reference}: the middle half of them"
            changes |= {"lowest_value": lowest, "highest_value": highest}
            changes |= {"is_assumed": False, "source": source, "note": None}
        return changes

    def reaches(self, estimator: Estimator, catalog: Catalog, system: System) -> bool:
        """Return whether the profile has any constant for a system."""
        names = {key.partition("@")[0] for key in self.constants}
        return any(place_of(estimator, catalog, n, system) in self.constants for n in names)

    def refusal(self, system: System, row: int | None = None) -> Refusal:
        """Return the refusal of a system for which the profile has no constant."""
        accelerator, framework = system
        under = "" if framework is None else f" under {framework}"
        reason = f"has no constant for {accelerator or 'this system'}{under}"
        hint = f"it was fitted for {', '.join(self.constants)}; leave it out for the defaults"
        return Refusal(COLUMN, self.name, reason, hint, row)


Profiles = Mapping[str, Profile]
"""Profiles by name, without `default`."""

NO_PROFILES: Profiles = {}


def systems(columns: Columns) -> list[System]:
    """Return the system of each row."""
    height = len(next(iter(columns.values()), ()))
    unknown = np.full(height, None)
    pairs = (columns.get(name, unknown).tolist() for name in ("accelerator", "framework"))
    return list(zip(*pairs, strict=True))


def read_profiles(connection: DuckDBPyConnection) -> Profiles:
    """Return the profiles that a database has."""
    profiles: dict[str, Profile] = {}
    rows = connection.execute(_PROFILES).fetchall()
    for name, estimator, reference, key, value, lowest, highest, is_timed in rows:
        known = profiles.get(name, Profile(name, estimator, {}, {}, reference if is_timed else ""))
        ranges = {**known.ranges, key: (lowest, highest)} if is_timed else known.ranges
        constants = {**known.constants, key: value}
        profiles[name] = replace(known, constants=constants, ranges=ranges)
    return profiles


_PROFILES = """\
select
    profile, estimator, reference, step_constant, fitted_constant_value, lower_bound, upper_bound,
    profile not in (select profile from calibration_row) as is_timed
from calibration
order by profile, step_constant"""
"""A profile without steps was fitted to kernels: its bounds are those of their times."""


def load_profiles(database: Path) -> Profiles:
    """Return the profiles of the database at a path, none where there is no such file."""
    if not database.exists():
        return NO_PROFILES
    from warehouse.database.connection import open_for_read

    with open_for_read(database) as connection:
        return read_profiles(connection)


def find_profile(profiles: Profiles, name: str, estimator: Estimator) -> Profile:
    """Return the profile called `name`; refuse another estimator's."""
    known = [DEFAULT, *(p.name for p in profiles.values() if p.estimator == estimator.name)]
    if name not in known:
        hint = f"known: {', '.join(known)}; `warehouse calibrate` makes them"
        raise RefusedError([Refusal(COLUMN, name, "is not a stored profile", hint)])
    return profiles[name]


@dataclass(frozen=True)
class ProfiledCatalog(Catalog):
    """A catalog from which each row takes the constants of the profile that it names.

    Rows that name none have the profile `named`. `stored` is called only if one is named.
    """

    stored: Callable[[], Profiles] = lambda: NO_PROFILES
    named: str = DEFAULT

    def under(self, name: str, estimator: Estimator) -> tuple[Catalog, Profile | None]:
        """Return the catalog of one profile, and the profile; None for the default."""
        plain = Catalog(self.tables, self.aliases, self.measured)
        if name == DEFAULT:
            return plain, None
        profile = find_profile(self.stored(), name, estimator)
        return profile.added_to(plain), profile


def with_profiles(
    catalog: Catalog,
    stored: Callable[[], Profiles],
    estimator: Estimator,
    named: str | None = None,
) -> Catalog:
    """Return a `ProfiledCatalog`; refuse a profile that the estimator cannot take."""
    if named is not None:
        _check(named, estimator, stored)
    return ProfiledCatalog(
        catalog.tables, catalog.aliases, catalog.measured, stored, named or DEFAULT
    )


def profiled_catalog(
    database: Path,
    estimator: Estimator,
    named: str | None = None,
    defined: Definitions | None = None,
) -> Catalog:
    """Return the package's reference tables, and own definitions, with a database's profiles.

    The file is read only if a profile is named, and may be missing; `named` is the profile of rows
    that name none.
    """
    known = packaged_catalog() if defined is None else defined.added_to(packaged_catalog())
    return with_profiles(known, lambda: load_profiles(database), estimator, named)


def catalog_of(catalog: Catalog, name: object, estimator: Estimator) -> Catalog:
    """Return the catalog from which the rows of a profile take their constants.

    The name is None for rows that name no profile.
    """
    if not isinstance(catalog, ProfiledCatalog):
        return catalog
    return catalog.under(catalog.named if name is None else str(name), estimator)[0]


def resolve(
    estimator: Estimator, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
) -> tuple[Columns, list[Refusal]]:
    """Complete and check rows as `Estimator.resolve`, those of each profile with its constants."""
    if not isinstance(catalog, ProfiledCatalog) or COLUMN not in columns:
        return estimator.resolve(relation, columns, catalog, mends)
    names: Array = np.array(
        [catalog.named if name is None else name for name in columns[COLUMN]], dtype=object
    )
    columns = {**columns, COLUMN: names}
    groups = list(dict.fromkeys(names.tolist()))
    parts, order = [], []
    refusals: list[Refusal] = []
    for name in groups:
        rows = np.flatnonzero(names == name)
        of_profile = {key: values[rows] for key, values in columns.items()}
        resolved, refused = _resolve_one(name, estimator, relation, of_profile, catalog, mends)
        refusals += [replace(r, row=None if r.row is None else int(rows[r.row])) for r in refused]
        parts.append(resolved)
        order.append(rows)
    back = np.argsort(np.concatenate(order))
    return {key: np.concatenate([part[key] for part in parts])[back] for key in parts[0]}, refusals


def _resolve_one(
    name: str,
    estimator: Estimator,
    relation: Relation,
    columns: Columns,
    profiled: ProfiledCatalog,
    mends: Mends,
) -> tuple[Columns, list[Refusal]]:
    """Resolve the rows of one profile; refuse them if it is unknown or has no constant for them.

    Rows of an unknown profile are resolved without one, so that their other faults are listed too.
    """
    catalog, profile = profiled.under(DEFAULT, estimator)
    refusals: list[Refusal] = []
    try:
        catalog, profile = profiled.under(name, estimator)
    except RefusedError as error:
        height = len(columns[COLUMN])
        refusals = [replace(r, row=row) for r in error.refusals for row in range(height)]
    resolved, refused = estimator.resolve(relation, columns, catalog, mends)
    if profile is not None:
        bad = {refusal.row for refusal in refused}
        refusals = [
            profile.refusal(system, row)
            for row, system in enumerate(systems(resolved))
            if row not in bad and not profile.reaches(estimator, catalog, system)
        ]
    return resolved, [*refused, *refusals]


def cells_of_space(
    estimator: Estimator, space: Space, catalog: Catalog, mends: Mends
) -> Iterator[Cell]:
    """Yield the cells of a sound space, those of each profile that it names with its constants."""
    search = estimator.search
    if search is None:
        return
    for part, under, profile in _by_profile(estimator, space, catalog):
        for cell in search.cells(part, under, mends):
            values = cell.problem.values
            system = (values.get("accelerator"), values.get("framework"))
            if profile is not None and not profile.reaches(estimator, under, system):
                raise RefusedError([profile.refusal(system)])
            yield cell


def check_space(
    estimator: Estimator,
    space: Space,
    catalog: Catalog,
    mends: Mends,
    on_checked: OnChecked = say_nothing,
) -> None:
    """Raise if a space has a fault or no layout; see `cells_of_space`.

    `on_checked` takes the number of combinations that were checked since its last call.
    """
    search = estimator.search
    if search is None:
        return
    for part, under, profile in _by_profile(estimator, space, catalog):
        search.check(part, under, mends, on_checked)
        if profile is not None:  # it may have no constant for a system of some cell
            for _ in cells_of_space(estimator, part, catalog, mends):
                pass


def _by_profile(
    estimator: Estimator, space: Space, catalog: Catalog
) -> Iterator[tuple[Space, Catalog, Profile | None]]:
    """Yield the part of a space of each profile that it names, with its catalog."""
    if not isinstance(catalog, ProfiledCatalog) or COLUMN not in space:
        yield space, catalog, None
        return
    for name in space[COLUMN]:
        under, profile = catalog.under(str(name), estimator)
        yield {**space, COLUMN: (name,)}, under, profile


def _check(name: str, estimator: Estimator, stored: Callable[[], Profiles]) -> None:
    """Raise `RefusedError` if an estimator cannot take the profile called `name`."""
    if not estimator.constants.names:
        reason = f"cannot be taken: {estimator.name} has no constants to calibrate"
        raise RefusedError([Refusal(COLUMN, name, reason, "leave --profile out")])
    if name != DEFAULT:
        find_profile(stored(), name, estimator)


def under_profile(
    study: Study, name: str, estimator: Estimator, profiles: Callable[[], Profiles]
) -> Study:
    """Return `study` under a profile where it names none itself, with the profile in its name."""
    _check(name, estimator, profiles)
    if name == DEFAULT or all(COLUMN in space for space in study.spaces):
        return study
    spaces = tuple({COLUMN: (name,), **space} for space in study.spaces)
    called = f"{study.name} {name}"
    definition = {
        **study.definition,
        "name": called,
        "spaces": [{key: list(values) for key, values in space.items()} for space in spaces],
    }
    return replace(study, name=called, spaces=spaces, definition=definition)
