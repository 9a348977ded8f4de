"""Hints are tried on every rule before they are printed."""

from __future__ import annotations

import pytest

from estimators import registry
from estimators.contract import PUBLISHED, EmptySpaceError, Scalar
from estimators.search import combinations
from warehouse.database.catalog import packaged_catalog

ESTIMATOR = registry.get("training_step")
[RELATION, *_] = ESTIMATOR.relations
CATALOG = packaged_catalog()
GIVEN: dict[str, Scalar] = {"model": "llama3_8B", "accelerator": "H100", "num_gpus": 16}


def _hints(changes: dict[str, Scalar]) -> list[str]:
    columns = combinations({name: (value,) for name, value in {**GIVEN, **changes}.items()})
    _, refusals = ESTIMATOR.resolve(RELATION, columns, CATALOG, PUBLISHED)
    return [refusal.hint for refusal in refusals]


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        # 10 and 20 split the sequence too, but not 16 GPUs
        ({"context_parallel": 16, "seq_len": 8200}, "use 4"),
        ({"data_parallel": 256}, "use 256, or `data_parallel` 16"),
        ({"tensor_parallel": 3}, "use 1, 2, 4, 8 or 16"),
        ({"tensor_parallel": 2, "pipeline_parallel": 8, "num_gpus": 8}, "use 16"),
    ],
)
def test_a_hint_keeps_every_other_rule(changes: dict[str, Scalar], hint: str) -> None:
    [first, *_] = _hints(changes)
    assert first.startswith(hint)


def test_a_hint_of_a_plan_is_that_of_why() -> None:
    held = {"tensor_parallel": 2, "pipeline_parallel": 8}
    space = {**GIVEN, "num_gpus": 8, "global_batch_size": 64, **held}
    assert ESTIMATOR.search is not None
    with pytest.raises(EmptySpaceError) as caught:
        ESTIMATOR.search.check({k: (v,) for k, v in space.items()}, CATALOG, PUBLISHED)
    [refusal] = caught.value.refusals
    assert str(refusal) == (
        "`num_gpus` 8 is not the product of the degrees, 16\n"
        "hint: use 16, or `pipeline_parallel` 4, or `tensor_parallel` 1"
    )


def test_values_that_other_free_degrees_mend_are_not_blamed() -> None:
    held = {"tensor_parallel": 2, "pipeline_parallel": 2}
    space = {**GIVEN, "global_batch_size": 64, **held}
    assert ESTIMATOR.search is not None
    ESTIMATOR.search.check({k: (v,) for k, v in space.items()}, CATALOG, PUBLISHED)


def test_where_several_rules_are_broken_the_hint_that_mends_all_is_on_one() -> None:
    hints = _hints({"tensor_parallel": 3, "data_parallel": 2, "num_gpus": 8})
    assert "use 4" in hints


@pytest.mark.parametrize(
    "changes",
    [
        {"kv_lora_rank": 16},
        {"q_lora_rank": 16},
        {"num_shared_experts": 1},
        {"expert_ffn_hidden_size": 512},
        {"experts_per_token": 2},
        {"num_dense_layers": 3},
        {"moe_period": 2},
        {"window_period": 2},
        {"uses_chunked_attention": True},
    ],
)
def test_inputs_of_a_layer_that_the_model_lacks_are_refused(changes: dict[str, Scalar]) -> None:
    assert _hints(changes)


def test_neutral_values_of_such_inputs_pass() -> None:
    neutral = {"kv_lora_rank": 0, "num_shared_experts": 0, "expert_ffn_hidden_size": 14336}
    assert not _hints({**neutral, "experts_per_token": 1, "num_dense_layers": 0})
