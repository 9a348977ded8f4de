"""The distances and shapes of models that the budget counts with, against their sources."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.cluster.memory import Shape, activations, parameters
from estimators.cluster.relations import MEMORY
from estimators.cluster.runs import EARTH_RADIUS_KM, great_circle_km
from estimators.contract import Catalog
from tests.estimators.cluster_cases import ALL_MENDS, few, run

# distances


places = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


@given(places, places, places)
@few
def test_a_great_circle_is_a_distance(
    a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]
) -> None:
    direct = great_circle_km(*a, *b)
    assert direct == pytest.approx(great_circle_km(*b, *a), abs=1e-6)
    assert direct <= great_circle_km(*a, *c) + great_circle_km(*c, *b) + 1e-6
    assert 0 <= direct <= math.pi * EARTH_RADIUS_KM + 1e-6


@given(places)
@few
def test_the_nearest_place_is_this_one_and_the_farthest_the_antipode(
    a: tuple[float, float],
) -> None:
    assert great_circle_km(*a, *a) == pytest.approx(0, abs=1e-6)
    antipode = (-a[0], a[1] + 180)
    assert great_circle_km(*a, *antipode) == pytest.approx(math.pi * EARTH_RADIUS_KM, abs=1e-6)


# parameters and activations by the shape


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("llama2_7B", 6_738_415_616),
        ("llama2_13B", 13_015_864_320),
        ("llama2_70B", 68_976_648_192),
        ("llama3_8B", 8_030_261_248),
        ("llama3_70B", 70_553_706_496),
        ("llama3_405B", 405_853_388_800),
    ],
)
def test_llamas_have_as_many_parameters_as_their_checkpoints(
    model: str, size: int, catalog: Catalog
) -> None:
    assert parameters(catalog.find("model", model)) == size
    # the run of a named model is that of its own size
    assert run(catalog, MEMORY, frozenset({"C18"}), model=model)["weights_bytes"] == 2 * size


def test_a_gpt_has_the_parameters_of_the_megatron_papers_equation(catalog: Catalog) -> None:
    shape = catalog.find("model", "gpt3_175B")
    found = float(parameters(shape))
    assert round(found / 1e9) == 175
    # arXiv 2104.04473, equation 2, leaves out the last norm
    layers, h, vocabulary, length = 96, 12288, 50257, 2048
    equation = 12 * layers * h * h * (1 + 13 / (12 * h) + (vocabulary + length) / (12 * layers * h))
    assert found == pytest.approx(equation, rel=1e-6)
    assert found - equation == pytest.approx(2 * h)


@given(
    st.integers(1, 128), st.integers(1, 8).map(lambda n: 8 * n), st.integers(1, 256),
    st.integers(1, 8192), st.integers(1, 64), st.sampled_from([1, 2, 4, 8]),
)  # fmt: skip
@few
def test_activations_of_a_gpt_are_those_of_the_recomputation_papers_equations(
    layers: int, heads: int, head: int, s: int, b: int, t: int
) -> None:
    h = heads * head
    shape = {
        "num_layers": layers,
        "hidden_size": h,
        "ffn_hidden_size": 4 * h,
        "uses_glu": False,
        "num_heads": heads,
        "num_kv_heads": heads,
        "seq_len": s,
    }
    unit, core = s * b * h * layers, 5 * heads * s / h
    expected = {
        # arXiv 2205.05198: equations 1, 2 and 4, then selective and full recomputation (table 2)
        ("none", 1, False): unit * (34 + core),
        ("none", t, False): unit * (10 + 24 / t + core / t),
        ("none", t, True): unit / t * (34 + core),
        ("selective", t, False): unit * (10 + 24 / t),
        ("selective", t, True): unit * 34 / t,
        ("full", t, False): 2 * unit,
    }
    found = {case: float(activations(Shape.of(shape), b, *case)) for case in expected}
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("tensor_parallel", "heads"), [(2, 4), (8, 1), (32, 1), (64, 1)])
def test_a_rank_has_at_least_one_head_of_keys_and_values(
    tensor_parallel: int, heads: int, catalog: Catalog
) -> None:
    # Llama 3 70B: 64 heads of 128, 8 of keys and values, 80 layers, sequences of 8192
    split = {"model": "llama3_70B", "tensor_parallel": tensor_parallel}
    found = run(catalog, MEMORY, ALL_MENDS, **split)
    assert found["kv_cache_bytes"] == 2 * 2 * 80 * 8192 * 128 * heads
    queries = 128 * 64 // tensor_parallel
    assert found["layer_attn_qk_scores_bytes"] == 2 * 8192 * (queries + 128 * heads)
