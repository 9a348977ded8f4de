"""What each part of a step is, in a line, with its source: for explanations and documents."""

from __future__ import annotations

from typing import NamedTuple


class Formula(NamedTuple):
    """How a part is made, and where that is from."""

    text: str
    source: str


FORMULAS: dict[str, Formula] = {
    "gemm_seconds": Formula(
        "microbatches x layers x sum over products, forward and both gradients: max(2 M N K / "
        "(peak x gemm_efficiency x tiles x K / (K + gemm_half_depth)), bytes / memory) + launch",
        "NVIDIA Matrix Multiplication Background User's Guide; roofline",
    ),
    "attention_seconds": Formula(
        "microbatches x layers x (4 b s^2 d a / t, half of it causal, forward; 2.5 times that "
        "backward) / (peak x flash efficiency); unfused: products, softmax and dropout in memory",
        "arXiv 2307.08691 section 4.1; arXiv 2205.05198 section 4.1",
    ),
    "elementwise_seconds": Formula(
        "microbatches x layers x bytes of norms, residuals, dropout, activation, rotary embedding, "
        "routing / (bandwidth x hbm_efficiency)",
        "counted from the operations; arXiv 2205.05198 figure 2",
    ),
    "vocabulary_seconds": Formula(
        "microbatches x (three products T x V/t x h + logits x loss_traffic_bytes / memory), where "
        "the last stage is the slowest",
        "arXiv 2104.04473 appendix; arXiv 1909.08053 section 3",
    ),
    "recompute_seconds": Formula(
        "microbatches x layers x the forward pass again (full), or its core (selective)",
        "arXiv 2205.05198 section 5",
    ),
    "host_seconds": Formula(
        "microbatches x layers x what host_seconds_per_layer exceeds a pass by", "definition"
    ),
    "accumulation_seconds": Formula(
        "microbatches x parameters of the stage x accumulation_traffic_bytes / memory",
        "counted from the operations",
    ),
    "optimizer_seconds": Formula(
        "parameters on the GPU (sharded from ZeRO 1 on) x optimizer_traffic_bytes / memory",
        "arXiv 1910.02054; counted from the operations",
    ),
    "tensor_comm_seconds": Formula(
        "microbatches x layers x (two all-reduces of T h each way: 2 (t-1)/t x bytes / bus "
        "bandwidth + collective_seconds + hops), less what runs beside weight gradients",
        "arXiv 1909.08053 section 3; arXiv 2205.05198 section 4.2.2",
    ),
    "context_comm_seconds": Formula(
        "microbatches x layers x (c-1)/c of all keys and values around the ring, twice that "
        "backward, less what runs beside attention",
        "arXiv 2310.01889",
    ),
    "expert_comm_seconds": Formula(
        "microbatches x layers x two all-to-alls each way of the tokens' copies",
        "arXiv 2006.16668",
    ),
    "pipeline_comm_seconds": Formula(
        "two transfers of T h / t a microbatch and chunk, and those that fill and drain",
        "arXiv 2104.04473 sections 2.2 and 4.1; agrees with a simulation of the schedule",
    ),
    "data_comm_seconds": Formula(
        "gradients reduced over the replicas (2 (d-1)/d of the bytes, or scattered and weights "
        "gathered under ZeRO) less what runs beside passes, and the shared embedding",
        "arXiv 1910.02054 section 7",
    ),
    "bubble_seconds": Formula(
        "(all stages - the slowest) / chunks, once a step", "arXiv 2104.04473 section 2.2"
    ),
}
"""Part of a step -> its formula."""
