"""Uneven stages in the flags of a program: they place layers as the default does."""

from __future__ import annotations

from typing import Any

import pytest

from estimators.training_step.placement import NOT_BALANCED, Case, fault, place
from estimators.training_step.placement_flags import COLUMNS, stated, text_of

FIELDS = {column: field for field, column in COLUMNS.items()}


@pytest.mark.parametrize(
    ("ranks", "chunks", "text"),
    # NVIDIA-NeMo/Megatron-Bridge @067f987d src/megatron/bridge/recipes/deepseek/h100/deepseek_v3.py
    [
        (2, 8, "Et*4|(t*4|)*14tmL"),
        (4, 4, "Et*4|(t*4|)*14tmL"),
        (8, 2, "Et*4|(t*4|)*14tmL"),
        (4, 2, "Et*8|(t*8|)*6t*5mL"),
        (8, 4, "Et|(tt|)*30mL"),
    ],
)
def test_61_layers_have_the_text_of_the_recipe(ranks: int, chunks: int, text: str) -> None:
    case = Case(61, 3, 1, 1, ranks, chunks, is_mixture=True)
    sizes = place(case).layers[:2].sum(axis=0).astype(int).ravel().tolist()
    assert text_of(sizes, 1) == text
    assert stated(case, sizes) == {"pipeline_layout": text}


@pytest.mark.parametrize("layers", range(12, 64))
@pytest.mark.parametrize(("ranks", "chunks"), [(2, 1), (4, 1), (8, 1), (12, 1), (4, 2), (8, 2)])
@pytest.mark.parametrize("is_mixture", [False, True])
def test_the_choices_place_layers_as_the_default_does(
    layers: int, ranks: int, chunks: int, is_mixture: bool
) -> None:
    case = Case(layers, 0, 1, int(is_mixture), ranks, chunks, is_mixture=is_mixture)
    if fault(case):
        return
    placed = place(case)
    sizes = placed.layers[:2].sum(axis=0).astype(int).ravel().tolist()
    if len(set(sizes)) > 1:
        choices: dict[str, Any] = {
            FIELDS[column]: value for column, value in stated(case, sizes).items()
        }
        assert choices
        again = place(case._replace(**choices))
        assert (again.layers == placed.layers).all()
        assert (again.output == placed.output).all()
        assert case.output_layers == NOT_BALANCED
