"""Store an evaluated batch in the database, as a study of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.contract import variant_name
from warehouse.database.sink import store_cells
from warehouse.evaluate.profiles import DEFAULT
from warehouse.studies.study import Study
from warehouse.sweep.record import register_study

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import duckdb

    from estimators.contract import Cell, Columns, Estimator, Mends, Relation


def store_batch(
    connection: duckdb.DuckDBPyConnection,
    estimator: Estimator,
    relation: Relation,
    cells: Sequence[tuple[Cell, Columns]],
    mends: Mends,
    configs: Path,
    *,
    profile: str | None = None,
    study: str | None = None,
) -> int:
    """Store `cells` under a study; return how many were new.

    It is called `study`, or "evaluate <file> <variant>": the file is named as the user named it,
    so that one of the same name in another directory does not take its place; nor does another
    variant or profile.
    """
    if not cells:
        return 0
    name = study or f"evaluate {configs} {variant_name(mends, estimator.mends)}"
    if study is None and profile not in (None, DEFAULT):
        name += f" {profile}"
    definition = {
        "name": name,
        "estimator": estimator.name,
        "relation": relation.name,
        "mends": [[mend for mend in estimator.mends if mend in mends]],
        "file": str(configs),
    }
    asked = Study(name, estimator.name, (mends,), (), definition, str(configs))
    sizes = [(cell, len(next(iter(columns.values())))) for cell, columns in cells]
    register_study(connection, asked, sizes)
    return len(store_cells(connection, estimator, relation, cells))
