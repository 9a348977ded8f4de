"""Number formats of the matmuls, and recipes that scale their operands.

`number_recipe` names how operands in 8 or 4 bits get their scales: of a tensor's past (`delayed`)
or present largest value (`tensorwise`), of blocks of 128 values (`blockwise`), of 32 values with
scales that the tensor cores read (`mxfp8`), or of 16 values in 4 bits (`nvfp4`).

Table `recipe.csv` has what follows from a recipe. Its figures hold for matmuls in 8 or 4 bits;
column `none` is 16 bits.

Sources: NVIDIA/TransformerEngine @d0067d0d transformer_engine/common/recipe/__init__.py and
docs/features/low_precision_training; NVIDIA-NeMo/Megatron-Bridge @067f987d
src/megatron/bridge/training/mixed_precision.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from estimators.contract import Array, Values
from estimators.kernels.gemms import FORMATS
from estimators.own_tables import rows_of
from estimators.structure import Structure
from estimators.values import Flag, Place, Real

RECIPES = ("none", "delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4")
"""Values of `number_recipe`; `none` is 16 bits."""

WIDTHS = {"none": "bf16", **dict.fromkeys(RECIPES[1:5], "fp8"), "nvfp4": "fp4"}
"""Recipe -> the `precision` that it makes. `none` goes with fp16 as well."""


@dataclass(frozen=True)
class Recipe(Structure):
    """The figures of `number_recipe`; table `recipe.csv` has their meanings and sources."""

    copy_bytes: Real
    weight_copy_bytes: Real
    amax_bytes: Real
    makes_both_copies: Flag
    has_past_scales: Flag
    is_scaled_in_hardware: Flag
    splits_collectives: Flag
    norm_finds_amax: Flag
    gathered_bytes: Real
    gathers_16_bits: Flag
    kept_bytes: Real
    core_bytes: Real
    alignment: Real
    expert_casts: Real
    expert_tensors: Real

    @classmethod
    def named(cls, names: Any) -> Self:
        """Return the figures of a recipe, or of the recipe of each row."""
        recipe = np.asarray(names, dtype=object)
        places = np.array([RECIPES.index(name) for name in recipe.ravel().tolist()], dtype=int)
        places = places.reshape(recipe.shape)
        return cls(**{name: figures[places][()] for name, figures in FIGURES.items()})


def _figures(row: Mapping[str, str]) -> Array:
    """Return the figure of each of `RECIPES`: numbers or flags."""
    texts = np.array([row[name] for name in RECIPES])
    is_flag = np.isin(texts, ("true", "false")).all()
    return np.equal(texts, "true") if is_flag else texts.astype(np.float64)


FIGURES = {row["figure"]: _figures(row) for row in rows_of("training_step/recipe")}
"""Figure of table `recipe.csv` -> one number or flag for each of `RECIPES`."""

SCALED_IN_HARDWARE = tuple(np.array(RECIPES)[FIGURES["is_scaled_in_hardware"]].tolist())
"""Recipes whose scales the tensor cores apply."""


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
        Whether matmuls need transposed copies of their operands, as on Hopper.
    """
    fp8 = np.where(transposes.astype(bool), "tensorwise", "mxfp8")
    recipe = np.select(
        [np.equal(precision, "fp8"), np.equal(precision, "fp4")], [fp8, "nvfp4"], "none"
    )
    return recipe.astype(object)


def format_places(values: Values) -> Place:
    """Return the place in `kernels.gemms.FORMATS` of the format of the matmuls.

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
