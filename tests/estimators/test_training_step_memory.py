"""Memory of a training step, against the equations of arXiv 2205.05198 and arXiv 1910.02054.

Activations of one microbatch are had as the difference of one microbatch under way and of none: a
pipeline of one stage holds the activations of its layers, and the hidden states that enter it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators.training_step.memory import RankBytes, peak_of
from tests.estimators.training_step_cases import (
    GPT,
    IDEAL,
    LLAMA,
    LLAMA_LAYER,
    MEMORY,
    MOE,
    evaluate,
    step,
    steps,
)

LAYERS, S, H, A = 8, 1024, 512, 4
B = 3
"""Sequences of a microbatch."""

SBH = S * B * H
SCORES = A * S**2 * B
"""a s^2 b: entries of the scores of all heads."""

UNFUSED = {
    **GPT,
    "num_layers": LAYERS,
    "vocab_size": 512,
    "microbatch_size": B,
    "attention": "unfused",
    "uses_dropout": True,
}


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-12)


def layer_bytes(**changes: Any) -> float:
    """Return the bytes that one layer more keeps of a microbatch."""
    few, many = steps(
        *({**UNFUSED, **changes, "num_layers": layers} for layers in (LAYERS, LAYERS + 1))
    )
    return float(many["activations_bytes"] - few["activations_bytes"])


# ---- one layer ----


def test_a_layer_keeps_what_equation_1_says() -> None:
    # s b h (34 + 5 a s / h).
    assert layer_bytes() == close(34 * SBH + 5 * SCORES)


@pytest.mark.parametrize("t", [2, 4])
def test_tensor_parallelism_leaves_what_equation_2_says(t: int) -> None:
    # s b h (10 + 24/t + 5 a s / h t).
    assert layer_bytes(tensor_parallel=t) == close(10 * SBH + (24 * SBH + 5 * SCORES) / t)


@pytest.mark.parametrize("t", [2, 4])
def test_sequence_parallelism_splits_it_all_as_equation_4_says(t: int) -> None:
    # s b h / t (34 + 5 a s / h).
    found = layer_bytes(tensor_parallel=t, uses_sequence_parallel=True)
    assert found == close((34 * SBH + 5 * SCORES) / t)


@pytest.mark.parametrize("t", [1, 4])
def test_selective_recomputation_keeps_no_scores(t: int) -> None:
    # Table 2: s b h (10 + 24/t), and 34 s b h / t with sequence parallelism (equation 6).
    selective = {"activation_recompute": "selective", "tensor_parallel": t}
    assert layer_bytes(**selective) == close(SBH * (10 + 24 / t))
    if t > 1:
        found = layer_bytes(**selective, uses_sequence_parallel=True)
        assert found == close(34 * SBH / t)


@pytest.mark.parametrize("t", [1, 2])
def test_recomputation_by_operation_keeps_attention_and_every_second_product(t: int) -> None:
    operations = {"activation_recompute": "selective", "recomputes_operations": True}
    shape = {**LLAMA, "vocab_size": 512, "microbatch_size": B, "attention": "flash"}
    found = layer_bytes(**shape, **operations, tensor_parallel=t)
    # 2 bytes of queries and attention's result (512 each), values (256), the first product (1024),
    # split over t; the last (512); the input, and where t > 1 both sums; 4 of a statistic a head
    inside = (2 * 512 + 256 + 1024) / t
    sums = 512 if t == 1 else 3 * 512
    assert found == close(S * B * (2 * (inside + 512 + sums) + 4 * A / t))


@pytest.mark.parametrize("t", [1, 4])
def test_full_recomputation_keeps_the_input_of_a_layer(t: int) -> None:
    # Table 2: 2 s b h.
    full = {"activation_recompute": "full", "tensor_parallel": t}
    assert layer_bytes(**full) == close(2 * SBH)
    if t > 1:
        assert layer_bytes(**full, uses_sequence_parallel=True) == close(2 * SBH / t)


def test_full_recomputation_keeps_one_whole_layer_while_it_is_at_work() -> None:
    found = step(UNFUSED, activation_recompute="full")
    # Inputs of eight layers, and one layer of equation 1; before them a mask of the embedding's
    # dropout and behind them what the last norm and the output layer read, s b h and 4 s b h
    # (section 4.3).
    layers = 2 * SBH * LAYERS + 34 * SBH + 5 * SCORES
    # Gradients of the layer at work: of the activation's result and input, 2 x 4 h each, and four
    # of the residual stream.
    gradients = (2 * 8 + 8) * SBH
    assert found["activations_bytes"] == close(layers + 5 * SBH + gradients)


def test_gradients_of_a_layer_at_work_take_the_place_of_the_logits() -> None:
    # Of a gated layer of 2h: the product's 2 x 2 h, both halves' 4 x 2 h, four of the stream.
    shape = {**LLAMA, "num_layers": 5, "vocab_size": 512, "microbatch_size": B}
    rows = [{**shape, "stored_logit_bytes": logit} for logit in (0.0, 6.0, 96.0)]
    none, some, many = steps(*rows)
    gradients = (4 + 8 + 8) * SBH
    layers = 5 * (26 * SBH + 4 * A * S * B) + 4 * SBH
    assert none["activations_bytes"] == close(layers + gradients)
    assert some["activations_bytes"] == close(layers + gradients - 6 * S * B * 512)
    assert many["activations_bytes"] == close(layers)


@pytest.mark.parametrize("splits", [False, True])
def test_gradients_between_exchanges_are_whole(splits: bool) -> None:
    # Inside a layer a half; of the residual stream two are of all tokens, two of a rank's own.
    shape = {**LLAMA, "vocab_size": 512, "microbatch_size": B, "tensor_parallel": 2}
    few, many = steps(
        *({**shape, "uses_sequence_parallel": splits, "num_layers": n} for n in (4, 5))
    )
    rows = 1 / 2 if splits else 1
    layers = 5 * (many["activations_bytes"] - few["activations_bytes"]) + 4 * SBH * rows
    gradients = (12 / 2 + 4 + 4 * rows) * SBH
    assert many["activations_bytes"] == close(layers + gradients)


def test_without_dropout_there_are_no_masks() -> None:
    # Of 34: a mask of a byte after either block; of 5 a s^2 b: the mask and its result, 3.
    assert layer_bytes(uses_dropout=False) == close(32 * SBH + 2 * SCORES)


def test_fused_attention_keeps_a_statistic_a_row_and_not_a_score() -> None:
    # 34 s b h without masks, and the log-sum-exp of every head's row in 32 bits
    # (arXiv 2307.08691 section 3.1.2).
    found = layer_bytes(attention="flash", uses_dropout=False)
    assert found == close(32 * SBH + 4 * A * S * B)
    # Nothing is left to do again for selective recomputation.
    again = layer_bytes(attention="flash", uses_dropout=False, activation_recompute="selective")
    assert again == found


def test_a_gated_layer_keeps_its_halves_and_their_product() -> None:
    shape = {**LLAMA, "vocab_size": 512, "microbatch_size": B}
    few, many, more = steps(
        shape,
        {**shape, "num_layers": 5},
        {**shape, "num_layers": 5, "stored_norm_bytes": 8.0, "stored_gate_bytes": 8.0},
    )
    # Inputs of two norms and of two blocks 8, queries 2 and keys and values 2 x 2 of half the
    # width, the core's result 2: 14 s b h. Two halves and their product of 2h: 6 x 2. Statistics.
    found = many["activations_bytes"] - few["activations_bytes"]
    assert found == close((8 + 2 + 2 + 2 + 12) * SBH + 4 * A * S * B)
    # Written out, the gate's activation is kept as well, 2 x 2 s b h of each of five layers, and
    # the inputs of two norms in 32 bits, 2 x 4.
    assert more["activations_bytes"] - many["activations_bytes"] == close(5 * (4 + 8) * SBH)


def test_context_parallelism_divides_all_of_it() -> None:
    flash = {"attention": "flash", "uses_dropout": False}
    assert layer_bytes(**flash, context_parallel=4) == close(layer_bytes(**flash) / 4)


def test_experts_keep_the_copies_that_they_get() -> None:
    shape = {**MOE, "vocab_size": 512, "microbatch_size": B}
    few, many = steps(shape, {**shape, "num_layers": 5})
    # As of a gated layer without its feed-forward part: 14 s b h; every token's two copies in two
    # experts of h/2: 6 x 2 x 1/2; the copies as they come: 2 x 2; a probability of each in 32 bits;
    # logits and scores of 8 experts in 32 bits, and a byte of their map.
    found = many["activations_bytes"] - few["activations_bytes"]
    each = 4 * A + 2 * 4 + 9 * 8
    assert found == close((14 + 6 + 4) * SBH + each * S * B)
    # Probabilities applied to the experts' results: these are kept as well.
    late = {**shape, "stored_routed_bytes": 4.0}
    few, many = steps(late, {**late, "num_layers": 5})
    found = many["activations_bytes"] - few["activations_bytes"]
    assert found == close((14 + 6 + 8) * SBH + each * S * B)
    # Spread over four ranks, an expert gets the tokens of all: as much on each of them.
    spread = {"data_parallel": 4, "num_microbatches": 1}
    one, four = steps({**shape, **spread}, {**shape, **spread, "expert_parallel": 4})
    assert four["activations_bytes"] == close(one["activations_bytes"])


# ---- microbatches under way ----


def in_flight(**changes: Any) -> float:
    """Return how many microbatches' worth of its layers the first stage holds."""
    shape = {**UNFUSED, "microbatch_size": 1, **changes}
    alone = {"num_microbatches": 1, "virtual_pipeline": 1}
    rows = [{**shape, "num_layers": n, **own} for n in (96, 192) for own in (alone, {})]
    one, few, two, many = (found["activations_bytes"] for found in steps(*rows))
    return float((many - few) / (two - one))


@pytest.mark.parametrize(("p", "m", "held"), [(1, 5, 1), (4, 3, 3), (4, 4, 4), (4, 64, 4)])
def test_the_first_stage_holds_a_microbatch_for_each_stage(p: int, m: int, held: int) -> None:
    # Equation 5 stands for L layers in all: p microbatches of L/p layers; no more than there are.
    assert in_flight(pipeline_parallel=p, num_microbatches=m) == close(held)


@pytest.mark.parametrize(("p", "v", "m"), [(4, 2, 8), (8, 3, 64), (2, 12, 4), (4, 2, 4), (8, 2, 8)])
def test_interleaving_holds_more(p: int, v: int, m: int) -> None:
    # L (1 + (p - 1)/(p v)) layers' worth (arXiv 2205.05198 section 4.2.3), that is p + (p - 1)/v
    # of the stage's L/p; no more microbatches than there are.
    found = in_flight(pipeline_parallel=p, virtual_pipeline=v, num_microbatches=m)
    assert found == close(min(p * (1 + (p - 1) / (p * v)), m))


def test_uneven_stages_are_those_that_have_a_layer_more() -> None:
    # 9 layers on 4 stages: the first has three, as of 12 layers.
    rows = [{**UNFUSED, "num_layers": n, "pipeline_parallel": 4} for n in (9, 12)]
    nine, twelve = steps(*({**row, "num_microbatches": 8} for row in rows))
    for name in ("activations_bytes", "weights_bytes"):
        assert nine[name] == twelve[name]


# ---- weights, gradients, optimizer ----

PARAMETERS = 4 * LLAMA_LAYER + 2 * 512 * 512
STATES = {**LLAMA, "vocab_size": 512, "num_microbatches": 1}


@pytest.mark.parametrize(
    ("gradient", "per_parameter"),
    # Mixed precision: 2 + 2 + 12 = 16 bytes (arXiv 1910.02054 section 3.1), 18 with gradients
    # in 32 bits. Of eight replicas: 2 + 2 + 12/8, 2 + (2 + 12)/8, 16/8 (figure 1).
    [
        (2.0, (16, 4 + 12 / 8, 2 + 14 / 8, 16 / 8)),
        (4.0, (18, 6 + 12 / 8, 2 + 16 / 8, 18 / 8)),
    ],
)
def test_zero_divides_what_its_stage_says(gradient: float, per_parameter: tuple[float]) -> None:
    rows = [
        {**STATES, "data_parallel": 8, "zero_stage": zero, "stored_gradient_bytes": gradient}
        for zero in range(4)
    ]
    for found, expected in zip(steps(*rows), per_parameter, strict=True):
        kept = found["weights_bytes"] + found["gradients_bytes"] + found["optimizer_bytes"]
        assert kept == close(expected * PARAMETERS)


def test_tensors_and_stages_divide_parameters() -> None:
    found = step(STATES, tensor_parallel=2, pipeline_parallel=2)
    # The first stage has two layers and the embedding, as the last one has the output layer.
    # Each rank has both norms of a layer whole.
    norms = 2 * 512
    kept = 2 * ((LLAMA_LAYER - norms) / 2 + norms) + 512 * 512 / 2
    assert found["weights_bytes"] == close(2 * kept)
    assert found["optimizer_bytes"] == close(12 * kept)


def test_a_shared_embedding_is_kept_once_on_one_stage_and_twice_on_two() -> None:
    layer = 12 * 512**2 + 13 * 512
    rows = [{**GPT, "vocab_size": 512, "pipeline_parallel": p} for p in (1, 2)]
    one, two = steps(*rows)
    assert one["weights_bytes"] == close(2 * (4 * layer + 512 * 512))
    assert two["weights_bytes"] == close(2 * (2 * layer + 512 * 512))


def test_experts_are_sharded_over_their_own_replicas() -> None:
    # Eight replicas, experts spread over four of them: the dense weights have eight replicas,
    # experts two. Whatever the spread, an eighth of all is on each GPU once it is sharded.
    shape = {**MOE, "vocab_size": 512, "data_parallel": 8, "num_microbatches": 1}
    dense = 4 * (786_432 + 1024 + 4096) + 2 * 512 * 512
    experts = 4 * 8 * 393_216
    for spread in (1, 4, 8):
        rows = [{**shape, "expert_parallel": spread, "zero_stage": zero} for zero in range(4)]
        found = steps(*rows)
        whole, shard = dense + experts / spread, (dense + experts) / 8
        for zero, each in enumerate(found):
            for part, size, sharded_from in (
                ("weights", 2, 3),
                ("gradients", 2, 2),
                ("optimizer", 12, 1),
            ):
                kept = shard if zero >= sharded_from else whole
                assert each[f"{part}_bytes"] == close(size * kept), (spread, zero, part)


def test_context_parallel_ranks_shard_too() -> None:
    found = step(STATES, data_parallel=2, context_parallel=4, zero_stage=3)
    assert found["weights_bytes"] == close(2 * PARAMETERS / 8)


def test_full_sharding_gathers_two_layers_weights_and_one_layers_gradients() -> None:
    # The layer at work and the next one, prefetched, in 16 bits; its gradients until they are
    # scattered, in 32.
    rows = [
        {**STATES, "data_parallel": 4, "zero_stage": zero, "reduced_gradient_bytes": 4.0}
        for zero in (2, 3)
    ]
    sharded, gathered = steps(*rows)
    assert sharded["gathered_bytes"] == 0
    assert gathered["gathered_bytes"] == close((2 * 2 + 4) * LLAMA_LAYER)
    # A large vocabulary is a unit of its own: 16,384 x 512 weights and gradients.
    [wide] = steps({**rows[1], "vocab_size": 16_384})
    assert wide["gathered_bytes"] == close((2 + 4) * 16_384 * 512)


def test_full_sharding_gathers_copies_of_key_heads() -> None:
    # two key heads of 64 over four tensor ranks: each rank has a whole head, twice its share
    row = {**STATES, "num_kv_heads": 2, "tensor_parallel": 4, "uses_sequence_parallel": False}
    row |= {"data_parallel": 4, "zero_stage": 3, "reduced_gradient_bytes": 2.0}
    plain, copied = steps({**row, "num_kv_heads": 4}, row)
    width, head = STATES["hidden_size"], STATES["hidden_size"] // STATES["num_heads"]
    # four key heads have a head of keys and one of values on each rank; two have the same
    assert copied["gathered_bytes"] == close(plain["gathered_bytes"])
    # weights of two layers in 16 bits, gradients of one: queries and result, keys and values of a
    # head, three matrices of the feed-forward layer; norms whole
    layer = 2 * width * width / 4 + 2 * width * head + 3 * width * STATES["ffn_hidden_size"] / 4
    assert copied["gathered_bytes"] == close((2 * 2 + 2) * (layer + 2 * width))


def test_a_pipeline_of_kept_weights_holds_those_of_its_stage() -> None:
    # The first of two stages: two layers and the embedding, weights in 16 bits and gradients in 32
    # until the last microbatch. Alone a stage holds two layers' weights and one's gradients.
    keeps = {**STATES, "data_parallel": 4, "zero_stage": 3, "keeps_gathered_weights": True}
    keeps |= {"reduced_gradient_bytes": 4.0, "vocab_size": 512}
    alone, split = steps(keeps, {**keeps, "pipeline_parallel": 2, "num_microbatches": 2})
    assert alone["gathered_bytes"] == close((2 * 2 + 4) * LLAMA_LAYER)
    assert split["gathered_bytes"] == close((2 + 4) * (2 * LLAMA_LAYER + 512 * 512))


def test_one_replica_has_nothing_to_gather() -> None:
    assert step(STATES, zero_stage=3)["gathered_bytes"] == 0


def test_weights_kept_only_as_shards_in_32_bits_have_a_copy_until_they_are_gathered() -> None:
    # FSDP keeps no weights except the optimizer's own (0 bytes); unsharded it needs 2 to compute.
    rows = [
        {**STATES, "data_parallel": 4, "zero_stage": zero, "stored_weight_bytes": 0.0}
        for zero in range(4)
    ]
    found = [each["weights_bytes"] for each in steps(*rows)]
    assert found == [2 * PARAMETERS] * 3 + [0]


# ---- which stage decides ----


def test_logits_can_make_the_last_stage_the_one_that_decides() -> None:
    # Two stages of two layers; the first has two microbatches under way, the last has one and
    # its logits.
    shape = {**LLAMA, "pipeline_parallel": 2, "num_microbatches": 8, "microbatch_size": B}
    few, many = steps(
        {**shape, "vocab_size": 512, "stored_logit_bytes": 4.0},
        {**shape, "vocab_size": 65_536, "stored_logit_bytes": 4.0},
    )
    layer = 26 * SBH + 4 * A * S * B
    assert few["logits_bytes"] == 0
    # Gradients of the layer at work, as above.
    assert few["activations_bytes"] == close(2 * 2 * layer + (4 + 8 + 8) * SBH)
    # Inputs of the last norm and of the output layer.
    assert many["logits_bytes"] == close(4 * S * B * 65_536)
    assert many["activations_bytes"] == close(2 * layer + 4 * SBH)
    # Its parameters are its own: two layers and the output layer.
    assert many["weights_bytes"] == close(2 * (2 * LLAMA_LAYER + 65_536 * 512))


def test_one_stage_has_activations_and_logits_together() -> None:
    found = step(STATES, microbatch_size=B, stored_logit_bytes=6.0, tensor_parallel=2)
    assert found["logits_bytes"] == close(6 * S * B * 512 / 2)
    assert found["activations_bytes"] > 0


def test_the_stage_that_decides_has_the_larger_sum() -> None:
    # Over a range of vocabularies memory never falls, and changes stages once.
    vocabularies = [2**n for n in range(8, 19)]
    shape = {**LLAMA, "pipeline_parallel": 2, "num_microbatches": 8, "microbatch_size": B}
    rows = [{**IDEAL, **shape, "stored_logit_bytes": 4.0, "vocab_size": v} for v in vocabularies]
    found = evaluate(rows)
    assert np.all(np.diff(found["memory_bytes"]) > 0)
    is_last = found["logits_bytes"] > 0
    assert not is_last[0]
    assert is_last[-1]
    assert np.all(np.diff(is_last.astype(int)) >= 0)


# ---- the sum ----


def test_memory_is_the_sum_of_its_parts_and_the_frameworks() -> None:
    found = step(STATES, data_parallel=2, zero_stage=3, framework_bytes=3e9)
    assert found["memory_bytes"] == close(sum(found[name] for name in MEMORY) + 3e9)


def test_memory_fits_up_to_the_last_byte() -> None:
    needed = step(STATES)["memory_bytes"]
    assert step(STATES, hbm_bytes=needed)["fits_memory"]
    assert not step(STATES, hbm_bytes=needed - 1)["fits_memory"]


def test_the_fullest_rank_is_the_one_whose_allocator_holds_most() -> None:
    # the first rank uses 9 bytes; the last one 8, and 2 are holes that its logits leave
    ranks = [RankBytes(4.0, 0.0, 0.0), RankBytes(1.0, 2.0, 2.0)]
    place, memory = peak_of([5.0, 5.0], ranks, 1.5)
    assert place == 1
    # 1.5 x 10 bytes are held, 8 of them are in use
    assert memory["unused_bytes"] == 7
    assert (memory["activations_bytes"], memory["logits_bytes"]) == (1, 2)
