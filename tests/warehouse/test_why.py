"""Diagnoses of layouts by estimators that lack layers to count, or a model of memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import pytest

from estimators.contract import PUBLISHED, Estimator, Values
from tests.toy_estimator import CONFIGURATIONS, PART_ROWS, Toy
from warehouse.ask.why import completed, diagnose
from warehouse.database.catalog import packaged_catalog

GIVEN = {"model": "gpt3_1.3B", "accelerator": "H100", "num_gpus": "8", "tensor_parallel": "4"}

pytestmark = pytest.mark.usefixtures("toy")


class WithoutLayers(Toy):
    """An estimator that counts no parameters of layers."""

    def layer_parameters(self, values: Values) -> tuple[float, float]:
        """Return NaN: nothing is counted."""
        del values
        return math.nan, math.nan


class WithoutMemory(Toy):
    """An estimator that says nothing about memory."""

    relations = (replace(CONFIGURATIONS, derived=()), PART_ROWS)
    memory_parts = ()


def test_without_layers_the_batch_is_the_default_of_the_estimator() -> None:
    estimator, catalog = cast("Estimator", WithoutLayers()), packaged_catalog()
    query = completed(estimator, GIVEN, PUBLISHED, catalog)
    assert (query.batch, query.is_default_batch) == (None, False)
    found = diagnose(estimator, query.given, PUBLISHED, catalog)
    assert found.shown is not None
    assert found.shown.problem["global_batch_size"] == 64


def test_without_a_model_of_memory_every_layout_fits() -> None:
    estimator, catalog = cast("Estimator", WithoutMemory()), packaged_catalog()
    found = diagnose(estimator, {**GIVEN, "global_batch_size": "8"}, PUBLISHED, catalog)
    assert found.num_fitting == found.num_layouts == 8
    assert found.rank is not None
    assert found.rank > 1
    assert found.memory == ()
    assert found.best is not None
    assert found.best["tensor_parallel"] == 8
    assert math.isnan(found.neighbours[0].memory_bytes)
