"""The five grains of the cluster estimator, and which inputs each of them reads."""

from __future__ import annotations

from estimators.columns import names_in
from estimators.contract import Relation

SHAPE = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "uses_glu", "num_heads", "num_kv_heads"),
    *("seq_len", "vocab_size"),
)
MODEL = ("model", *SHAPE)
RUN = (
    *("parameters", "active_parameters", "dataset_tokens"),
    *("accelerator", "peak_flops_per_second", "hbm_bytes", "usd_per_gpu_hour"),
    *("target_step_seconds", "available_gpus", "goodput"),
)
SITES = (
    *("idle_num_gpus", "site_a", "site_b"),
    *("latitude_a", "longitude_a", "latitude_b", "longitude_b"),
)
POWER = ("watts_per_gpu", "pue", "usd_per_kwh", "kg_co2e_per_kwh")
PROBLEM = (*MODEL, *RUN, *SITES, *POWER)
CHOICES = ("activation_recompute", "site_links", "exchange", "overlaps_exchange", "medium")
INPUTS = ("tokens_per_parameter", "global_batch_tokens")
"""Inputs that give other values: the tokens of the data set, the sequences held in memory."""

LAYER_PARTS = tuple(name for name in names_in("Cluster") if name.startswith("layer_"))
"""The activations of one layer, part by part."""

BATCH = ("global_batch_tokens", "mfu")
REAL = frozenset({"num_gpus"})


def _unread(*read: str) -> frozenset[str]:
    """Return the inputs that a relation does not read."""
    return frozenset((*PROBLEM, *CHOICES, *INPUTS)) - frozenset(read)


_RUN = (*MODEL, *RUN, *BATCH, "activation_recompute", "tokens_per_parameter")
_MEMORY = (*MODEL, "accelerator", "hbm_bytes", "activation_recompute")
_SITES = ("site_links", "exchange", "overlaps_exchange")

COMPUTE = Relation(
    "cluster_compute",
    grain="one row per run: a model, its tokens, a batch and a rate",
    keys=(*BATCH, "gradient_accumulation"),
    measures=(
        *("critical_batch_tokens", "num_steps", "num_gpus_for_flops", "num_gpus_for_memory"),
        *("num_gpus", "step_seconds", "training_seconds"),
    ),
    derived=("total_flops", "step_flops", "num_gpus_unrounded", "gpu_hours", "cost_usd"),
    compression={"critical_batch_tokens": "rle"},
    real=REAL,
    stored_in="cluster_compute_row",
    unread=_unread(*_RUN),
)
COMMUNICATION = Relation(
    "cluster_communication",
    grain="one row per run and way to all-reduce gradients between its sites",
    keys=(
        *(*BATCH, "num_sites", "site_bytes_per_second"),
        *("gradient_bytes_per_parameter", "sync_interval_steps"),
    ),
    measures=(
        *("num_steps", "num_gpus", "step_seconds", "training_seconds"),
        *("gradient_bytes", "exchange_bytes", "num_exchanges", "exchange_seconds", "sync_seconds"),
    ),
    derived=("sync_fraction", "hiding_interval_steps", "idle_gpu_seconds", "idle_cost_usd"),
    real=REAL,
    stored_in="cluster_communication_row",
    unread=_unread(*_RUN, "idle_num_gpus", *_SITES),
)
LATENCY = Relation(
    "cluster_latency",
    grain="one row per run, pair of sites and interval between all-reduces",
    keys=(*BATCH, "sync_interval_steps"),
    measures=(
        *("num_steps", "num_gpus", "training_seconds", "num_exchanges"),
        *("distance_km", "latency_seconds"),
    ),
    derived=("total_latency_seconds", "idle_gpu_seconds", "idle_cost_usd"),
    real=REAL,
    stored_in="cluster_latency_row",
    unread=_unread(*_RUN, *SITES, "medium"),
)
ELECTRICITY = Relation(
    "cluster_electricity",
    grain="one row per run with the power of its GPUs",
    keys=BATCH,
    measures=("num_steps", "num_gpus", "step_seconds", "training_seconds"),
    derived=(
        *("power_watts", "energy_joules", "energy_kwh", "step_energy_kwh"),
        *("facility_energy_kwh", "electricity_usd", "kg_co2e"),
    ),
    real=REAL,
    stored_in="cluster_electricity_row",
    unread=_unread(*_RUN, *POWER),
)
MEMORY = Relation(
    "cluster_memory",
    grain="one row per model, sequences held at once and way to shard its state",
    keys=(
        *("batch_sequences", "zero_stage", "data_parallel", "tensor_parallel"),
        *("pipeline_parallel", "uses_sequence_parallel"),
    ),
    measures=(
        *("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"),
        *("kv_cache_bytes", *LAYER_PARTS),
    ),
    derived=("memory_bytes", "inference_bytes"),
    stored_in="cluster_memory_row",
    unread=_unread(*_MEMORY, "parameters", "global_batch_tokens"),
)
RELATIONS = (COMPUTE, COMMUNICATION, LATENCY, ELECTRICITY, MEMORY)

OWN = {
    COMMUNICATION.name: frozenset({*COMMUNICATION.keys, *_SITES, "idle_num_gpus"})
    - {*BATCH, "sync_interval_steps"},
    LATENCY.name: frozenset({*SITES[1:], "medium"}),
    ELECTRICITY.name: frozenset(POWER),
    MEMORY.name: frozenset(MEMORY.keys),
}
"""Relation -> inputs that only it reads: a study that gives one of them gets the relation's rows.
"""
