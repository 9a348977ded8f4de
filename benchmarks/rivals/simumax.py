"""SimuMax: a row as its model, strategy and system.

The fields are those of `simumax/core/config.py`. Its systems have an efficiency for each kind of
operation, and for A100 and B200 also one for each shape of a product that was measured there.
"""

from __future__ import annotations

from typing import Any

from benchmarks.rivals.rival import Config, Rival, refuse
from benchmarks.rivals.rows import Row

GRANULARITIES = {"full": "full_block", "selective": "sdp_only"}
BLACKWELL = ("B200", "GB200")


def configure(row: Row) -> Config:
    """Return the three files of a row, the system's as changes of one that the program ships."""
    given = row.inputs
    refuse(
        no_windows_of_attention=given["attention_window"] > 0,
        no_prediction_of_further_tokens=given["num_mtp_layers"] > 0,
        no_4_bit_numbers=given["precision"] == "fp4",
        no_sharded_weights=given["zero_stage"] > 1,
        no_recomputation_by_operation=given["recomputes_operations"],
        **{
            "no_8-bit_rates_of_Blackwell": given["precision"] == "fp8"
            and given["accelerator"].startswith(BLACKWELL)
        },
    )
    return {"model": _model(row), "strategy": _strategy(row), **_system(row)}


def _model(row: Row) -> Config:
    given = row.inputs
    model: dict[str, Any] = {
        "hidden_size": given["hidden_size"],
        "head_num": given["num_heads"],
        "kv_head_num": given["num_kv_heads"],
        "head_size": given["head_size"],
        "intermediate_size": given["ffn_hidden_size"],
        "layer_num": given["num_layers"],
        "vocab_size": given["vocab_size"],
        "use_swiglu": given["uses_glu"],
    }
    if given["num_experts"] > 1:
        model |= {
            "expert_num": given["num_experts"],
            "topk": given["experts_per_token"],
            "moe_ffn_hidden_size": given["expert_ffn_hidden_size"],
            "dense_layers": given["num_dense_layers"],
        }
        if given["shared_ffn_hidden_size"]:
            model["moe_shared_expert_intermediate_size"] = given["shared_ffn_hidden_size"]
    if given["kv_lora_rank"]:
        model |= {
            "attention_type": "mla",
            "v_head_dim": given["v_head_size"],
            "qk_head_dim": given["qk_head_size"],
            "qk_pos_emb_head_dim": given["qk_rotary_size"],
            "q_lora_rank": given["q_lora_rank"] or None,
            "kv_lora_rank": given["kv_lora_rank"],
        }
    return model


def _strategy(row: Row) -> Config:
    given = row.inputs
    sequences = given["data_parallel"] * given["microbatch_size"]
    strategy: dict[str, Any] = {
        "seq_len": given["seq_len"],
        "micro_batch_size": given["microbatch_size"],
        "micro_batch_num": given["global_batch_size"] // sequences,
        "dtype": "bf16",
        "fp8": given["precision"] == "fp8",
        "world_size": given["num_gpus"],
        "tp_size": given["tensor_parallel"],
        "cp_size": given["context_parallel"],
        "pp_size": given["pipeline_parallel"],
        "ep_size": given["expert_parallel"],
        "etp_size": given["expert_tensor_parallel"],
        "grad_reduce_in_bf16": given["reduced_gradient_bytes"] == 2,
        "enable_sequence_parallel": given["uses_sequence_parallel"],
        "interleaving_size": given["virtual_pipeline"],
        # with chunks its analysis takes transfers that wait alone
        "pp_comm_async": given["virtual_pipeline"] == 1,
        "zero_state": given["zero_stage"],
        "use_flash_sdp": given["attention"] == "flash",
        "use_math_sdp": given["attention"] != "flash",
        "overlap_grad_reduce": given["gradient_overlap_fraction"] > 0,
        "enable_recompute": False,
    }
    # embedding and loss count as layers where the layers alone have no equal stages
    stages, layers = given["pipeline_parallel"], given["num_layers"]
    if layers % stages and (layers + 2) % stages == 0:
        strategy |= {
            "account_for_embedding_in_pipeline_split": True,
            "account_for_loss_in_pipeline_split": True,
        }
    granularity = GRANULARITIES.get(given["activation_recompute"])
    if granularity:
        strategy |= {"recompute_granularity": granularity}
    elif given["recompute_modules"] != "none":
        modules = given["recompute_modules"].split("+")
        strategy |= {
            "recompute_granularity": "selective_recompute",
            "megatron_recompute": True,
            "megatron_recompute_modules": modules,
        }
    if "recompute_granularity" in strategy:
        strategy |= {"enable_recompute": True, "recompute_layer_num": given["num_layers"]}
    return strategy


def _system(row: Row) -> Config:
    """Return what differs from the shipped files; between nodes it counts a node's bandwidth."""
    given = row.inputs
    is_blackwell = given["accelerator"].startswith(BLACKWELL)
    return {
        "template": "b200_bf16_ceperm.json" if is_blackwell else "a100_pcie.json",
        "network_template": "b200_bf16_ceperm.json",
        # shapes that were measured on another chip do not count
        "has_shapes": not given["accelerator"].startswith("H100"),
        "tflops": given["matrix_flops_per_second"] / 1e12,
        "fp8_tflops": (given["fp8_flops_per_second"] or 0) / 1e12,
        "mem_gbs": given["hbm_bytes"] / 2**30,
        # it takes 2**30 bytes for a GB, but its files have the vendors' figures
        "gbps": given["hbm_bytes_per_second"] / 1e9,
        "num_per_node": given["nvlink_size"],
        "intra_gbps": given["nvlink_bytes_per_second"] / 1e9,
        "inter_gbps": given["network_bytes_per_second"] * given["nvlink_size"] / 1e9,
    }


SIMUMAX = Rival(
    name="simumax",
    title="SimuMax",
    source="MooreThreads/SimuMax",
    commit="4dcaae513ba7679d56c116a17cd4a691ec41e252",
    packages=("graphviz", "matplotlib", "numpy", "pandas", "sympy", "tabulate", "tqdm"),
    configure=configure,
    settings=(
        "efficiencies of its `a100_pcie.json` for A100 and H100, for H100 without its shapes; of "
        "`b200_bf16_ceperm.json` for Blackwell, and for NVLink and network everywhere"
    ),
    reasons={
        "num_layers should be|divisible by interleaving": "stages of unequal length",
        "divisible by tp_size": "more tensor ranks than key heads",
        "size should be greater than 2": "chunks on two stages",
    },
)
