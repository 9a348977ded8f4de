"""Number formats of the matmuls, and recipes that scale their operands.

`number_recipe` names how operands in 8 or 4 bits get their scales: of a tensor's past (`delayed`)
or present largest value (`tensorwise`), of blocks of 128 values (`blockwise`), of 32 values with
scales that the tensor cores read (`mxfp8`), or of 16 values in 4 bits (`nvfp4`).

Sources: NVIDIA/TransformerEngine @d0067d0d transformer_engine/common/recipe/__init__.py and
docs/features/low_precision_training; NVIDIA-NeMo/Megatron-Bridge @067f987d
src/megatron/bridge/training/mixed_precision.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Array, Values
from estimators.kernels.products import FORMATS
from estimators.values import Place

RECIPES = ("none", "delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4")
"""Values of `number_recipe`; `none` is 16 bits."""

WIDTHS = {"none": "bf16", **dict.fromkeys(RECIPES[1:5], "fp8"), "nvfp4": "fp4"}
"""Recipe -> the `precision` that it makes. `none` goes with fp16 as well."""

SCALED_IN_HARDWARE = ("mxfp8", "nvfp4")
"""Recipes whose scales the tensor cores apply: those of Blackwell and later."""


def precision_of(recipe: Any) -> Array:
    """Return the precision that each recipe makes; bf16 where there is none."""
    recipe = np.asarray(recipe, dtype=object)
    precisions = [WIDTHS.get(name, "bf16") for name in recipe.ravel().tolist()]
    return np.array(precisions, dtype=object).reshape(recipe.shape)


def recipe_of(precision: Array, transposes: Array) -> Array:
    """Return the default recipe of Megatron-Bridge's benchmarks for each precision.

    FP8 has the present scale of a tensor on Hopper, and blocks of 32 values on Blackwell
    (NVIDIA-NeMo/Megatron-Bridge @067f987d src/megatron/bridge/perf_recipes: every recipe in FP8 of
    H100 is `fp8_cs`; those of Blackwell are `fp8_cs` and `fp8_mx`, of mixtures `fp8_mx` alone).

    Parameters
    ----------
    transposes
        Whether products need transposed copies of their operands, as on Hopper.
    """
    fp8 = np.where(transposes.astype(bool), "tensorwise", "mxfp8")
    recipe = np.select(
        [np.equal(precision, "fp8"), np.equal(precision, "fp4")], [fp8, "nvfp4"], "none"
    )
    return recipe.astype(object)


def recipe_places(values: Values) -> Place:
    """Return the place in `RECIPES` of `number_recipe`."""
    recipe = np.asarray(values["number_recipe"], dtype=object)
    places = [RECIPES.index(name) for name in np.ravel(recipe).tolist()]
    in_table: Place = np.array(places, dtype=np.int64).reshape(recipe.shape)[()]
    return in_table


def format_places(values: Values) -> Place:
    """Return the place in `kernels.products.FORMATS` of the format of the products.

    Hopper has special kernels for scales of blocks of 128 values. Blackwell runs them as MXFP8
    (NVIDIA/TransformerEngine @d0067d0d docs/features/low_precision_training/
    fp8_blockwise_scaling).
    """
    recipe, transposes = values["number_recipe"], values["transposes_operands"]
    is_blockwise = np.equal(recipe, "blockwise") & np.asarray(transposes, dtype=bool)
    place = np.where(np.equal(recipe, "nvfp4"), FORMATS.index("nvfp4"), FORMATS.index("fp8"))
    place = np.where(is_blockwise, FORMATS.index("fp8_block"), place)
    place = np.where(np.equal(recipe, "none"), FORMATS.index("bf16"), place)
    in_table: Place = place.astype(np.int64)[()]
    return in_table
