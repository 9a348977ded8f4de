"""Number formats: recipes by precision and accelerator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators.kernels.products import FORMATS
from estimators.training_step import formats
from tests.estimators.training_step_cases import resolve
from warehouse.database.catalog import packaged_catalog

SHAPE = {"num_layers": 8, "hidden_size": 1024, "num_heads": 8, "seq_len": 1024, "num_gpus": 1}


def resolved(**given: Any) -> Any:
    """Return the resolved row of a small model on an accelerator as sold."""
    return resolve([{**SHAPE, **given}], packaged_catalog())


@pytest.mark.parametrize(
    ("accelerator", "precision", "recipe"),
    [
        ("H100", "bf16", "none"),
        ("H100", "fp16", "none"),
        ("H100", "fp8", "tensorwise"),
        ("H800", "fp8", "tensorwise"),
        ("H200", "fp8", "tensorwise"),
        ("B200", "fp8", "mxfp8"),
        ("GB200", "fp8", "mxfp8"),
        ("GB300", "fp8", "mxfp8"),
        ("B300", "fp4", "nvfp4"),
    ],
)
def test_a_precision_has_the_recipe_of_its_accelerator(
    accelerator: str, precision: str, recipe: str
) -> None:
    found, refusals = resolved(accelerator=accelerator, precision=precision)
    assert not refusals
    assert found["number_recipe"][0] == recipe


def test_a_recipe_makes_its_precision() -> None:
    found, refusals = resolved(accelerator="GB200", number_recipe="tensorwise")
    assert not refusals
    assert found["precision"][0] == "fp8"
    assert resolved(accelerator="GB200", number_recipe="nvfp4")[0]["precision"][0] == "fp4"


@pytest.mark.parametrize(
    ("given", "column", "hint"),
    [
        ({"accelerator": "H100", "precision": "fp4"}, "precision", "use fp8 or bf16, or give"),
        ({"accelerator": "A100", "precision": "fp8"}, "precision", "use bf16, or give"),
        (
            {"accelerator": "GB200", "precision": "fp4", "number_recipe": "mxfp8"},
            "number_recipe",
            "use nvfp4",
        ),
        (
            {"accelerator": "GB200", "precision": "fp8", "number_recipe": "none"},
            "number_recipe",
            "use delayed, tensorwise, blockwise or mxfp8",
        ),
        (
            {"accelerator": "H800", "number_recipe": "mxfp8"},
            "number_recipe",
            "use tensorwise, delayed or blockwise",
        ),
    ],
)
def test_a_format_that_an_accelerator_lacks_is_refused(
    given: dict[str, Any], column: str, hint: str
) -> None:
    _, refusals = resolved(**given)
    [refusal] = refusals
    assert refusal.column == column
    assert hint in refusal.hint


def test_blocks_of_128_values_have_kernels_of_their_own_on_hopper_alone() -> None:
    values = {
        "number_recipe": np.array(
            ["none", "delayed", "tensorwise", "blockwise", "blockwise", "mxfp8", "nvfp4"],
            dtype=object,
        ),
        "transposes_operands": np.array([True, True, False, True, False, False, False]),
    }
    found = [FORMATS[place] for place in formats.places(values)]
    assert found == ["bf16", "fp8", "fp8", "fp8_block", "fp8", "fp8", "nvfp4"]


def test_memory_is_what_the_driver_shows() -> None:
    assert resolved(accelerator="H100")[0]["hbm_bytes"][0] == 81_559 * 2**20
    assert resolved(accelerator="GB300")[0]["hbm_bytes"][0] == 284_208 * 2**20
    # no driver was read of a V100: as it is sold
    assert resolved(accelerator="V100")[0]["hbm_bytes"][0] == 32e9
    assert resolved(accelerator="H100", hbm_bytes=80e9)[0]["hbm_bytes"][0] == 80e9


def test_an_h800_is_an_h100_with_less_nvlink() -> None:
    (one, _), (other, _) = resolved(accelerator="H800"), resolved(accelerator="H100")
    differ = {name for name in one if name in other and str(one[name][0]) != str(other[name][0])}
    assert differ == {"accelerator", "nvlink_bytes_per_second", "nvlink_efficiency"}
    rate = one["nvlink_bytes_per_second"][0] * one["nvlink_efficiency"][0]
    assert rate == pytest.approx(160e9)
