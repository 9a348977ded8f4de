"""Diagnoses of layouts by estimators that lack layers to count, or a model of memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import pytest

from estimators import registry
from estimators.contract import PUBLISHED, Values
from estimators.estimator import Estimator
from tests.toy_estimator import CONFIGURATIONS, PART_ROWS, Toy
from warehouse.ask.configuration import completed
from warehouse.ask.why import diagnose
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate import space

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
    step = replace(Toy.step, memory=())


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


def test_every_layout_is_evaluated_once_in_pieces_and_parts_of_few_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"model": "llama3_8B", "accelerator": "H100", "num_gpus": "16", "tensor_parallel": "8"}
    estimator, catalog = registry.get("training_step"), packaged_catalog()
    query = completed(estimator, given, PUBLISHED, catalog)
    whole = diagnose(estimator, query.given, PUBLISHED, catalog)
    said: list[tuple[int, int]] = []
    monkeypatch.setattr(space, "CHUNK_ROWS", 500)
    found = diagnose(
        estimator, query.given, PUBLISHED, catalog, lambda *numbers: said.append(numbers)
    )
    assert len(said) > 10
    assert said[-1] == (whole.num_layouts, whole.num_layouts)
    assert [done for done, _ in said] == sorted({done for done, _ in said})
    assert (found.rank, found.num_fitting) == (whole.rank, whole.num_fitting)
    assert len(found.neighbours) == len(whole.neighbours) >= 2
    for mine, theirs in zip(found.neighbours, whole.neighbours, strict=True):
        assert (mine.changed, mine.new) == (theirs.changed, theirs.new)
        for name, value in theirs.layout.items():
            is_number = isinstance(value, int | float)
            same = pytest.approx(value, rel=1e-12) if is_number else value
            assert mine.layout[name] == same, name
    assert found.best is not None
    # the parts of the layouts that are shown are all there, and add up to the step
    for layout in (found.best, *(each.layout for each in found.neighbours)):
        parts = [float(str(layout[name])) for name in estimator.step.parts]
        assert sum(parts) == pytest.approx(float(str(layout["step_seconds"])), rel=1e-9)
