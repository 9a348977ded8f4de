"""The fastest degrees of one budget of FLOPs on growing numbers of devices.

The source draws the same question, by its greedy path, as utilization over devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from estimators.contract import Evaluate, Mends, Relation, SourceTable, TableRow
from estimators.run_optimizer.degrees import DEGREES, factorisations
from estimators.run_optimizer.step import Degrees, Problem, figures

MOST = 23
"""Exponent of the largest number of devices: the largest power of two below the source's limit."""

LONGEST_SECONDS = 10 * 365.25 * 86400
"""Longest run that is shown: ten years."""


def table(relation: Relation) -> SourceTable:
    """Return the table of a relation that has the degrees of one problem."""

    def rows(evaluate: Evaluate, given: Mapping[str, str], mends: Mends) -> Iterator[TableRow]:
        del mends  # there are none
        values = evaluate(relation, given)
        problem = Problem.of(values)
        for exponent in range(MOST + 1):
            layouts = factorisations({**values, "num_gpus": 2**exponent}, {})
            if not len(layouts["num_microbatches"]):
                continue
            found = figures(problem, Degrees.of(layouts), layouts["num_microbatches"])
            best = int(np.argmin(found["training_seconds"]))
            seconds = float(np.asarray(found["training_seconds"])[best])
            if seconds > LONGEST_SECONDS and exponent < MOST:
                continue
            utilization = float(np.asarray(found["utilization"])[best])
            yield {
                "devices": 2**exponent,
                "days": float(f"{seconds / 86400:.4g}"),
                "device hours": float(f"{seconds / 3600 * 2**exponent:.4g}"),
                "utilization %": round(100 * utilization, 1),
                **{_SHORT[name]: int(layouts[name][best]) for name in DEGREES},
                "microbatches": int(layouts["num_microbatches"][best]),
            }

    axes = frozenset({*DEGREES, "num_microbatches", "num_gpus"})
    return SourceTable(relation, rows, axes, frozenset({"tie_rule", "max_num_gpus"}))


_SHORT = {
    "pipeline_parallel": "PP",
    "data_parallel": "DP",
    "tensor_parallel": "TP",
    "tensor_parallel_external": "TP external",
}
