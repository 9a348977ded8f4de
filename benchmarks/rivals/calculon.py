"""Calculon: a row as its application, execution and system.

The fields are those of `calculon/llm/llm.py` and of its files in systems/. It models a GPT: ungated
feed-forward layers, as many keys as queries or one, no vocabulary, unfused attention.
"""

from __future__ import annotations

from benchmarks.rivals.rival import Config, Rival, equal_width, refuse
from benchmarks.rivals.rows import Row

FORMATS = {"bf16": "float16", "fp16": "float16", "fp8": "float8"}
"""Its files have one 16-bit format; both have the same rates."""

RECOMPUTATIONS = {"none": "none", "selective": "attn_only", "full": "full"}


def configure(row: Row) -> Config:
    """Return the three files of a row, the system's as changes of one that the program ships."""
    given = row.inputs
    refuse(
        no_experts=given["num_experts"] > 1,
        no_4_bit_numbers=given["precision"] == "fp4",
        no_grouped_queries=given["num_kv_heads"] not in (1, given["num_heads"]),
        no_sharded_weights=given["zero_stage"] == 3,
        no_context_parallelism=given["context_parallel"] > 1,
        no_recomputation_of_such_parts=given["recompute_modules"] != "none",
    )
    return {"application": _application(row), "execution": _execution(row), **_system(row)}


def _application(row: Row) -> Config:
    given = row.inputs
    return {
        "hidden": given["hidden_size"],
        "feedforward": equal_width(row),
        "seq_size": given["seq_len"],
        "attn_heads": given["num_heads"],
        "attn_size": given["head_size"],
        "num_blocks": given["num_layers"],
    }


def _execution(row: Row) -> Config:
    """Return the layout. Ranks of tensor groups are next to each other, then those of replicas."""
    given = row.inputs
    tensor, data, stages = (given[f"{name}_parallel"] for name in ("tensor", "data", "pipeline"))
    node = given["nvlink_size"]
    is_sharded = given["uses_sequence_parallel"] and tensor > 1
    recomputation = RECOMPUTATIONS[given["activation_recompute"]]
    return {
        "num_procs": given["num_gpus"],
        "tensor_par": tensor,
        "pipeline_par": stages,
        "data_par": data,
        "tensor_par_net": int(tensor > node),
        "data_par_net": int(tensor * data > node),
        "pipeline_par_net": int(tensor * data * stages > node),
        "batch_size": given["global_batch_size"],
        "microbatch_size": given["microbatch_size"],
        "datatype": FORMATS[given["precision"]],
        "fused_activation": given["fuses_elementwise"],
        "attention_type": "multihead" if given["num_kv_heads"] > 1 else "multiquery",
        "activation_recompute": recomputation,
        "pipeline_interleaving": given["virtual_pipeline"],
        "optimizer_sharding": given["zero_stage"] > 0 and data > 1,
        "tensor_par_comm_type": "rs_ag" if is_sharded else "ar",
        "tensor_par_overlap": "ring" if given["splits_tensor_exchanges"] and is_sharded else "none",
        # the sharded inputs are gathered again for the backward pass, as in its own configurations
        "seq_par_ag_redo": is_sharded and recomputation != "full",
        "data_par_overlap": given["gradient_overlap_fraction"] > 0 and data > 1,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }


def _system(row: Row) -> Config:
    given = row.inputs
    is_ampere = given["accelerator"].startswith("A100")
    rates = {"float16": given["matrix_flops_per_second"], "float8": given["fp8_flops_per_second"]}
    return {
        "template": "a100_80g.json" if is_ampere else "h100_80g_nvl8.json",
        "matrix": {name: rate / 1e12 for name, rate in rates.items() if rate},
        "vector": given["vector_flops_per_second"] / 1e12,
        "GiB": given["hbm_bytes"] / 2**30,
        "GBps": given["hbm_bytes_per_second"] / 1e9,
        "networks": [
            {"bandwidth": given["nvlink_bytes_per_second"] / 1e9, "size": given["nvlink_size"]},
            {"bandwidth": given["network_bytes_per_second"] / 1e9},
        ],
    }


CALCULON = Rival(
    name="calculon",
    title="Calculon",
    source="calculon-ai/calculon",
    commit="caa4b11f8fe1fee3ba57adaacb7590d7deabd053",
    packages=("pandas", "psutil"),
    configure=configure,
    settings=(
        "efficiencies by size, latencies and factors of collectives: those of its "
        "`a100_80g.json` for A100, of `h100_80g_nvl8.json` for later products"
    ),
    reasons={
        "Mem tier1": "does not fit in memory",
        "interleaving must|interleaving should": "chunks of unequal length",
        "isn't fully used": "a group that fills no part of a node evenly",
    },
)
