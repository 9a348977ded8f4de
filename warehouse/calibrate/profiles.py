"""Calibrated profiles: constants that stand in for those of table `step_constant` by name.

A profile changes rows of that table, such as ``gemm_efficiency@A100 SXM 80GB``, and nothing else:
what was fitted on one accelerator says nothing of another. What a study or a row gives itself
comes before either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    Mends,
    Refusal,
    RefusedError,
    Relation,
    Space,
)
from estimators.training_step.inputs import places

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from estimators.contract import Estimator
    from warehouse.studies.study import Study

DEFAULT = "default"
"""The profile of table `step_constant` as it stands."""

COLUMN = "profile"
_TABLE = "step_constant"


@dataclass(frozen=True)
class Profile:
    """Values of rows of table `step_constant`, by key, for one estimator."""

    name: str
    estimator: str
    constants: Mapping[str, float]

    def added_to(self, catalog: Catalog) -> Catalog:
        """Return a catalog whose table of constants has the profile's values.

        Raises
        ------
        RefusedError
            If the table no longer has a row that the profile was fitted for.
        """
        table = catalog.tables.get(_TABLE, {})
        lost = [key for key in self.constants if key not in table]
        if lost:
            reason = f"was fitted for `{lost[0]}`, which table {_TABLE} no longer has"
            raise RefusedError([Refusal(COLUMN, self.name, reason, "calibrate it again")])
        changed = {
            key: {**table[key], "constant_value": value} for key, value in self.constants.items()
        }
        return Catalog({**catalog.tables, _TABLE: {**table, **changed}}, catalog.aliases)

    def reaches(self, catalog: Catalog, accelerator: Any, framework: Any) -> bool:
        """Return whether a system with this framework takes any of the profile's constants."""
        names = {key.partition("@")[0] for key in self.constants}
        return any(
            place_of(catalog, name, accelerator, framework) in self.constants for name in names
        )

    def refusal(self, accelerator: Any, framework: Any, row: int | None = None) -> Refusal:
        """Return the refusal of a row that the profile says nothing about."""
        reason = f"has no constant for {accelerator or 'this system'} under {framework}"
        hint = f"it was fitted for {', '.join(self.constants)}; leave it out for the defaults"
        return Refusal(COLUMN, self.name, reason, hint, row)


Profiles = Mapping[str, Profile]
"""Profiles by name; `default` is never among them."""

NO_PROFILES: Profiles = {}


def place_of(catalog: Catalog, constant: str, accelerator: Any, framework: Any) -> str | None:
    """Return the row of `step_constant` that such a system takes a constant from."""
    table = catalog.tables.get(_TABLE, {})
    keys = (constant + place for place in places(catalog, framework, accelerator))
    return next((key for key in keys if key in table), None)


def read_profiles(connection: DuckDBPyConnection) -> Profiles:
    """Return the profiles that a database has."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    rows = connection.execute(
        "select profile, estimator, step_constant, fitted_constant_value from calibration "
        "order by profile, step_constant"
    ).fetchall()
    for name, estimator, key, value in rows:
        found.setdefault((name, estimator), {})[key] = value
    return {name: Profile(name, estimator, own) for (name, estimator), own in found.items()}


def load_profiles(database: Path) -> Profiles:
    """Return the profiles of the database at a path, none where there is no such file."""
    if not database.exists():
        return NO_PROFILES
    from warehouse.database.connection import open_for_read

    with open_for_read(database) as connection:
        return read_profiles(connection)


def find_profile(profiles: Profiles, name: str, estimator: Estimator) -> Profile:
    """Return the profile called `name`.

    Raises
    ------
    RefusedError
        If there is none, or it is another estimator's.
    """
    known = [DEFAULT, *(p.name for p in profiles.values() if p.estimator == estimator.name)]
    if name not in known:
        hint = f"known: {', '.join(known)}; `warehouse calibrate` makes them"
        raise RefusedError([Refusal(COLUMN, name, "is not a stored profile", hint)])
    return profiles[name]


def refuse_without_constants(estimator: Estimator, name: str) -> None:
    """Raise `RefusedError` if the estimator takes no profile."""
    if COLUMN not in estimator.problem_columns:
        reason = f"cannot be taken: {estimator.name} has no constants to calibrate"
        raise RefusedError([Refusal(COLUMN, name, reason, "leave --profile out")])


class _Profiled:
    """An estimator whose rows take the constants of the profile that they name."""

    def __init__(
        self, estimator: Estimator, profiles: Callable[[], Profiles], named: str = DEFAULT
    ) -> None:
        self._estimator = estimator
        self._profiles = profiles
        self._named = named

    def __getattr__(self, name: str) -> Any:
        return getattr(self._estimator, name)

    def resolve(
        self, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        """Complete and check rows of input, those of each profile with its constants."""
        names: Array = np.array(
            [self._named if name is None else name for name in columns[COLUMN]], dtype=object
        )
        columns = {**columns, COLUMN: names}
        groups = list(dict.fromkeys(names.tolist()))
        if set(groups) <= {DEFAULT}:
            return self._estimator.resolve(relation, columns, catalog, mends)
        parts, order = [], []
        refusals: list[Refusal] = []
        for name in groups:
            rows = np.flatnonzero(names == name)
            own = {key: values[rows] for key, values in columns.items()}
            resolved, refused = self._part(name, relation, own, catalog, mends)
            refusals += [replace(one, row=_at(rows, one.row)) for one in refused]
            parts.append(resolved)
            order.append(rows)
        back = np.argsort(np.concatenate(order))
        joined = {key: np.concatenate([part[key] for part in parts])[back] for key in parts[0]}
        return joined, sorted(refusals, key=lambda one: -1 if one.row is None else one.row)

    def _part(
        self, name: str, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        """Resolve rows of one profile; an unknown one, or one that says nothing, is refused."""
        profile = None
        refusals: list[Refusal] = []
        if name != DEFAULT:
            try:
                profile = find_profile(self._profiles(), name, self._estimator)
                catalog = profile.added_to(catalog)
            except RefusedError as error:
                height = len(columns[COLUMN])
                refusals = [
                    replace(one, row=row) for one in error.refusals for row in range(height)
                ]
                profile = None
        resolved, refused = self._estimator.resolve(relation, columns, catalog, mends)
        bad = {one.row for one in refused}
        if profile is not None:
            pairs = zip(resolved["accelerator"], resolved["framework"], strict=True)
            refusals = [
                profile.refusal(*pair, row)
                for row, pair in enumerate(pairs)
                if row not in bad and not profile.reaches(catalog, *pair)
            ]
        return resolved, [*refused, *refusals]


def _at(rows: Array, row: int | None) -> int | None:
    return None if row is None else int(rows[row])


def profiled(
    estimator: Estimator, profiles: Callable[[], Profiles], named: str | None = None
) -> Estimator:
    """Return the estimator with profiles: its rows take the constants of those that they name.

    Parameters
    ----------
    profiles
        Called when a row names another than the default.
    named
        The profile of rows that name none.

    Raises
    ------
    RefusedError
        If `named` is unknown, or the estimator has no constants.
    """
    if named is not None:
        refuse_without_constants(estimator, named)
        if named != DEFAULT:
            find_profile(profiles(), named, estimator)
    if COLUMN not in estimator.problem_columns:
        return estimator
    return cast("Estimator", _Profiled(estimator, profiles, named or DEFAULT))


def cells_of_profiles(
    estimator: Estimator,
    space: Space,
    catalog: Catalog,
    mends: Mends,
    profiles: Callable[[], Profiles],
) -> Iterator[Cell]:
    """Yield the cells of a space, those of each profile that it names with its constants.

    Raises `RefusedError` as `Search.cells`; or if a profile is unknown or says nothing of a system.
    """
    search = estimator.search
    if search is None:
        return
    names = [name for name in space.get(COLUMN, ()) if name != DEFAULT]
    if not names or COLUMN not in estimator.problem_columns:
        yield from search.cells(space, catalog, mends)
        return
    stored = profiles()
    for name in space[COLUMN]:
        part = {**space, COLUMN: (name,)}
        if name == DEFAULT:
            yield from search.cells(part, catalog, mends)
            continue
        profile = find_profile(stored, str(name), estimator)
        known = profile.added_to(catalog)
        for cell in search.cells(part, known, mends):
            pair = (cell.problem.values.get("accelerator"), cell.problem.values.get("framework"))
            if not profile.reaches(known, *pair):
                raise RefusedError([profile.refusal(*pair)])
            yield cell


def under_profile(
    study: Study, name: str, estimator: Estimator, profiles: Callable[[], Profiles]
) -> Study:
    """Return `study` under a profile, where it names none itself, stored under a name of its own.

    Raises
    ------
    RefusedError
        If the profile is unknown, or the study's estimator has no constants.
    """
    refuse_without_constants(estimator, name)
    if name != DEFAULT:
        find_profile(profiles(), name, estimator)
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
