"""What `explain` says that a part is made of is what it is made of.

The arithmetic at the head of each text is evaluated unchanged, with figures for its words
worked out by hand for one layout, and compared with the part that the estimator gives.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from estimators.training_step.formulas import FORMULAS
from estimators.training_step.step import TIMES
from tests.estimators.training_step_cases import GPT, LLAMA, LLAMA_LAYER, MOE, step

Figures = Mapping[str, float]

_SUM = re.compile(r"sum over matmuls of \[([^\]]*)\]")
_TOKEN = re.compile(r"\d[\d.]*|[A-Za-z_]\w*|[-+*/(),]")
_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def value(text: str, figures: Figures, products: Sequence[Figures] = ()) -> float:
    """Evaluate a text: `x` is times, as is nothing between two operands; `[...]` is summed."""
    found = _SUM.search(text)
    if found is not None:
        summed = sum(value(found[1], {**figures, **one}) for one in products)
        figures, text = {**figures, "summed": summed}, _SUM.sub("summed", text)
    words = _TOKEN.findall(text)
    assert "".join(words) == text.replace(" ", ""), "a sign that is no arithmetic"
    python = ""
    for before, word in zip(["", *words], words, strict=False):
        is_operand = re.match(r"[\w(]", word) and word != "x"
        follows = re.fullmatch(r"[\w.]+|\)", before) and before not in ("max", "x")
        python += "*" if word == "x" or (is_operand and follows) else ""
        python += "" if word == "x" else word
    return _of(ast.parse(python, mode="eval").body, figures)


def _of(node: ast.expr, figures: Figures) -> float:
    match node:
        case ast.Constant(value=float() | int() as number):
            return float(number)
        case ast.Name(id=name):
            return figures[name]
        case ast.BinOp(left=left, op=sign, right=right):
            return _OPERATIONS[type(sign)](_of(left, figures), _of(right, figures))
        case ast.Call(func=ast.Name(id="max"), args=[first, second]):
            return max(_of(first, figures), _of(second, figures))
    raise AssertionError(ast.dump(node))


def test_texts_are_read_as_people_read_them() -> None:
    figures = {"T": 3.0, "h": 5.0, "t": 2.0}
    assert value("2 T h / t", figures) == 15
    assert value("2 (t - 1) / t x T", figures) == 3
    assert value("max(T, 4 h) - (1 + t)", figures) == 17
    products: list[Figures] = [{"M": 1.0}, {"M": 10.0}]
    assert value("T x (sum over matmuls of [2 M + h] + t)", figures, products) == 3 * (7 + 25 + 2)
    with pytest.raises(KeyError, match="unknown"):
        value("T x unknown", figures)
    with pytest.raises(AssertionError, match="no arithmetic"):
        value("T = h", figures)


# A machine of one multiprocessor (waves are always full) and products whose sides are multiples
# of every tile. A tensor-parallel pair of four GPUs, one layer in two heads each of width 128.

LAYERS, TOKENS, HIDDEN, FFN, VOCABULARY, MICROBATCHES = 4, 1024, 512, 2048, 512, 3

MACHINE: dict[str, Any] = {
    "num_sms": 1,
    "hbm_bytes_per_second": 1e10,
    "hbm_efficiency": 0.8,
    "gemm_efficiency": 0.5,
    "gemm_half_depth": 64.0,
    "launch_seconds": 1e-5,
    "flash_forward_efficiency": 0.5,
    "flash_backward_efficiency": 0.25,
    "nvlink_bytes_per_second": 2e10,
    "nvlink_efficiency": 0.5,
    "alltoall_efficiency": 0.5,
    "nvlink_latency_seconds": 1e-6,
    "collective_seconds": 1e-5,
    "communication_sm_fraction": 0.25,
    "overlap_slowdown": 1.6,
    "tensor_overlap_fraction": 0.5,
    "context_overlap_fraction": 0.5,
    "expert_overlap_fraction": 0.5,
    "pipeline_overlap_fraction": 0.25,
    "pipeline_hop_seconds": 1e-4,
    "gradient_overlap_fraction": 0.5,
    "parameter_overlap_fraction": 0.25,
    "embedding_gradient_bytes": 12.0,
    "loss_traffic_bytes": 28.0,
    "optimizer_traffic_bytes": 40.0,
    "buffer_traffic_bytes": 8.0,
    "accumulation_traffic_bytes": 6.0,
}
SLOW_KERNELS = {
    "unvectorized_seconds": 2e-9,
    "unvectorized_copy_forward": 1.0,
    "unvectorized_copy_backward": 2.0,
    "unvectorized_loss": 3.0,
}
FIGURES: dict[str, float] = {
    **{name: number for name, number in MACHINE.items() if isinstance(number, float)},
    "lost": 0.375,  # 1 - 1 / 1.6
    "microbatches": MICROBATCHES,
    "layers": LAYERS,
    "tiles": 1,
    "busy": 1,
    "peak": 1e12,
    "T": TOKENS,
    "s": 1024,
    "h": HIDDEN,
    "a": 4,
    "d": 128,
    "k": 512,
    "t": 1,
    "c": 1,
    "memory": 8e9,
    "link": 1e10,
    "bus": 1e10,
    "latency": 1e-6,
    "clock": 1,
    "num_sms": 1,
    **SLOW_KERNELS,
}
"""The shape GPT on one GPU: what words of the texts mean there."""


def product(rows: int, columns: int, depth: int) -> dict[str, float]:
    """A product of M x K by K x N in 16 bits: operands read, result written."""
    moved = 2 * (rows * depth + depth * columns + rows * columns)
    return {"M": rows, "N": columns, "K": depth, "bytes": moved}


def three(rows: int, columns: int, depth: int) -> list[dict[str, float]]:
    """Forward; the gradient of the input (depth columns wide); that of the weights."""
    return [
        product(rows, columns, depth),
        product(rows, depth, columns),
        product(depth, columns, rows),
    ]


def seconds(one: Figures) -> float:
    """Seconds of a product on MACHINE by its roofline."""
    rate = 1e12 * 0.5 * one["K"] / (one["K"] + 64)
    return max(2 * one["M"] * one["N"] * one["K"] / rate, one["bytes"] / 8e9) + 1e-5


PAIR = [
    (TOKENS, 768, HIDDEN),
    (TOKENS, HIDDEN, 256),
    (TOKENS, 1024, HIDDEN),
    (TOKENS, HIDDEN, 1024),
]
"""Queries, keys and values; projection; feed-forward: half of GPT's widths."""

ALL_REDUCE = 1.0 * 2 * TOKENS * HIDDEN / 1e10 + 1e-5 + 2e-6
"""Over a pair: 2 x 1/2 of T h in 16 bits, a call, one hop up and one down."""

ATTENTION_FORWARD = 4 * TOKENS * 1024 * 256 * 0.5 * 1.125 / (1e12 * 0.5) + 1e-5
STREAMS_FORWARD = (20 * TOKENS * HIDDEN + 4 * TOKENS * 1024) / 8e9 + 7e-5
"""A pair's half of the heads; norms 4 and residuals 6 bytes twice, GeLU 4, in seven kernels."""

WEIGHTS = LAYERS * LLAMA_LAYER + 2 * VOCABULARY * HIDDEN


def evaluated(shape: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a step on MACHINE: three microbatches of one sequence on each of its replicas."""
    replicas = changes.get("data_parallel", 1)
    batch = {"microbatch_size": 1, "global_batch_size": MICROBATCHES * replicas}
    return step(shape, **{**MACHINE, **batch, **changes})


def test_products_are_those_of_the_text() -> None:
    # both reductions of the backward pass last no longer than the weight gradients during them
    found = evaluated(GPT, tensor_parallel=2)
    products = [one for sides in PAIR for one in three(*sides)]
    assert min(seconds(three(*PAIR[place])[2]) for place in (0, 2)) > ALL_REDUCE
    figures = {**FIGURES, "hidden": 0.5 * 2 * ALL_REDUCE}
    check("gemm_seconds", found, figures, products)
    # at a twentieth of the memory's rate they wait for it
    found = evaluated(GPT, tensor_parallel=2, hbm_bytes_per_second=5e8)
    check("gemm_seconds", found, {**figures, "memory": 4e8}, products)


def test_attention_is_that_of_the_text() -> None:
    # a pair's 2 heads of 8 blocks each keep half of 32 multiprocessors at work
    found = evaluated(GPT, tensor_parallel=2, num_sms=32)
    causal = (1 + 128 / 1024) / 2
    check("attention_seconds", found, {**FIGURES, "t": 2, "busy": 0.5, "causal": causal})
    # the same ring of two: half of the queries, blocks on the diagonal weigh twice as much
    found = evaluated(GPT, context_parallel=2, num_sms=32)
    causal = (1 + 128 * 2 / 1024) / 2
    check("attention_seconds", found, {**FIGURES, "T": 512, "busy": 0.5, "causal": causal})


def test_a_clock_below_the_full_one_slows_what_the_texts_divide_by_it() -> None:
    limited = {"gemm_joules_per_flop": 4e-9, "power_limit_watts": 500.0}
    found = evaluated({**GPT, "vocab_size": VOCABULARY}, **limited)
    assert 0.5 < found["relative_clock"] < 0.9
    figures = {**FIGURES, "clock": found["relative_clock"], "hidden": 0}
    sides = [(TOKENS, 1536, HIDDEN), (TOKENS, HIDDEN, 512)]
    sides += [(TOKENS, FFN, HIDDEN), (TOKENS, HIDDEN, FFN)]
    check("gemm_seconds", found, figures, [one for each in sides for one in three(*each)])
    check("attention_seconds", found, {**figures, "causal": (1 + 128 / 1024) / 2})
    words = {
        "last": 1,
        "first": 1,
        "logits": TOKENS * VOCABULARY,
        "R": TOKENS,
        "V": VOCABULARY,
        "t": 1,
    }
    words["unvectorized_loss"] = 0
    # the output layer has a clock of its own: its products are longer by as much
    free = evaluated({**GPT, "vocab_size": VOCABULARY})["vocabulary_seconds"]
    products = three(TOKENS, VOCABULARY, HIDDEN)
    matmuls = MICROBATCHES * sum(seconds(product) for product in products)
    words["output_clock"] = matmuls / (matmuls + found["vocabulary_seconds"] - free)
    assert 0.5 < words["output_clock"] < 0.9
    assert words["output_clock"] != pytest.approx(found["relative_clock"], rel=1e-3)
    check("vocabulary_seconds", found, {**figures, **words}, products)


def test_streams_are_those_of_the_text() -> None:
    # norms 4 forward and 6 backward, residuals 6 and 6, biases 2, all in 16 bits twice a layer
    # but GeLU, 4 and 8 once; kernels 7 and half as many again backward
    found = evaluated(GPT, **SLOW_KERNELS)
    moved = 2 * (4 + 6 + 6 + 6 + 2) * TOKENS * HIDDEN + 12 * TOKENS * FFN
    # copies of queries, keys and values, of 4 bytes each
    singles = {"singles": (1 + 2) * TOKENS * 3 * 512, "width": 4}
    check("elementwise_seconds", found, {**FIGURES, "bytes": moved, "kernels": 17.5, **singles})


@pytest.mark.parametrize(("stages", "first"), [(1, 1), (2, 0)])
def test_the_vocabulary_is_that_of_the_text(stages: int, first: int) -> None:
    shape = {**GPT, "vocab_size": VOCABULARY}
    found = evaluated(shape, pipeline_parallel=stages, **SLOW_KERNELS)
    figures = {**FIGURES, "last": 1, "first": first, "logits": TOKENS * VOCABULARY, "R": TOKENS}
    figures |= {"V": VOCABULARY, "t": 1, "output_clock": 1}
    products = three(TOKENS, VOCABULARY, HIDDEN)
    check("vocabulary_seconds", found, figures, products)


def test_recomputation_is_that_of_the_text() -> None:
    found = evaluated(GPT, tensor_parallel=2, activation_recompute="full")
    forward = sum(seconds(product(*sides)) for sides in PAIR)
    again = forward + ATTENTION_FORWARD + STREAMS_FORWARD
    check("recompute_seconds", found, {**FIGURES, "again": again})
    found = evaluated(GPT, tensor_parallel=2, activation_recompute="selective")
    check("recompute_seconds", found, {**FIGURES, "again": ATTENTION_FORWARD})


def test_the_host_is_that_of_the_text() -> None:
    forward = sum(seconds(product(*sides)) for sides in PAIR)
    forward += ATTENTION_FORWARD + STREAMS_FORWARD + 2 * ALL_REDUCE
    # two gradients; five products for two at half the rate, three kernels; streams of 6, 6 and 2
    # bytes twice and 8 of GeLU in half as many kernels again; half of each reduction runs during
    # a gradient, which loses three eighths of the time
    backward = sum(seconds(one) for sides in PAIR for one in three(*sides)[1:])
    backward += 2.5 * 2 * (ATTENTION_FORWARD - 1e-5) + 3e-5
    backward += (28 * TOKENS * HIDDEN + 8 * TOKENS * 1024) / 8e9 + 1.5 * 7e-5
    backward += ALL_REDUCE + FIGURES["lost"] * ALL_REDUCE
    for least in (1.25 * forward, 1.25 * backward):
        # several stages synchronize between passes, and save nothing
        found = evaluated(GPT, tensor_parallel=2, pipeline_parallel=2, host_seconds_per_layer=least)
        passes = {"forward": forward, "backward": backward, "saved": 0}
        passes["layers"] = FIGURES["layers"] / 2
        check(
            "host_seconds",
            found,
            FIGURES | passes | {"host_forward": least, "host_backward": least},
        )


@pytest.mark.parametrize(
    ("zero", "owned", "held"), [(0, 1, 1), (1, 0.25, 1), (2, 0.25, 0.25), (3, 0.25, 0.25)]
)
def test_the_optimizer_is_that_of_the_text(zero: int, owned: float, held: float) -> None:
    found = evaluated({**LLAMA, "vocab_size": VOCABULARY}, data_parallel=4, zero_stage=zero)
    figures = {**FIGURES, "owned": owned * WEIGHTS, "held": held * WEIGHTS, "parameters": WEIGHTS}
    figures |= {"optimizer_launches": 0, "host_seconds_per_launch": 0, "casts": 0}
    check("optimizer_seconds", found, figures)
    check("accumulation_seconds", found, figures)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_collectives_of_tensors_are_those_of_the_text(recompute: str) -> None:
    shape = {**GPT, "vocab_size": VOCABULARY}
    found = evaluated(shape, tensor_parallel=2, activation_recompute=recompute)
    # the output layer and the embedding reduce T h, the loss three figures of 4 bytes a token
    figures = {
        **FIGURES,
        "t": 2,
        "hops": 1e-6,
        "hidden": 0.5 * 2 * ALL_REDUCE,
        "again": 2 * ALL_REDUCE if recompute == "full" else 0,
        "vocabulary": 2 * ALL_REDUCE + 3 * (4 * TOKENS / 1e10 + 1e-5 + 2e-6),
    }
    check("tensor_comm_seconds", found, figures)


def test_the_ring_of_keys_and_values_is_that_of_the_text() -> None:
    # 512 tokens a rank; once around forward and twice backward, both shorter than attention
    found = evaluated(GPT, context_parallel=2, activation_recompute="full")
    once = 4 * 512 * 512 / 1e10 + 1e-6
    assert 2 * once < ATTENTION_FORWARD / 2
    # two steps: 7/4 passes of 6 bytes over the result, in eight kernels
    corrections = 7 / 4 * 6 * 512 * 512 / 8e9 + 8e-5
    figures = {**FIGURES, "T": 512, "c": 2, "hidden": 0.5 * 3 * once, "corrections": corrections}
    check("context_comm_seconds", found, {**figures, "again": 0.5 * once + corrections})


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_exchange_of_experts_is_that_of_the_text(recompute: str) -> None:
    # two copies of each token of 16 bits with weights of 32, half of them for the other GPU
    moved = 0.5 * 2 * (2 * TOKENS * HIDDEN + 4 * TOKENS)
    layout = {"expert_parallel": 2, "data_parallel": 2, "activation_recompute": recompute}
    cards = {"network_bytes_per_second": 4e9, "network_latency_seconds": 5e-6}
    for room, rate, latency in ((8, 1e10, 1e-6), (1, 4e9, 5e-6)):
        found = evaluated(MOE, **layout, **cards, nvlink_size=room)
        once = moved / rate + 1e-5 + latency
        again = 0.5 * 2 * once if recompute == "full" else 0
        links = {"card": 4e9, "latency": latency, "hidden": 0.5 * 4 * once, "again": again}
        bytes_ = {"inside": moved if room > 1 else 0, "outside": 0 if room > 1 else moved}
        check("expert_comm_seconds", found, {**FIGURES, **links, **bytes_, "sparse": 1})


@pytest.mark.parametrize(("chunks", "share"), [(1, 0), (2, 0.25)])
def test_transfers_between_stages_are_those_of_the_text(chunks: int, share: float) -> None:
    batch = {"global_batch_size": 4}  # a multiple of the stages
    layout = {"tensor_parallel": 2, "pipeline_parallel": 2, "virtual_pipeline": chunks}
    found = evaluated(GPT, **layout, **batch)
    # 2 T h bytes, half of which the other rank of the pair has
    gathering = 0.5 * 2 * TOKENS * HIDDEN / 1e10 + 1e-5 + 1e-6
    figures = {
        **FIGURES,
        "t": 2,
        "stages": 2,
        "chunks": chunks,
        "rounds": 2,
        "p": share,
        "microbatches": 4,
        "gathering": gathering,
    }
    check("pipeline_comm_seconds", found, figures)


@pytest.mark.parametrize(
    ("zero", "reduces", "gathers"), [(0, 1, 0), (1, 1, 1), (2, MICROBATCHES, 1)]
)
def test_the_exchange_of_replicas_is_that_of_the_text(
    zero: int, reduces: int, gathers: int
) -> None:
    found = evaluated(LLAMA, data_parallel=4, zero_stage=zero, exchange_buckets=2.0)
    size = 2 * LAYERS * LLAMA_LAYER
    scattered = 0.75 * size / 1e10 + 2 * (1e-5 + 3e-6)
    reduced = 2 * 0.75 * size / 1e10 + 2 * (1e-5 + 2 * 3e-6)
    gradients = reduced if zero == 0 else scattered
    # of two buckets one has a pass during it, and may hide a half (weights a quarter)
    hidden = reduces * 0.25 * gradients + gathers * 0.125 * scattered
    saved = (1 - FIGURES["lost"]) * hidden
    figures = {**FIGURES, "reduces": reduces, "gathers": gathers, "tied": 0, "saved": saved}
    figures |= {"copies": 0, "hops": 3e-6}
    check("data_comm_seconds", found, {**figures, "gradients": gradients, "weights": scattered})


def test_a_shared_embedding_is_exchanged_as_the_text_says() -> None:
    shape = {**LLAMA, "vocab_size": VOCABULARY, "ties_embedding": True}
    found = evaluated(shape, pipeline_parallel=2, network_bytes_per_second=1e9)
    # V h gradients of 16 bits over a card
    tied = 2 * VOCABULARY * HIDDEN / 1e9 + 1e-5
    nothing = {"reduces": 1, "gradients": 0, "gathers": 0, "weights": 0, "saved": 0, "copies": 0}
    check("data_comm_seconds", found, {**FIGURES, **nothing, "tied": tied, "hops": 1e-6})


def test_stage_3_gathers_twice_a_microbatch_as_the_text_says() -> None:
    found = evaluated(LLAMA, data_parallel=4, zero_stage=3)
    # unit by unit: four layers, of which three have a pass during them
    once = 0.75 * 2 * LAYERS * LLAMA_LAYER / 1e10 + 4 * (1e-5 + 3e-6)
    hidden = MICROBATCHES * 0.75 * (0.5 + 2 * 0.25) * once
    figures = {**FIGURES, "reduces": MICROBATCHES, "gathers": 2 * MICROBATCHES, "tied": 0}
    more = {
        "saved": (1 - FIGURES["lost"]) * hidden,
        "gradients": once,
        "weights": once,
        "copies": 0,
        "hops": 3e-6,
    }
    check("data_comm_seconds", found, {**figures, **more})


@pytest.mark.parametrize("chunks", [1, 2])
def test_the_bubble_is_that_of_the_text(chunks: int) -> None:
    found = evaluated(
        GPT,
        pipeline_parallel=2,
        virtual_pipeline=chunks,
        global_batch_size=4,
        accumulation_traffic_bytes=0.0,
    )
    # two of four layers; the even stages of a GPT without a vocabulary take as long as each other
    parts = ("gemm_seconds", "attention_seconds", "elementwise_seconds")
    stage = sum(found[name] for name in parts) / 4
    check("bubble_seconds", found, {**FIGURES, "stages": 2, "chunks": chunks, "stage": stage})


def check(
    name: str, found: Mapping[str, Any], figures: Figures, products: Sequence[Figures] = ()
) -> None:
    """Compare a part with its text; none may be nothing, and every term must count."""
    text = FORMULAS[name].text.partition(";")[0]
    assert found[name] > 0
    assert value(text, figures, products) == pytest.approx(found[name], rel=1e-9)


def test_every_part_of_a_step_has_a_text_with_arithmetic() -> None:
    assert set(FORMULAS) == set(TIMES)
    for formula in FORMULAS.values():
        assert re.search(r" [x/+-] ", formula.text.partition(";")[0])
        assert formula.source
