"""The formula of each part of a step, with its source: for `explain` and the documentation.

The text before the first semicolon is arithmetic, which a test evaluates; the text behind it
defines the words. T are the tokens of a microbatch on a GPU, s the sequence length, h the width of
the model, a the heads, d the width of a head, k the width of all keys on a GPU; t and c are the
sizes of the tensor- and context-parallel groups. `memory`, `link` (to one GPU), `card` and `bus`
(of a ring) are bytes/s with their efficiency; `latency` and `hops` are the seconds of a transfer
without bytes.
`clock` is `relative_clock`, at which a layer's mean power is `power_limit_watts` (module `power`).
"""

from __future__ import annotations

from estimators.contract import Formula

FORMULAS: dict[str, Formula] = {
    "gemm_seconds": Formula(
        "microbatches x layers x ((sum over matmuls of [max(2 M N K / (peak x gemm_efficiency x "
        "tiles x K / (K + gemm_half_depth)), bytes / memory) + launch_seconds]) / clock + "
        "lost x hidden); matmuls: forward and both gradients; tiles: share "
        "of full tiles and waves; hidden: seconds of transfers behind them; lost: "
        "communication_sm_fraction, of tensor collectives in pieces tensor_exchange_sm_fraction, "
        "of other tensor collectives at least 1 - 1 / overlap_slowdown; where `kernels` names an "
        "accelerator each matmul takes its time in table matrix_product_rate over "
        "product_rate_factor instead; experts: a matmul each",
        "NVIDIA Matrix Multiplication Background User's Guide; roofline; "
        "ai-dynamo/aiconfigurator @095f58a51",
    ),
    "attention_seconds": Formula(
        "microbatches x layers x (4 T s a d / t x causal / (peak x busy) x "
        "(1 / flash_forward_efficiency + 2.5 / flash_backward_efficiency) + 4 launch_seconds) / "
        "clock; "
        "causal: (1 + 128 c / s) / 2, half and the blocks on the diagonal whole; busy: share of "
        "multiprocessors with a block; with latents (keys + values) a / 2 for a d, and backward "
        "(3 keys + 2 values) / (keys + values) for 2.5; keys, values: widths of a head's; a layer "
        "with a window: s of sequences with the same causal attention; unfused: matmuls, "
        "softmax, dropout, copies in memory; an `attention_program` has its rate in table "
        "attention_rate instead; cudnn_mxfp8: backward as without a window",
        "arXiv 2307.08691 section 4.1; arXiv 2205.05198 section 4.1",
    ),
    "elementwise_seconds": Formula(
        "microbatches x layers x (bytes / memory + kernels x launch_seconds + singles x "
        "(max(unvectorized_seconds / num_sms, width / memory) - width / memory)); bytes: of norms, "
        "residuals, dropout, activation, rotary embedding, routing, casts to 8 and 4 bits; "
        "singles: elements in kernels of PyTorch that load them one by one; width: bytes of each",
        "counted from the operations; arXiv 2205.05198 figure 2; pytorch/pytorch pull request "
        "150233",
    ),
    "vocabulary_seconds": Formula(
        "microbatches x (last x ((sum over matmuls of [max(2 M N K / (peak x gemm_efficiency x "
        "tiles x K / (K + gemm_half_depth)), bytes / memory) + launch_seconds]) / "
        "output_clock + (logits x loss_traffic_bytes + 10 R h) / memory + 14 launch_seconds + "
        "logits x unvectorized_loss x (max(unvectorized_seconds / num_sms, 7.2 / memory) - 7.2 / "
        "memory)) + first x "
        "((14 T h + V h / t x embedding_gradient_bytes) / memory + 4 launch_seconds)); last, "
        "first: 1 if the stage that sets the pace has the output layer, the embedding; matmuls: T "
        "x V/t x h and both gradients; output_clock: at which the mean power of the output layer "
        "is the limit; R: T, or T / t with sequence parallelism; a layer that predicts a further "
        "token: once more, with the seconds of a layer and a projection of 2 h",
        "arXiv 2104.04473 appendix; arXiv 1909.08053 section 3",
    ),
    "recompute_seconds": Formula(
        "microbatches x layers x again; again: the forward pass without its waiting, slowed "
        "by the transfers behind it (full; without its last matmul with stops_recompute_early), "
        "the parts of recompute_modules, else the core of "
        "attention (selective), or every second matmul and all elementwise work (selective, "
        "with recomputes_operations)",
        "arXiv 2205.05198 section 5; torchtitan's policy for operations",
    ),
    "host_seconds": Formula(
        "microbatches x (layers x (max(host_forward - forward, 0) + max(host_backward - backward, "
        "0)) - saved); host_forward, host_backward: launches of the pass x "
        "host_seconds_per_launch, at least host_seconds_per_layer; launches: forward_launches or "
        "backward_launches, collectives, casts, routing, recomputed kernels, or 1 of a CUDA graph, "
        "0 of one of whole steps; forward of a mixture apart for experts and what moves their "
        "tokens, unless another microbatch hides their all-to-all; "
        "forward, backward: seconds of a layer's pass, transfers and recomputation included; "
        "saved: what one stage alone makes up for while longer passes and the output layer run",
        "counted in the code of each program; definition",
    ),
    "accumulation_seconds": Formula(
        "microbatches x parameters x accumulation_traffic_bytes / memory; parameters: of the "
        "stage, a GPU's share before ZeRO",
        "counted from the operations",
    ),
    "optimizer_seconds": Formula(
        "max((owned x optimizer_traffic_bytes + held x buffer_traffic_bytes + casts) / memory, "
        "layers x optimizer_launches x host_seconds_per_launch); layers: of the stage; owned: "
        "parameters of the GPU's optimizer, divided by the replicas from ZeRO 1 on; held: those of "
        "its gradients, divided from ZeRO 2 on; casts: bytes to make the copies of the stage's "
        "weights in 8 or 4 bits",
        "arXiv 1910.02054; counted from the operations",
    ),
    "tensor_comm_seconds": Formula(
        "microbatches x (layers x (4 x (2 (t - 1) / t x 2 T h / bus + collective_seconds + 2 hops) "
        "- hidden + again) + vocabulary); hidden: tensor_overlap_fraction of the transfers "
        "that fit behind weight gradients; again: transfers that recomputation repeats; "
        "with sequence parallelism reduce-scatters and all-gathers of as many bytes, backward one "
        "gather more; hidden then, too, where the program splits collectives, (t - 1) / t of what "
        "fits behind the matmul that a collective belongs to; where it starts with its own shard, "
        "gathers that fit behind a t-th of theirs; of a mixture its tokens' copies; "
        "vocabulary: the collectives of embedding and loss",
        "arXiv 1909.08053 section 3; arXiv 2205.05198 section 4.2.2; Megatron-LM @d98e8a64 "
        "megatron/core/model_parallel_config.py lines 265 to 295",
    ),
    "context_comm_seconds": Formula(
        "microbatches x layers x (3 (c - 1) x (4 T k / link + latency) + 2 corrections - hidden + "
        "again); keys and values around the ring, their gradients with them backward; corrections: "
        "results of the c steps put together, (3 c + 1) / 4 x 6 T a d / t / memory + 4 c x "
        "launch_seconds; hidden: context_overlap_fraction of the transfers that fit behind "
        "(c - 1) / c of attention; again: what recomputation repeats",
        "arXiv 2310.01889; TransformerEngine @d0067d0d context_parallel.py",
    ),
    "expert_comm_seconds": Formula(
        "microbatches x layers x (sparse x 4 x (max(inside / link, outside / card) + "
        "collective_seconds + latency) - hidden + again); sparse: share of layers that are "
        "mixtures; link: nvlink_bytes_per_second x alltoall_efficiency, or flex_efficiency; "
        "inside, outside: bytes of the tokens' copies with their weights (alltoall), or of one "
        "copy for a node and rank (flex), for GPUs of the node, and others; hidden: "
        "expert_overlap_fraction of the transfers that fit behind matmuls and attention, or "
        "overlapped_expert_fraction with overlaps_expert_comm; again: transfers that recomputation "
        "repeats; flex has flex_seconds in place of collective_seconds, and over several nodes "
        "outside / card + flex_serial_fraction x inside / link where that is longer",
        "arXiv 2006.16668; deepseek-ai/DeepEP @dd758ca README.md, @94a9f8f (branch hybrid-ep) "
        "docs/README_Hybrid-EP.md",
    ),
    "pipeline_comm_seconds": Formula(
        "2 x (2 T h / t / link + latency + gathering + pipeline_hop_seconds) x (chunks x "
        "microbatches x (1 - p) + stages - 1 + p x rounds x (chunks - 1)); rounds: stages, or "
        "microbatches if these are fewer; gathering: of T h over the tensor-parallel group, where "
        "its ranks have it whole; p: pipeline_overlap_fraction of several chunks, else 0; of one "
        "stage nothing",
        "arXiv 2104.04473 sections 2.2 and 4.1; agrees with a simulation of the schedule",
    ),
    "data_comm_seconds": Formula(
        "reduces x gradients + gathers x weights + copies - saved + "
        "tied + 3 (collective_seconds + 2 hops); gradients: an all-reduce over the "
        "replicas (ZeRO 0), or a reduce-scatter, for each microbatch from ZeRO 2 on; weights: an "
        "all-gather a step (ZeRO 1, 2), two a microbatch (ZeRO 3; fewer where a program keeps "
        "them); copies: of shards by the host; saved: (1 - lost) of the transfers that may "
        "overlap, at most the passes beside them. Not hidden are the last bucket of gradients (of "
        "an interleaved pipeline the last chunk's: at least 1 / chunks; the rest runs "
        "beside (chunks - 1) x min(stages, microbatches) backward passes of a chunk), the first "
        "bucket of weights, and of ZeRO 3 a layer a pass; tied: a shared embedding's gradients "
        "between first and last stage; hops: of an all-reduce over all GPUs, of norms and of the "
        "norm of the gradients; "
        "lost: max(communication_sm_fraction, 1 - 1 / overlap_slowdown)",
        "arXiv 1910.02054 section 7; Megatron-LM @d98e8a64 megatron/core/pipeline_parallel/"
        "schedules.py lines 1219 to 1456; PyTorch FSDP Notes; nanotron @0e0a27ea trainer.py; "
        "pytorch/pytorch issue 143988",
    ),
    "bubble_seconds": Formula(
        "(stages - 1) x stage / chunks; stage: seconds of a microbatch in one, where all take as "
        "long; others: the longest chain of passes that wait for each other, less the passes of "
        "the rank that works longest; a `schedule` that fills bubbles: see module schedule",
        "arXiv 2104.04473 section 2.2; NVIDIA/Megatron-LM @d98e8a64 "
        "megatron/core/pipeline_parallel/schedules.py; arXiv 2401.10241 table 2; "
        "deepseek-ai/DualPipe @3da1bbe README.md",
    ),
}
"""Part of a step -> its formula."""
