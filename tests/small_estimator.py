"""A small estimator with real defaults, rules and results, for the tests of studies and batches.

``step_seconds = global_batch_size x hidden_size x num_layers / num_gpus x 1e-6``, doubled under
full recomputation; the mend S1 adds half, S2 a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import cast

import numpy as np

from estimators.contract import (
    Array,
    Catalog,
    Columns,
    Mends,
    Refusal,
    Relation,
    Scalar,
    Search,
    Values,
)
from estimators.estimator import Estimator

CATALOG = Catalog(
    {"model": {"tiny": {"model": "tiny", "hidden_size": 8, "num_layers": 2, "vocab_size": 100}}}
)
SMALL_RELATION = Relation(
    "small",
    "one row per configuration",
    keys=("data_parallel", "tensor_parallel"),
    measures=("step_seconds", "flops_per_gpu"),
    derived=("fits_memory",),
)
OTHER_RELATION = Relation(
    "small_part",
    "one row per configuration",
    ("data_parallel", "tensor_parallel"),
    ("step_seconds",),
)


class SmallEstimator(Estimator):
    name = "small"
    version = 3
    title = "A small estimator"
    mends: tuple[str, ...] = ("S1", "S2")
    problem_columns: tuple[str, ...] = (
        "model",
        "hidden_size",
        "num_layers",
        "vocab_size",
        "hbm_bytes",
        "num_gpus",
        "global_batch_size",
    )
    choice_columns: tuple[str, ...] = ("activation_recompute",)
    neutral_choices: Mapping[str, Scalar] = MappingProxyType({"activation_recompute": "none"})
    relations: tuple[Relation, ...] = (SMALL_RELATION, OTHER_RELATION)
    search: Search | None = cast(
        "Search",
        SimpleNamespace(  # of a search, a study needs the names only
            space_columns=(
                "model",
                "accelerator",
                "nvlink_size",
                "num_gpus",
                "global_batch_size",
                "strategy",
                "activation_recompute",
                "virtual_pipeline",
                "data_parallel",
                "tensor_parallel",
                "summa_panels",
            ),
            system_columns=("hbm_bytes", "hbm_bytes_per_second", "nvlink_efficiency"),
            row_columns=frozenset(),
        ),
    )

    def __init__(self) -> None:
        self.block_sizes: list[int] = []

    def resolve(
        self, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        del relation, mends  # every grain and variant has the same inputs
        columns = dict(columns)
        refusals = []
        height = len(columns["model"])
        for row, model in enumerate(columns["model"]):
            if model is None:
                continue
            known = catalog.tables["model"].get(model)
            if known is None:
                refusals.append(Refusal("model", model, "is not known", "use tiny", row))
                continue
            for name in ("hidden_size", "num_layers", "vocab_size"):
                if np.isnan(columns[name][row]):
                    columns[name][row] = known[name]
        defaults = {"hbm_bytes": 1000.0, "num_gpus": 1, "global_batch_size": 1}
        for name, value in (defaults | {"tensor_parallel": 1}).items():
            columns[name] = np.where(np.isnan(columns[name]), value, columns[name])
        given = columns["data_parallel"]
        whole = columns["num_gpus"] // columns["tensor_parallel"]
        columns["data_parallel"] = np.where(np.isnan(given), whole, given)
        choice = columns["activation_recompute"]
        columns["activation_recompute"] = np.array(
            ["none" if each is None else each for each in choice], object
        )
        product = columns["data_parallel"] * columns["tensor_parallel"]
        for row in np.flatnonzero(product != columns["num_gpus"]).tolist():
            value = int(columns["tensor_parallel"][row])
            reason = "times `data_parallel` is not `num_gpus`"
            refusals.append(Refusal("tensor_parallel", value, reason, "", row))
        for name in ("hidden_size", "num_layers"):
            refusals += [
                Refusal(name, None, "is missing", "give it or a model", row)
                for row in np.flatnonzero(np.isnan(columns[name])).tolist()
                if columns["model"][row] is None
            ]
        refused = {refusal.row for refusal in refusals}
        keep = np.array([row not in refused for row in range(height)], dtype=bool)
        for name in ("hidden_size", "num_layers", "num_gpus", "data_parallel", "tensor_parallel"):
            columns[name] = np.where(keep, columns[name], 1).astype(np.int64)
        return columns, refusals

    def estimate(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
        catalog: Catalog,
    ) -> None:
        del catalog
        self.block_sizes.append(len(layouts["data_parallel"]))
        size = np.asarray(values["hidden_size"] * values["num_layers"], dtype=np.float64)
        seconds = values["global_batch_size"] * size / values["num_gpus"] * 1e-6
        seconds = seconds * np.where(np.equal(values["activation_recompute"], "full"), 2, 1)
        seconds = seconds * (1.5 if "S1" in mends else 1.0) + (1.0 if "S2" in mends else 0.0)
        found = {
            "step_seconds": seconds,
            "flops_per_gpu": 2.0 * size,
            "fits_memory": 8 * size <= values["hbm_bytes"],
        }
        assert set(out) == set(relation.outputs)
        for name, array in out.items():
            array[:] = found[name]


SMALL = SmallEstimator()
