"""llm-analysis: a row as the arguments of its function `train`.

The fields are those of `llm_analysis/config.py` and `llm_analysis/analysis.py`. It counts neither a
pipeline's bubble, so that interleaving changes nothing, nor the optimizer. It models mixtures whose
layers are all alike.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.rivals.rival import Config, Rival, is_plain, refuse
from benchmarks.rivals.rows import Row

FORMATS = {"bf16": "w16a16e16", "fp16": "w16a16e16", "fp8": "w8a8e16", "fp4": "w4a4e16"}
NODE = 8
"""GPUs of a node, a constant of the program."""


def configure(row: Row) -> Config:
    """Return model, GPU and arguments of a row."""
    given = row.inputs
    refuse(
        no_latent_attention_or_windows_or_unlike_layers=not is_plain(row),
        no_heads_of_that_size=given["head_size"] * given["num_heads"] != given["hidden_size"],
        no_context_parallelism=given["context_parallel"] > 1,
        no_recomputation_of_such_parts=given["recompute_modules"] != "none",
    )
    return {"model": _model(row), "gpu": _gpu(row), "arguments": _arguments(row)}


def _model(row: Row) -> Config:
    given = row.inputs
    model = {
        "name": "row",
        "num_layers": given["num_layers"],
        "n_head": given["num_heads"],
        "hidden_dim": given["hidden_size"],
        "vocab_size": given["vocab_size"],
        "max_seq_len": given["seq_len"],
        "num_key_value_heads": given["num_kv_heads"],
        "ffn_embed_dim": given["expert_ffn_hidden_size"],
    }
    # the release of the index does not have these: they are given where they are needed
    if given["uses_glu"]:
        model["mlp_gated_linear_units"] = True
    if given["num_experts"] > 1:
        model |= {"moe_num_experts": given["num_experts"], "moe_top_k": given["experts_per_token"]}
    return model


def _gpu(row: Row) -> Config:
    """Return the rates; between nodes it counts the bandwidth of a node, as its files do."""
    given = row.inputs
    narrow = {"peak_i8_TFLOPS": "fp8_flops_per_second", "peak_i4_TFLOPS": "fp4_flops_per_second"}
    return {
        "name": "row",
        "mem_per_GPU_in_GB": given["hbm_bytes"] / 2**30,
        "hbm_bandwidth_in_GB_per_sec": given["hbm_bytes_per_second"] / 1e9,
        "intra_node_bandwidth_in_GB_per_sec": given["nvlink_bytes_per_second"] / 1e9,
        "intra_node_min_message_latency": 8e-6,
        "peak_fp16_TFLOPS": given["matrix_flops_per_second"] / 1e12,
        **{name: given[rate] / 1e12 for name, rate in narrow.items() if given[rate]},
        "inter_node_bandwidth_in_GB_per_sec": NODE * given["network_bytes_per_second"] / 1e9,
    }


def _arguments(row: Row) -> Config:
    given = row.inputs
    tensor = given["tensor_parallel"]
    # its degree is of sharded weights, which it gathers in each layer; other replicas it infers
    gathers = given["zero_stage"] == 3 or given["num_experts"] > 1
    return {
        "dtype_name": FORMATS[given["precision"]],
        "batch_size_per_gpu": given["microbatch_size"],
        "global_batch_size": given["global_batch_size"],
        "seq_len": given["seq_len"],
        "activation_recomputation": given["activation_recompute"],
        "ds_zero": given["zero_stage"],
        "dp_size": given["data_parallel"] if gathers else 1,
        "tp_size": tensor,
        "pp_size": given["pipeline_parallel"],
        "sp_size": tensor if given["uses_sequence_parallel"] else 1,
        "ep_size": given["expert_parallel"],
        "total_num_gpus": given["num_gpus"],
        "flash_attn": given["attention"] == "flash",
        "softmax_dropout": given["uses_dropout"],
    }


def _configure_at_half(row: Row) -> Config:
    config = configure(row)
    return {**config, "arguments": {**config["arguments"], "flops_efficiency": 0.5}}


LLM_ANALYSIS = Rival(
    name="llm-analysis",
    title="llm-analysis",
    source="cli99/llm-analysis",
    commit="d841e40aec8c84b9e76ba9cfbce67418adb172bd",
    packages=("fire>=0.5",),
    release=("llm-analysis==0.2.2",),
    configure=configure,
    settings="efficiencies of 1, its defaults; the message latency of its files of SXM machines",
    reasons={
        "tp_size must be <=": "tensor parallelism beyond a node",
        "assert within_range": "fails its check of FLOPs, which knows ungated layers alone",
        "unexpected keyword argument 'mlp_gated": "no gated layers in this release",
    },
)
AT_HALF = replace(
    LLM_ANALYSIS,
    title="llm-analysis at 0.5",
    configure=_configure_at_half,
    settings="the same, with the 0.5 of the peak that its `constant.py` notes for Megatron-LM",
)
