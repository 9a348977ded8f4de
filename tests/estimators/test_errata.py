"""The published and the mended figure of every mend, worked out by hand.

The model is one layer, and the system's rates are round numbers without efficiencies or
latencies, so that each figure follows from its formula in a line.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import polars as pl
import pytest

from estimators.contract import PUBLISHED, Catalog, Mends, RefusedError
from estimators.registry import ESTIMATORS, all_estimators
from estimators.roofline.breakdown import RELATION_OPERATION
from estimators.roofline.estimator import RELATION, ROOFLINE
from tests.estimators.evaluation import cells_of, evaluate_cell
from tests.estimators.parity import evaluated
from warehouse.database import resources
from warehouse.database.reference import read_table

TOKENS, WIDTH, FFN, HEADS, HEAD = 1024, 2048, 8192, 16, 128
MATRIX, VECTOR, NVLINK, NETWORK, LAUNCH = 8e14, 1e14, 1e10, 1e9, 1e-6
ROW: dict[str, Any] = {
    "num_layers": 1,
    "hidden_size": WIDTH,
    "ffn_hidden_size": FFN,
    "num_heads": HEADS,
    "seq_len": TOKENS,
    "matrix_flops_per_second": MATRIX,
    "vector_flops_per_second": VECTOR,
    "hbm_bytes_per_second": 1e15,
    "hbm_bytes": 1e12,
    "nvlink_bytes_per_second": NVLINK,
    "network_bytes_per_second": NETWORK,
    "nics_per_gpu": 1.0,
    **dict.fromkeys(("nvlink_efficiency", "network_efficiency", "flops_efficiency"), 1.0),
    **dict.fromkeys(("nvlink_latency_seconds", "network_latency_seconds"), 0.0),
    "launch_seconds": LAUNCH,
    "nvlink_size": 1,
    "global_batch_size": 1,
}
"""One microbatch of one sequence, two bytes an element."""

SUMMA = {"strategy": "summa_2d", "tensor_parallel": 2}
CONTEXT = {"strategy": "context_2d", "tensor_parallel": 4, "context_parallel": 2}
IN_PANELS = {**SUMMA, "nvlink_size": 2, "summa_panels": 4, "operation": "fc1"}
# What one of the 4 panels sends over NVLink, and the arithmetic of all of them.
PANEL_SECONDS = 2 * TOKENS * WIDTH / 4 / NVLINK
PRODUCT_SECONDS = 2 * TOKENS * WIDTH * (FFN // 2) / MATRIX

# Attention on one GPU: scores Q K', their softmax and dropout, and sums of V.
SCORES = HEADS * TOKENS * TOKENS
SCORES_FLOPS = SCORES * (2 * HEAD - 1)
SUM_FLOPS = HEADS * TOKENS * HEAD * (2 * TOKENS - 1)
SOFTMAX_FLOPS = 2 * SCORES + HEADS * TOKENS * (TOKENS - 1)


def attention_flops(weight: float) -> tuple[float, float]:
    """Return the FLOPs of fused attention, forward and backward; vector work has a `weight`."""
    work = weight * (SOFTMAX_FLOPS + SCORES)
    # Backward: all but the sums again, then the gradients of softmax, dropout, scores, Q, K, V.
    again = SCORES_FLOPS + work
    gradients = SCORES_FLOPS + 3 * SUM_FLOPS + work + weight * SCORES
    return SCORES_FLOPS + SUM_FLOPS + work, again + gradients


def step_flops(weight: float) -> float:
    """Return the FLOPs of the layer on one GPU, both passes."""
    products = ((WIDTH, FFN), (FFN, WIDTH), (WIDTH, 3 * WIDTH), (WIDTH, WIDTH))
    matrix = sum(
        TOKENS * n * (2 * k - 1) + TOKENS * k * (2 * n - 1) + k * n * (2 * TOKENS - 1)
        for k, n in products
    )
    biases = dropouts = 2 * TOKENS * (FFN + WIDTH + WIDTH)
    activation = (8 + 13) * TOKENS * FFN
    norms = 2 * ((9 + 12) * TOKENS * WIDTH - 4 * TOKENS)
    return matrix + biases + activation + dropouts + norms + sum(attention_flops(weight))


def ring_seconds(volume: float, members: int, rate: float) -> float:
    """Return the time in which every byte goes round once."""
    return (members - 1) / members * volume / rate


class Case(NamedTuple):
    """One configuration and a column under a mend; of one operation where `changes` name it.

    If it is searched, `changes` are its space, and figures all that the layouts have.
    """

    mend: str
    column: str
    published: Any
    mended: Any
    changes: dict[str, Any]
    is_searched: bool = False


CASES = (
    # What passes between two stages, forth and back, is the norm's buffer: 512 rows.
    Case(
        *("R1", "pipeline_comm_seconds"),
        published=2 * (2 * 512 * (TOKENS // 2)) / NETWORK,
        mended=2 * (2 * 512 * (WIDTH // 2)) / NETWORK,
        changes={**SUMMA, "tensor_parallel_2": 2, "num_layers": 2, "pipeline_parallel": 2},
    ),
    # Mean and variance of each row are summed over two GPUs in one domain.
    Case(
        *("R3", "forward_comm_seconds"),
        published=ring_seconds(2 * 2 * TOKENS, 2, NVLINK),
        mended=2 * ring_seconds(2 * 2 * TOKENS, 2, NVLINK),
        changes={**SUMMA, "nvlink_size": 2, "operation": "layer_norm_1"},
    ),
    # 4 does not divide 250 tokens, though it does those of 2, 4 and 8 sequences; of each
    # sequence 2 tokens are lost. Microbatches: 1, 2 of 2; 1, 2, 4 of 4; 2, 4, 8 of 8.
    Case(
        *("R4", "tensor_parallel"),
        published=[1] * 2 + [2] * 3 + [4] * 3,
        mended=[1] * 2 + [2] * 3,
        changes={"seq_len": 250, "num_gpus": 4, "global_batch_size": 8},
        is_searched=True,
    ),
    # The reduce-scatter over 4 leaves a quarter of the rows.
    Case(
        *("R5", "forward_flops"),
        published=TOKENS * WIDTH,
        mended=TOKENS // 4 * WIDTH,
        changes={"tensor_parallel": 4, "operation": "fc2_bias"},
    ),
    # It leaves them in their whole width; all rows in a quarter of it are what is published.
    Case(
        *("R5", "weights_bytes"),
        published=2 * WIDTH // 4,
        mended=2 * WIDTH,
        changes={**CONTEXT, "operation": "projection_bias"},
    ),
    # Matrix units are 8 times as fast as vector units.
    Case(
        *("R6", "forward_flops"),
        published=attention_flops(MATRIX / VECTOR)[0],
        mended=attention_flops(1)[0],
        changes={"operation": "attention"},
    ),
    Case("R6", "flops_per_gpu", step_flops(MATRIX / VECTOR), step_flops(1), {}),
    # Transfers take longer than the product: 5 panels of them as published; mended 4, and the
    # product of one with its launch.
    Case(
        *("R7", "forward_seconds"),
        published=5 * PANEL_SECONDS,
        mended=4 * PANEL_SECONDS + PRODUCT_SECONDS / 4 + LAUNCH,
        changes=IN_PANELS,
    ),
    # With NVLink 100 times as fast the product takes longer: one launch, or one a panel.
    Case(
        *("R7", "forward_seconds"),
        published=PANEL_SECONDS / 100 + PRODUCT_SECONDS + LAUNCH,
        mended=PANEL_SECONDS / 100 + PRODUCT_SECONDS + 4 * LAUNCH,
        changes={**IN_PANELS, "nvlink_bytes_per_second": 100 * NVLINK},
    ),
    # 4 x 2 GPUs have 512 rows of 512 columns each. The 2 that share columns share their scale
    # and shift, the 4 that share rows their two sums.
    Case(
        *("R8", "backward_comm_seconds"),
        published=ring_seconds(2 * 2 * 512 + 2 * 2 * 512, 4, NETWORK),
        mended=ring_seconds(2 * 2 * 512, 2, NETWORK) + ring_seconds(2 * 2 * 512, 4, NETWORK),
        changes={
            **SUMMA,
            "tensor_parallel": 4,
            "tensor_parallel_2": 2,
            "operation": "layer_norm_1",
        },
    ),
    # Powers of two do not multiply to 3. Below 3, two GPUs of one degree share a domain: of
    # tensor x data 1 x 4 one way; of 2 x 2 two ways, two microbatches; of 4 x 1 one way, three.
    Case(
        *("R9", "tensor_parallel"),
        published=[],
        mended=[1] + [2] * 4 + [4] * 3,
        changes={"nvlink_size": 3, "num_gpus": 4, "global_batch_size": 4},
        is_searched=True,
    ),
    # The backward pass runs the softmax again before its gradient, which takes 1 more a score.
    Case(
        *("R10", "backward_compute_seconds"),
        published=(SOFTMAX_FLOPS + SCORES) / VECTOR + LAUNCH,
        mended=(2 * SOFTMAX_FLOPS + SCORES) / VECTOR + 2 * LAUNCH,
        changes={"attention": "unfused_recompute", "operation": "softmax"},
    ),
    # 3 panels are not whole for an axis of 2; more than 12 have less than 512 of 6144 columns.
    Case(
        *("R11", "summa_panels"),
        published=[3, 6, 12],
        mended=[6, 12],
        changes={
            **SUMMA,
            "tensor_parallel_2": 3,
            "num_gpus": 6,
            "seq_len": 768,
            **dict.fromkeys(("hidden_size", "ffn_hidden_size"), 6144),
        },
        is_searched=True,
    ),
)

ELSEWHERE = {
    "R2": "test_roofline_properties.test_slow_links_between_stages_cost_what_the_mend_says",
    "P1": "test_pipeline.test_p1_counts_bytes_where_elements_were_counted",
    "P2": "test_pipeline.test_p2_counts_both_sides_of_a_hop_in_the_bubble",
    "P3": "test_pipeline.test_p3_takes_twenty_tokens_for_each_active_parameter",
    "P4": "test_pipeline.test_p4_refuses_a_data_set_below_one_batch",
}
"""Mend -> the test that sets its two figures side by side."""


def found(case: Case, catalog: Catalog, mends: Mends) -> Any:
    """Return the column of a case: a figure, or what a search finds, ascending."""
    row = {**ROW, **case.changes}
    if not case.is_searched:
        relation = RELATION_OPERATION if "operation" in row else RELATION
        return evaluated(ROOFLINE, relation, pl.DataFrame([row]), catalog, mends)[case.column][0]
    try:
        [cell] = cells_of({name: [value] for name, value in row.items()}, catalog, mends)
    except RefusedError:  # no layout at all
        return []
    return evaluate_cell(cell)[case.column].sort().to_list()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.mend}-{case.column}")
def test_a_mend_turns_the_published_figure_into_the_mended_one(
    case: Case, catalog: Catalog
) -> None:
    assert found(case, catalog, PUBLISHED) == pytest.approx(case.published, rel=1e-12)
    assert found(case, catalog, frozenset({case.mend})) == pytest.approx(case.mended, rel=1e-12)
    assert case.published != pytest.approx(case.mended, rel=1e-3)


def mended_errata() -> dict[str, set[str]]:
    """Return estimator -> errata that the table says are mended."""
    table = read_table(resources.reference_directory() / "erratum.csv")
    names = [column.name for column in table.columns]
    errata: dict[str, set[str]] = {}
    for row in table.rows:
        record = dict(zip(names, row, strict=True))
        if record["is_mended"]:
            errata.setdefault(record["estimator"], set()).add(record["erratum"])
    return errata


def test_the_table_has_exactly_the_mends_of_the_estimators() -> None:
    known = {name: ids for name, ids in mended_errata().items() if name in ESTIMATORS}
    assert known == {each.name: set(each.mends) for each in all_estimators() if each.mends}


@pytest.mark.parametrize("estimator", mended_errata())
def test_every_mended_erratum_has_both_figures_in_a_test(estimator: str) -> None:
    shown = {case.mend for case in CASES} | set(ELSEWHERE)
    assert shown <= set().union(*mended_errata().values())
    if estimator == "cluster":
        shown = set(import_module("tests.estimators.test_cluster_errata").CLUSTER)
    assert not mended_errata()[estimator] - shown


@pytest.mark.parametrize("place", ELSEWHERE.values())
def test_tests_at_another_place_exist(place: str) -> None:
    module, _, name = place.partition(".")
    assert callable(getattr(import_module(f"tests.estimators.{module}"), name))
