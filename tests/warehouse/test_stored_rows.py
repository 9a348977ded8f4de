"""What the views show of a swept configuration is what evaluating it gives, derived or stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from estimators.columns import COLUMNS
from estimators.registry import get
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_for_write
from warehouse.studies.study import load_study
from warehouse.sweep.runner import run_study

STUDY = """
name = "stored"
estimator = "roofline"
variant = "both"
[space]
model = "gpt3_1T"
strategy = "{strategy}"
accelerator = "B200"
nvlink_size = 8
num_gpus = 64
global_batch_size = 64
virtual_pipeline = [1, 2]
activation_recompute = ["none", "full"]
"""


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["tensor_1d", "summa_2d", "context_2d"])
def test_configuration_shows_what_evaluate_gives(
    strategy: str, database: Path, tmp_path: Path
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY.format(strategy=strategy))
    run_study(database, load_study(path))
    roofline = get("roofline")
    [relation] = [relation for relation in roofline.relations if relation.name == "roofline"]
    names = (*roofline.problem_columns, *roofline.choice_columns, *relation.keys)
    for variant, mends in (("published", frozenset()), ("corrected", frozenset(roofline.mends))):
        with open_for_write(database) as connection:
            shown = connection.sql(
                f"from configuration where variant = '{variant}' and virtual_pipeline = 2"
            ).pl()
        shown = shown.sample(min(shown.height, 400), seed=1)
        assert shown.height > 100
        columns = {name: _input(shown[name]) for name in names}
        resolved, refusals = roofline.resolve(relation, columns, packaged_catalog(), mends)
        assert not refusals
        out = {n: np.empty(shown.height, dtype=COLUMNS[n].dtype) for n in relation.outputs}
        roofline.estimate(relation, resolved, resolved, mends, out, packaged_catalog())
        for name, expected in out.items():
            if name == "fits_memory":
                assert (shown[name].to_numpy() == expected).all()
            else:
                np.testing.assert_allclose(shown[name], expected, rtol=1e-12, err_msg=name)


def _input(column: pl.Series) -> np.ndarray:
    if COLUMNS[column.name].kind == "str":
        return np.array(column.to_list(), dtype=object)
    return column.cast(pl.Float64).to_numpy()
