"""Where layers are placed, by the options of Megatron-Core and by the tables that were run."""

from __future__ import annotations

import pytest

from estimators.training_step.in_flight import held_of, ranks_of, replayed
from estimators.training_step.placement import (
    Case,
    UnplaceableError,
    fault,
    parsed,
    place,
    written_out,
)

DEEPSEEK = Case(61, 3, 1, 1, 8, 4, is_mixture=True)
"""DeepSeek-V3: 3 dense layers, 58 with experts, one that predicts a second token."""


def sizes(case: Case) -> list[int]:
    """Return the layers of each stage, those that predict further tokens apart."""
    return [int(each) for each in place(case).layers[:2].sum(axis=0).ravel()]


def test_even_stages_are_even() -> None:
    assert sizes(Case(80, 0, 1, 0, 4, 5)) == [4] * 20
    assert place(Case(80, 0, 1, 0, 4, 5)).of_rank[0].tolist() == [20] * 4


@pytest.mark.parametrize(
    ("layers", "ranks", "chunks", "inner", "ends"),
    [(94, 8, 4, 3, 2), (94, 8, 3, 4, 3), (126, 16, 8, 1, 0), (126, 16, 4, 2, 1), (126, 8, 8, 2, 1)],
)
def test_embedding_and_loss_take_the_place_of_a_layer_each(
    layers: int, ranks: int, chunks: int, inner: int, ends: int
) -> None:
    # Qwen3 235B and Llama 3 405B in Megatron-Bridge @067f987d
    stages = [ends, *[inner] * (ranks * chunks - 2), ends]
    said = Case(layers, 0, 1, 0, ranks, chunks, counts_embedding=True, counts_loss=True)
    assert sizes(said) == stages
    assert sizes(said._replace(counts_embedding=False, counts_loss=False)) == stages


@pytest.mark.parametrize(
    ("ranks", "chunks", "stages"),
    [
        *((p, v, [4] * 15 + [1]) for p, v in ((16, 1), (8, 2), (4, 4))),
        *((p, v, [8] * 7 + [5]) for p, v in ((8, 1), (4, 2))),
        (4, 1, [16, 16, 16, 13]),
        (8, 4, [1] + [2] * 30 + [0]),
    ],
)
def test_deepseek_is_placed_as_in_the_tables_of_its_recipe(
    ranks: int, chunks: int, stages: list[int]
) -> None:
    # Megatron-Bridge @067f987d perf_recipes/deepseek/h100/deepseek_v3.py; Kimi K2 has no MTP
    for mtp in (1, 0):
        case = DEEPSEEK._replace(mtp_layers=mtp, ranks=ranks, chunks=chunks)
        if mtp and (ranks, chunks) != (8, 4):
            # embedding and loss count where they can: 61 + 2 are no multiple of 16, 8 or 4
            assert sizes(case) == stages
        assert place(case).layers[2].ravel().tolist() == [0] * (ranks * chunks - 1) + [mtp]
        assert sizes(case) == stages


def test_dense_layers_are_on_their_stages() -> None:
    dense, mixture, mtp = place(DEEPSEEK).of_rank
    assert dense.tolist() == [1, 2, 0, 0, 0, 0, 0, 0]
    assert mixture.tolist() == [6, 6, 8, 8, 8, 8, 8, 6]
    assert mtp.tolist() == [0, 0, 0, 0, 0, 0, 0, 1]
    every_second = Case(48, 24, 2, 0, 4, 2, is_mixture=True)
    assert place(every_second).of_rank[:2].tolist() == [[6] * 4, [6] * 4]


def test_embedding_and_loss_count_as_a_layer_each_where_that_makes_stages_even() -> None:
    assert sizes(Case(126, 0, 1, 0, 16, 1)) == [7] + [8] * 14 + [7]
    assert sizes(Case(46, 0, 1, 0, 4, 1)) == [11, 12, 12, 11]


def test_a_dense_model_without_chunks_has_its_odd_layers_first() -> None:
    assert sizes(Case(125, 0, 1, 0, 16, 1)) == [8] * 13 + [7] * 3


@pytest.mark.parametrize(("ranks", "chunks"), [(2, 8), (4, 4), (8, 2), (16, 1)])
def test_uneven_ranks_may_have_chunks_that_do_not_divide_them(ranks: int, chunks: int) -> None:
    # 16 stages of DeepSeek-V3, as Megatron-Bridge has them: the last has the rest
    assert sizes(Case(61, 3, 1, 1, ranks, chunks, is_mixture=True)) == [4] * 15 + [1]


def test_ends_have_their_own_number_of_layers() -> None:
    assert sizes(Case(16, 0, 1, 0, 4, 1, first=3, last=1)) == [3, 6, 6, 1]
    assert sizes(Case(20, 0, 1, 0, 4, 2, last=2)) == [3, 3, 3, 1] * 2
    assert "other ranks" in fault(Case(16, 0, 1, 0, 4, 1, first=3))
    assert "does not divide" in fault(Case(16, 0, 1, 0, 4, 2, first=3))
    assert "other ranks" in fault(Case(4, 0, 1, 0, 2, 1, first=1, last=1))


def test_a_text_places_layers() -> None:
    case = DEEPSEEK._replace(layout="Et|(tt|)*30mL")
    assert place(case).layers.tolist() == place(DEEPSEEK).layers.tolist()
    assert written_out("E t|(t*2,|)*2 L") == ("Et", "tt", "tt", "L")
    # layers that predict further tokens on a rank before the last
    stages = parsed("Ett|tt|tt|m|L", 5)
    assert (stages.layers, stages.mtp_stage, stages.num_mtp) == ((2, 2, 2, 0, 0), 3, 1)


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("Et|(tt|)*29mL", "31 stages"),
        ("Et|(tt|)*30t", "not one L"),
        ("t|(tt|)*30mL", "not one E"),
        ("Ett|(tt|)*30mL", "has 62 layers, not 61"),
        ("Et|(tt|)*30L", "has 0 m"),
        ("Etx|(tt|)*30mL", "'x'"),
        ("Et|(tt|)*14mtt|(tt|)*15L", "before a t"),
        ("(t*99999|)*999", "letters"),
    ],
)
def test_a_text_that_does_not_fit_is_refused_with_the_reason(layout: str, words: str) -> None:
    assert words in fault(DEEPSEEK._replace(layout=layout))


def test_two_ways_at_once_are_refused() -> None:
    assert "another way" in fault(DEEPSEEK._replace(layout="Et|(tt|)*30mL", first=4))


def test_what_no_recipe_places_is_refused() -> None:
    with pytest.raises(UnplaceableError, match="11 layers short"):
        place(Case(61, 3, 1, 1, 12, 2, is_mixture=True))
    assert "does not divide" in fault(Case(80, 0, 1, 0, 4, 3))


def test_a_program_balances_stages_by_products() -> None:
    # thresholds of (16 + 4)/4 = 5 layers each: a stage goes on until it exceeds its own
    assert sizes(Case(16, 0, 1, 0, 4, 1, output_layers=4.0)) == [6, 5, 5, 0]
    halves = Case(16, 0, 1, 0, 2, 2, output_layers=4.0)
    assert sizes(halves) == [6, 5, 5, 0]
    assert place(halves).of_rank[0].tolist() == [11, 5]


@pytest.mark.parametrize(
    ("case", "layers"),
    [
        # layers in flight of every rank, simulated: specification of pipelines as they are run
        (DEEPSEEK, [63, 74, 70, 66, 62, 58, 54, 50]),
        (DEEPSEEK._replace(ranks=4), [76, 68, 60, 52]),
        (Case(94, 0, 1, 0, 8, 4, is_mixture=True), [102, 111, 105, 99, 93, 87, 81, 75]),
        (Case(64, 0, 1, 0, 8, 4), [78, 74, 70, 66, 62, 58, 54, 50]),
    ],
)
def test_layers_in_flight_are_those_of_the_replay(case: Case, layers: list[int]) -> None:
    own = place(case).layers.sum(axis=0)
    every = [
        int((replayed(rank, case, 64, case.ranks) @ own[:, rank]).max())
        for rank in range(case.ranks)
    ]
    assert every == layers
    held = held_of(case, 64, case.ranks)
    number = ranks_of(case).number
    assert held.layers.sum(axis=0).max() == max(layers)
    assert [layers[rank] for rank in number[:2]] == held.layers.sum(axis=0)[:2].tolist()


def test_the_rank_with_most_in_flight_need_not_be_the_first() -> None:
    case = Case(126, 0, 1, 0, 16, 8)
    held = held_of(case, 64, 16)
    assert ranks_of(case).number.tolist() == [0, 1, 15, 15]
    assert held.layers[0].tolist() == [112, 141, 113, 112]
    # the last rank's output is there while its logits are
    assert held.outputs.tolist() == [0, 0, 0, 1]


def test_dense_layers_in_flight_are_apart() -> None:
    held = held_of(DEEPSEEK, 64, 8)
    # 15 of chunk 0, a dense layer each, and 8 of each other chunk, two layers with experts each
    assert held.layers[:, 0].tolist() == [15, 48, 0]
    assert held.chunks[0] == 39


def test_few_microbatches_are_all_in_flight() -> None:
    case = Case(64, 0, 1, 0, 8, 4)
    assert held_of(case, 8, 8).layers[0, 0] == 64 / 8 * 8
    # without chunks a rank keeps as many microbatches as ranks follow it, and its own
    plain = Case(64, 0, 1, 0, 8, 1)
    assert held_of(plain, 64, 8).layers[0].tolist() == [64, 56, 8]
    assert held_of(plain, 3, 3).layers[0].tolist() == [24, 24, 8]


def test_a_larger_group_keeps_more() -> None:
    case = Case(64, 0, 1, 0, 8, 4)
    # 14 + 3 x 12 passes and one more, of two layers each
    assert held_of(case, 64, 12).layers[0, 0] == 2 * (14 + 36 + 1)
    # a hidden exchange of experts needs one pass more
    assert held_of(case, 64, 8, 1).layers[0, 0] == 2 * (14 + 24 + 2)


def test_every_candidate_is_the_fullest_of_its_run() -> None:
    for case in (DEEPSEEK, DEEPSEEK._replace(ranks=4), Case(126, 0, 1, 0, 16, 4)):
        own, candidates = place(case).layers.sum(axis=0), ranks_of(case).number.tolist()
        held = held_of(case, 48, case.ranks).layers.sum(axis=0)
        for rank in range(case.ranks):
            most = (replayed(rank, case, 48, case.ranks) @ own[:, rank]).max()
            assert most <= max(held[n] for n, first in enumerate(candidates) if first <= rank)
