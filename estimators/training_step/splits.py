"""The tables that make the layouts of a cell: layers, splits and shares.

The layouts of a cell are a product of ways to split a layer (`LAYER_KEYS`), ways to split layers
over stages and replicas, and ZeRO stages. A figure of a layer is computed once for each way to
split it, and a figure of a split once for each split. A GPU's share of the parameters
(`SHARE_KEYS`) does not depend on microbatch and chunks, so its figures are computed once for each
share. The rows of a batch differ in their values: each is a layer, a split and a share.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array, Columns
from estimators.factored import distinct, runs
from estimators.training_step import inputs as given
from estimators.training_step.layer import LAYER_KEYS
from estimators.training_step.pipelines import is_simple
from estimators.training_step.problem import Layout, Problem

SPLIT_KEYS = tuple(name for name in given.KEYS if name != "zero_stage")
SHARE_KEYS = (
    *("tensor_parallel", "context_parallel", "expert_tensor_parallel", "expert_parallel"),
    *("pipeline_parallel", "data_parallel"),
)
"""Layout columns that decide which parameters a GPU has, and with which GPUs it exchanges them."""


class Splits(NamedTuple):
    """Tables of layouts, and the links between them.

    Attributes
    ----------
    split
        One row a split: a layout without its ZeRO stage.
    table
        One row a way to split a layer.
    spread
        One row a share of the parameters.
    to_split
        Layout -> its split; None: each layout is a split.
    to_layer, to_share
        Split -> its layer, split -> its share; None: each split is one.
    simple
        For each split whether closed forms cover its pipeline.
    """

    split: Layout
    table: Layout
    spread: Layout
    to_split: Array | None
    to_layer: Array | None
    to_share: Array | None
    simple: Any


def splits_of(values: Problem, layouts: Columns, *, is_cell: bool) -> Splits:
    """Return the tables of a cell's layouts, or of a batch, which is not factored."""
    if not is_cell:
        split = Layout.of(layouts)
        return Splits(split, split, split, None, None, None, is_simple(values, split))
    of_splits, to_split = runs(layouts, SPLIT_KEYS)
    of_layers, to_layer = runs(of_splits, LAYER_KEYS)
    split = Layout.of(of_splits)
    simple = is_simple(values, split)
    by_chunk = () if np.all(simple) else ("virtual_pipeline",)
    of_shares, to_share = distinct(of_splits, (*SHARE_KEYS, *by_chunk))
    of_shares.setdefault("virtual_pipeline", np.ones_like(of_shares["pipeline_parallel"]))
    table, spread = Layout.of(of_layers), Layout.of(of_shares)
    return Splits(split, table, spread, to_split, to_layer, to_share, simple)
