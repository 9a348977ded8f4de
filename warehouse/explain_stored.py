"""The stored configuration that an explanation is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.registry import get
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError
from warehouse.evaluate.inputs import input_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckdb import DuckDBPyConnection

_VIEW = "current_training_step"


def best_configuration(connection: DuckDBPyConnection, given: Mapping[str, str]) -> dict[str, str]:
    """Return the fastest stored layout that fits and has the values given, every input as text.

    Raises
    ------
    InputError
        If nothing stored has them, or nothing that fits in memory.
    """
    estimator = get("training_step")
    relation = estimator.relations[0]
    described = connection.execute(f"describe {_VIEW}").fetchall()
    types = {str(row[0]): str(row[1]) for row in described}
    where = " and ".join(f"{quoted(n)} = cast(? as {types[n]})" for n in given if n in types)
    names = [name for name in input_names(estimator, relation) if name in types]
    fits = (
        "weights_bytes + gradients_bytes + optimizer_bytes + activations_bytes + logits_bytes "
        "+ gathered_bytes + framework_bytes <= hbm_bytes"
    )
    query = (
        f"select {', '.join(quoted(name) for name in names)}, {fits} from {_VIEW} "
        f"where {where or 'true'} order by {fits} desc, step_seconds limit 1"
    )
    found = connection.execute(query, [given[name] for name in given if name in types]).fetchone()
    if found is None:
        raise InputError(
            "no stored configuration of training_step has these values",
            "store some with `warehouse sweep`, or leave --best out and give the layout",
        )
    if not found[-1]:
        raise InputError("no stored layout of that fits in memory", "ask for more GPUs")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in zip(names, found, strict=False)
        if value is not None
    }
