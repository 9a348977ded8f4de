"""Columns of the cluster estimator: a run's budget, its sites, its electricity, its memory."""

from __future__ import annotations

from estimators.columns.column import Column, count, measure, positive, rate, text
from estimators.columns.forms import COST, PLAIN, SHARE
from estimators.columns.forms import POWER as MEGAWATTS

_RECOMPUTE = "arXiv 2205.05198"

_LAYER_PARTS = {
    "linear_proj_input": "input of the output projection",
    "attn_qkv_matmul": "shared input of the query, key and value products",
    "attn_qk_scores": "queries and keys",
    "attn_softmax": "softmax of the scores",
    "attn_dropout": "mask of the dropout of the scores",
    "attn_v": "dropped-out scores and values",
    "attn_drop_mask": "mask of the dropout after attention",
    "mlp": "feed-forward layer with its dropout mask",
    "ln": "inputs of both layer norms",
}

BUDGET = (
    positive("tokens_per_parameter", "tokens", "Tokens of the data set for each parameter"),
    Column(
        "global_batch_tokens",
        "float",
        "tokens",
        "Tokens of one step over the whole run",
        minimum=1,
        maximum=1e15,
    ),
    count("gradient_accumulation", "Batches that GPUs take one after the other in a step"),
    Column(
        "target_step_seconds",
        "float",
        "seconds",
        "Target time of a step, which sets the number of GPUs",
        minimum=1e-6,
        maximum=1e9,
    ),
    count(
        "available_gpus", "Available GPUs; if given, the time of a step follows from them", "GPUs"
    ),
    Column(
        "usd_per_gpu_hour",
        "float",
        "USD/GPU-hour",
        "Price of an hour of one GPU",
        above=0,
        maximum=1e9,
    ),
    positive("critical_batch_tokens", "tokens", "Batch beyond which more tokens add little"),
    measure("num_gpus_unrounded", "GPUs", "GPUs for the target time of a step, as a real number"),
    measure("num_gpus_for_flops", "GPUs", "GPUs that the arithmetic needs"),
    measure(
        "num_gpus_for_memory", "GPUs", "GPUs whose memory holds one copy of the training state"
    ),
)

SITES = (
    count("num_sites", "Sites that train together", "sites", maximum=1e6),
    rate("site_bytes_per_second", "bytes/s", "Bandwidth of the link between sites, one way"),
    Column(
        "gradient_bytes_per_parameter",
        "float",
        "bytes",
        "Bytes of one gradient on the way between sites: bf16 2, fp8 1, int4 0.5",
        above=0,
        maximum=64,
        shown_as=PLAIN,
    ),
    count("sync_interval_steps", "Steps between two exchanges; 1: every step", "steps"),
    text(
        "site_links", "Links: one that all sites share, or one for each site", "shared", "per_site"
    ),
    text(
        "exchange",
        "How gradients are exchanged: every site sends its own, a ring, or through a server",
        *("gather", "ring", "parameter_server"),
    ),
    Column("overlaps_exchange", "bool", "", "Whether the steps of an interval hide the exchange"),
    Column(
        "idle_num_gpus",
        "float",
        "GPUs",
        "GPUs that wait; by default those of the run",
        minimum=0,
        maximum=1e12,
    ),
    measure("gradient_bytes", "bytes", "Gradients of one exchange, one copy"),
    measure("exchange_bytes", "bytes", "Bytes over the busiest link in one exchange"),
    measure("num_exchanges", "", "Exchanges of the whole run"),
    measure("exchange_seconds", "seconds", "Time of one exchange"),
    measure("sync_seconds", "seconds", "Time that the run waits for exchanges"),
    measure("sync_fraction", "", "Share of the run that waits for exchanges", shown_as=SHARE),
    measure("hiding_interval_steps", "steps", "Smallest interval whose steps hide the exchange"),
    measure("idle_gpu_seconds", "GPU-seconds", "Time that GPUs wait"),
    measure("idle_cost_usd", "USD", "Rent of the GPUs while they wait", shown_as=COST),
    text("site_a", "One site"),
    text("site_b", "The other site"),
    *(
        Column(
            f"{place}_{end}",
            "float",
            "degrees",
            f"{place.capitalize()} of site_{end}",
            minimum=-limit,
            maximum=limit,
        )
        for end in ("a", "b")
        for place, limit in (("latitude", 90), ("longitude", 180))
    ),
    text("medium", "Medium of the signal: vacuum, or fibre at 2/3 of its speed", "vacuum", "fibre"),
    measure("distance_km", "km", "Great circle between the two sites"),
    measure("latency_seconds", "seconds", "Time of a signal from one site to the other"),
    measure("total_latency_seconds", "seconds", "latency_seconds times the exchanges of the run"),
)

POWER = (
    measure(
        "power_watts", "watts", "Power of the run's GPUs with their servers", shown_as=MEGAWATTS
    ),
    measure("energy_joules", "joules", "Energy of the run's GPUs with their servers"),
    measure("step_energy_kwh", "kWh", "Energy of one step"),
    measure("facility_energy_kwh", "kWh", "Energy of the run with the site's overhead (PUE)"),
    measure("electricity_usd", "USD", "Price of facility_energy_kwh"),
)

MEMORY = (
    Column(
        "batch_sequences",
        "float",
        "sequences",
        "Sequences whose activations one replica holds at once",
        above=0,
        maximum=1e15,
    ),
    measure("kv_cache_bytes", "bytes", "Keys and values of one sequence, for inference"),
    measure("inference_bytes", "bytes", "Weights and keys and values of one sequence"),
    *(
        measure(f"layer_{part}_bytes", "bytes", f"Activations of one layer: {what}", _RECOMPUTE)
        for part, what in _LAYER_PARTS.items()
    ),
)

LAYER_PARTS = tuple(f"layer_{part}_bytes" for part in _LAYER_PARTS)
"""The activations of one layer, part by part."""

CLUSTER = (*BUDGET, *SITES, *POWER, *MEMORY)
