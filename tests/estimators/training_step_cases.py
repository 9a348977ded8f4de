"""Training steps whose constants are all given, so that no test depends on a reference table.

`IDEAL` is a machine on which everything is free but what a test prices: products run at the peak
on one multiprocessor (whose waves are always full), memory and networks are beyond need, nothing
has a latency, nothing overlaps. `step` and `steps` evaluate rows, `cells_of` and `evaluate_cell`
searches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Array, Catalog, Cell, Refusal
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from estimators.training_step.problem import Layout, Problem
from estimators.training_step.step import TIMES

CATALOG = Catalog({"framework": {"given": {"framework": "given"}}, "step_constant": {}})
"""A framework that says nothing, and no constants: a row has to bring its own."""

FREE = 1e30
"""A rate that makes a time negligible next to any other: the largest that is admitted."""

IDEAL: dict[str, Any] = {
    "framework": "given",
    "precision": "bf16",
    "attention": "flash",
    "activation_recompute": "none",
    "num_sms": 1,
    "matrix_flops_per_second": 1e12,
    "fp8_flops_per_second": 2e12,
    "fp4_flops_per_second": 4e12,
    "hbm_bytes_per_second": FREE,
    "hbm_bytes": 8e10,
    "nvlink_size": 8,
    "nvlink_bytes_per_second": FREE,
    "nvlink_efficiency": 1.0,
    "nvlink_latency_seconds": 0.0,
    "network_bytes_per_second": FREE,
    "network_efficiency": 1.0,
    "network_latency_seconds": 0.0,
    "nics_per_gpu": 1.0,
    "launch_seconds": 0.0,
    "kernels": "formula",
    "attention_program": "formula",
    "product_rate_factor": 1.0,
    "input_gradient_rate_factor": 1.0,
    "weight_gradient_rate_factor": 1.0,
    "narrow_product_rate_factor": 1.0,
    "short_product_rate_factor": 1.0,
    "backward_attention_rate_factor": 1.0,
    "attention_rate_factor": 1.0,
    "fp8_product_rate_factor": 1.0,
    "fp4_product_rate_factor": 1.0,
    "gemm_efficiency": 1.0,
    "fp8_gemm_efficiency": 1.0,
    "fp4_gemm_efficiency": 1.0,
    "gemm_half_depth": 0.0,
    "small_tile_efficiency": 1.0,
    "hbm_efficiency": 1.0,
    "transposes_operands": True,
    "flash_forward_efficiency": 1.0,
    "flash_backward_efficiency": 1.0,
    "collective_seconds": 0.0,
    "communication_sm_fraction": 0.0,
    "overlap_slowdown": 1.0,
    "tensor_exchange_sm_fraction": 0.0,
    "gradient_overlap_fraction": 0.0,
    "parameter_overlap_fraction": 0.0,
    "tensor_overlap_fraction": 0.0,
    "context_overlap_fraction": 0.0,
    "expert_overlap_fraction": 0.0,
    "pipeline_overlap_fraction": 0.0,
    "uses_dropout": False,
    "reduces_all_gradients": False,
    "waits_for_sharded_gradients": False,
    "aligns_exchanges": True,
    "keeps_gathered_weights": False,
    "shard_copy_seconds": 0.0,
    "pipeline_hop_seconds": 0.0,
    "regathers_for_recompute": False,
    "splits_tensor_exchanges": False,
    "starts_with_own_shard": False,
    "fuses_elementwise": True,
    "stored_weight_bytes": 2.0,
    "stored_gradient_bytes": 2.0,
    "stored_optimizer_bytes": 12.0,
    "reduced_gradient_bytes": 2.0,
    "gathered_weight_bytes": 2.0,
    "optimizer_traffic_bytes": 0.0,
    "buffer_traffic_bytes": 0.0,
    "gate_forward_bytes": 6.0,
    "gate_backward_bytes": 10.0,
    "stored_gate_bytes": 6.0,
    "forward_copy_bytes": 0.0,
    "backward_copy_bytes": 0.0,
    "copies_grouped_queries": False,
    "unvectorized_seconds": 0.0,
    "unvectorized_gate_forward": 0.0,
    "unvectorized_gate_backward": 0.0,
    "unvectorized_copy_forward": 0.0,
    "unvectorized_copy_backward": 0.0,
    "unvectorized_loss": 0.0,
    "accumulation_traffic_bytes": 0.0,
    "loss_traffic_bytes": 0.0,
    "embedding_gradient_bytes": 0.0,
    "stored_logit_bytes": 0.0,
    "reserved_logit_bytes": 0.0,
    "stored_norm_bytes": 0.0,
    "stored_routed_bytes": 2.0,
    "exchange_buffer_bytes": 0.0,
    "waiting_exchange_bytes": 0.0,
    "fragmentation": 1.0,
    "communicator_bytes": 0.0,
    "graph_bytes": 0.0,
    "exchange_buckets": 1.0,
    "host_seconds_per_layer": 0.0,
    "host_seconds_per_launch": 0.0,
    "forward_launches": 0.0,
    "backward_launches": 0.0,
    "vocabulary_launches": 0.0,
    "optimizer_launches": 0.0,
    "uses_cuda_graphs": False,
    "captures_attention": True,
    "captures_whole_steps": False,
    "recomputes_operations": False,
    "stops_recompute_early": False,
    "balances_stages": False,
    "framework_bytes": 0.0,
    "power_limit_watts": 1000.0,
    "gpu_idle_watts": 0.0,
    "gemm_joules_per_flop": 0.0,
    "fp8_gemm_joules_per_flop": 0.0,
    "fp4_gemm_joules_per_flop": 0.0,
    "attention_joules_per_flop": 0.0,
    "memory_joules_per_byte": 0.0,
    "clock_at_limit": 1.0,
    "power_exponent": 3.0,
    "transfer_watts": 0.0,
    "clock_spread": 0.0,
    "accumulating_product_ratio": 1.0,
    "alltoall_efficiency": 1.0,
    "flex_efficiency": 1.0,
    "flex_serial_fraction": 0.0,
    "flex_seconds": 0.0,
    "overlapped_expert_fraction": 1.0,
    "pair_ring_share": 1.0,
    "all_reduce_ratio": 1.0,
    "exchange_copy_bytes": 0.0,
    "host_watts": 0.0,
}

GPT: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 512,
    "ffn_hidden_size": 2048,
    "num_heads": 4,
    "seq_len": 1024,
}
"""Four layers of 12 x 512^2 = 3,145,728 weights; sides are multiples of every tile."""

LLAMA: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 512,
    "ffn_hidden_size": 1024,
    "uses_glu": True,
    "num_heads": 4,
    "num_kv_heads": 2,
    "seq_len": 1024,
}
"""Gated, without biases, two queries a key: 2 x 512^2 + 2 x 512 x 256 + 3 x 512 x 1024 + 2 x 512
= 524,288 + 262,144 + 1,572,864 + 1,024 = 2,360,320 parameters a layer."""

LLAMA_LAYER = 2_360_320

MOE: dict[str, Any] = {
    **LLAMA,
    "num_experts": 8,
    "experts_per_token": 2,
    "expert_ffn_hidden_size": 256,
}
"""Eight experts of 3 x 512 x 256 = 393,216; attention and norms 787,456, router 512 x 8 = 4,096."""

OUTPUTS = RELATION.outputs
MEMORY = (
    *("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"),
    *("logits_bytes", "gathered_bytes"),
)

Row = Mapping[str, Any]
Found = dict[str, Array]


def _columns(rows: Sequence[Row]) -> dict[str, Array]:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if COLUMNS[name].kind in ("int", "float"):
            columns[name] = np.array([np.nan if v is None else v for v in values], dtype=float)
        else:
            columns[name] = np.array([*values, None], dtype=object)[:-1]
    return columns


def resolve(
    rows: Sequence[Row], catalog: Catalog = CATALOG
) -> tuple[dict[str, Array], list[Refusal]]:
    """Return the completed columns of rows, and what is refused."""
    columns, refusals = TRAINING_STEP.resolve(RELATION, _columns(rows), catalog, PUBLISHED)
    return dict(columns), refusals


def problem_of(row: Row) -> tuple[Problem, Layout]:
    """Return the problem of a row, and its layout as a table of one row; nothing may be refused."""
    columns, refusals = resolve([{**IDEAL, **row}])
    assert not refusals, refusals
    problem = Problem.of({name: column[0] for name, column in columns.items()})
    return problem, Layout.of(columns)


def problem_with(catalog: Catalog | None = None, **columns: Any) -> Problem:
    """Return a problem that has some columns; those that any problem needs are of a dense model."""
    needed = {
        "num_layers": 1,
        "num_dense_layers": 0,
        "num_experts": 1,
        "kernels": "formula",
        "number_recipe": "none",
        "transposes_operands": True,
        "overlaps_expert_comm": False,
        "activation_recompute": "none",
    }
    return Problem.of({**needed, **columns}, catalog)


def allocated(size: int, names: Sequence[str] = OUTPUTS) -> Found:
    return {name: np.full(size, 7, dtype=COLUMNS[name].dtype) for name in names}


def estimate(resolved: Mapping[str, Array], catalog: Catalog = CATALOG) -> Found:
    """Return the results of resolved columns."""
    out = allocated(len(resolved["seq_len"]))
    TRAINING_STEP.estimate(RELATION, resolved, resolved, PUBLISHED, out, catalog)
    return out


def evaluate(rows: Sequence[Row], catalog: Catalog = CATALOG) -> Found:
    """Return the results of rows, none of which may be refused, by column."""
    resolved, refusals = resolve(rows, catalog)
    assert not refusals, refusals[:3]
    return estimate(resolved, catalog)


def steps(*rows: Row, catalog: Catalog = CATALOG) -> list[dict[str, Any]]:
    """Return the results of rows on the ideal machine, but for what they say."""
    found = evaluate([{**IDEAL, **row} for row in rows], catalog)
    return [{name: column[i].item() for name, column in found.items()} for i in range(len(rows))]


def step(shape: Row, **changes: Any) -> dict[str, Any]:
    """Return the results of one step on the ideal machine, but for `changes`."""
    return steps({**shape, **changes})[0]


def step_with(shape: Row, *changes: Row) -> list[dict[str, Any]]:
    """Return the results of one shape under several changes."""
    return steps(*({**shape, **change} for change in changes))


def cells_of(space: Mapping[str, Any], catalog: Catalog = CATALOG) -> list[Cell]:
    """Return the cells of a space; a single value need not be in a list."""
    lists = {name: v if isinstance(v, list) else [v] for name, v in space.items()}
    TRAINING_STEP.search.check(lists, catalog, PUBLISHED)
    return list(TRAINING_STEP.search.cells(lists, catalog, PUBLISHED))


def layouts_of(cell: Cell, max_rows: int = 16_384) -> Found:
    """Return every layout of a cell."""
    chunks = list(TRAINING_STEP.search.layouts(cell, max_rows))
    names = RELATION.keys
    if not chunks:
        return {name: np.empty(0, dtype=COLUMNS[name].dtype) for name in names}
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}


def estimate_cell(cell: Cell, layouts: Mapping[str, Array], catalog: Catalog = CATALOG) -> Found:
    """Return the results of some layouts of a cell, evaluated with its values as scalars."""
    out = allocated(len(layouts["zero_stage"]))
    TRAINING_STEP.estimate(RELATION, cell.values, layouts, PUBLISHED, out, catalog)
    return out


def evaluate_cell(cell: Cell, max_rows: int = 16_384) -> tuple[Found, Found]:
    """Return every layout of a cell, and the results, evaluated chunk by chunk."""
    found = [estimate_cell(cell, c) for c in TRAINING_STEP.search.layouts(cell, max_rows)]
    results = {name: np.concatenate([each[name] for each in found]) for name in OUTPUTS}
    return layouts_of(cell, max_rows), results


def as_rows(cell: Cell, layouts: Mapping[str, Array]) -> Found:
    """Return a cell's layouts as resolved columns of a batch: each row with its own values."""
    size = len(layouts["zero_stage"])
    problem = {
        name: np.full(
            size,
            cell.values.get(name, np.nan if COLUMNS[name].kind in ("int", "float") else None),
            dtype=object if COLUMNS[name].kind == "str" else None,
        )
        for name in (*TRAINING_STEP.problem_columns, *TRAINING_STEP.choice_columns)
    }
    return {**problem, **layouts}


def total(found: Mapping[str, Any]) -> Any:
    """Return the sum of the parts of a step."""
    return sum(found[name] for name in TIMES)
