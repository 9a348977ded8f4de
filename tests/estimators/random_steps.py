"""Random training steps on the machines of the catalog: any program, model, shape and layout.

`steps_on` draws rows of inputs as a user gives them, and keeps those that no rule refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Array
from estimators.inputs import records
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from estimators.training_step.inputs import SHAPE
from estimators.training_step.step import TIMES
from warehouse.database.catalog import packaged_catalog

CATALOG = packaged_catalog()
MACHINES = sorted(CATALOG.tables["accelerator"])
RESULTS = (*TIMES, "step_seconds", "memory_bytes")

Columns = dict[str, Array]


def missing(values: Array) -> Array:
    """Return where a column has no value."""
    is_number = values.dtype.kind in "fi"
    return np.isnan(values) if is_number else np.equal(values, np.array(None)).astype(bool)


def kept(columns: Mapping[str, Array], rows: Array) -> Columns:
    """Return some rows of every column."""
    return {name: values[rows] for name, values in columns.items()}


def resolved(columns: Mapping[str, Array]) -> tuple[Columns, Array]:
    """Return the completed columns of rows, and which rows no rule refuses."""
    complete, refusals = TRAINING_STEP.resolve(RELATION, columns, CATALOG, PUBLISHED)
    is_good = np.ones(len(next(iter(columns.values()))), dtype=bool)
    for refusal in refusals:
        is_good[slice(None) if refusal.row is None else refusal.row] = False
    return dict(complete), is_good


def results(columns: Mapping[str, Array]) -> Columns:
    """Return `RESULTS` of rows, NaN where a rule refuses one."""
    complete, is_good = resolved(columns)
    good = kept(complete, is_good)
    size = np.count_nonzero(is_good)
    out: Columns = {name: np.empty(size, dtype=COLUMNS[name].dtype) for name in RESULTS}
    if size:
        TRAINING_STEP.estimate(RELATION, good, good, PUBLISHED, out, CATALOG)
    found = {}
    for name in RESULTS:
        found[name] = np.full(len(is_good), np.nan)
        found[name][is_good] = out[name]
    return found


@cache
def steps_on(machine: str, number: int) -> tuple[Columns, Columns]:
    """Return `number` rows that can run on a machine, and their completed columns."""
    rng = np.random.default_rng(crc32(machine.encode()))
    rows: Columns = {}
    while not rows or len(rows["seq_len"]) < number:
        drawn = _drawn(rng, machine, 4 * number)
        drawn = kept(drawn, resolved(drawn)[1])
        rows = {name: np.concatenate([rows[name], drawn[name]]) for name in rows} or drawn
    rows = kept(rows, np.arange(number))
    return rows, resolved(rows)[0]


def unnamed(rows: Mapping[str, Array], complete: Mapping[str, Array]) -> Columns:
    """Return rows whose models are given as shapes, without a name."""
    rest = {name: values for name, values in rows.items() if name != "model"}
    return {**rest, **{name: complete[name] for name in SHAPE}}


def text_of(rows: Mapping[str, Array], row: int) -> str:
    """Return the inputs of a row as `warehouse why` takes them."""
    [record] = records({name: values[row : row + 1] for name, values in rows.items()})
    given = {name: value for name, value in record.items() if value is not None}
    return " ".join(f"'{name}={value}'" for name, value in given.items())


# ---- drawing ----

PARTS = ["core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj+layernorm"]
ROUTINGS = ["balanced", "power_law_1.01", "power_law_1.2"]
SCHEDULES = ["zb_h1", "zb_h2", "zbv", "dualpipe", "dualpipev"]


@dataclass(frozen=True)
class Draw:
    """Draws columns of a number of rows."""

    rng: np.random.Generator
    size: int

    def some(self, values: Sequence[Any], share: float = 1.0) -> Array:
        """Return one of `values` in a share of the rows, nothing in the others."""
        is_number = isinstance(values[0], int) and not isinstance(values[0], bool)
        column = np.array(values, dtype=float if is_number else object)
        column = column[self.rng.integers(len(values), size=self.size)]
        column[~self.flags(share)] = np.nan if is_number else None
        return column

    def power(self, least: int, most: int, share: float = 1.0) -> Array:
        """Return powers of two in a share of the rows, nothing in the others."""
        return self.some([2**exponent for exponent in range(least, most + 1)], share)

    def odd(self, values: Sequence[int], others: Array) -> Array:
        """Return one of `values` in a tenth of the rows, and those of a column in the others."""
        return np.where(self.flags(0.1), self.some(values), others)

    def flags(self, share: float) -> Array:
        return self.rng.random(self.size) < share


def where(rows: Array, column: Array) -> Array:
    """Return a column that has values in some rows only."""
    column = column.copy()
    column[~rows] = None if column.dtype == object else np.nan
    return column


def _drawn(rng: np.random.Generator, machine: str, size: int) -> Columns:
    """Return rows of inputs; most break a rule."""
    draw = Draw(rng, size)
    some = draw.some
    shape = _shapes(draw)
    models = CATALOG.tables["model"]
    known = [(name and models[name].get("num_experts")) or 1 for name in shape["model"].tolist()]
    experts = np.where(np.isnan(shape["num_experts"]), known, shape["num_experts"])
    precision = some(["bf16", "bf16", "bf16", "fp16", "fp8", "fp8", "fp4"], 0.8)
    recipe = some(["delayed", "tensorwise", "blockwise", "mxfp8"], 0.5)
    return {
        **shape,
        "accelerator": np.full(size, machine, dtype=object),
        "framework": some(sorted(CATALOG.tables["framework"]), 0.6),
        **_layouts(draw),
        **_mixtures(draw, experts),
        "zero_stage": some([0, 1, 2, 3], 0.4),
        "activation_recompute": some(["none", "selective", "full"], 0.8),
        "recompute_modules": some(PARTS, 0.15),
        "precision": precision,
        "number_recipe": where(precision == "fp8", recipe),
        "attention": some(["flash", "unfused"], 0.25),
        "kernels": some(["formula"], 0.1),
        "uses_cuda_graphs": some([True, False], 0.1),
    }


def _layouts(draw: Draw) -> Columns:
    """Return degrees of parallelism, batches and the order of the passes."""
    some = draw.some
    degrees = {
        "tensor_parallel": draw.power(0, 3),
        "pipeline_parallel": draw.odd([3, 5, 6, 12], draw.power(0, 4)),
        "context_parallel": np.nan_to_num(draw.power(1, 3, 0.25), nan=1),
        "data_parallel": draw.odd([3, 5, 6], draw.power(0, 8)),
    }
    is_piped = degrees["pipeline_parallel"] > 1
    microbatch, number = draw.power(0, 2), draw.odd([3, 12], draw.power(0, 6))
    chunks = where(is_piped, some([1, 1, 2, 3, 4]))
    is_grouped = (chunks > 1) & draw.flags(0.3)
    splits = where(degrees["tensor_parallel"] > 1, some([True, False], 0.3))
    return {
        **degrees,
        "uses_sequence_parallel": splits,
        "microbatch_size": microbatch,
        "num_gpus": np.prod([*degrees.values()], axis=0),
        "global_batch_size": degrees["data_parallel"] * microbatch * number,
        "virtual_pipeline": chunks,
        "microbatch_group": where(is_grouped, degrees["pipeline_parallel"]),
        "schedule": where(is_piped, some(SCHEDULES, 0.2)),
        "counts_embedding": where(is_piped, some([True], 0.1)),
        "counts_loss": where(is_piped, some([True], 0.1)),
        "layers_in_first_stage": where(is_piped, some([1, 2, 3, 6], 0.1)),
        "layers_in_last_stage": where(is_piped, some([1, 2, 3, 6], 0.1)),
    }


def _mixtures(draw: Draw, experts: Array) -> Columns:
    """Return where the experts of mixtures are, and how tokens reach them."""
    parallel = np.gcd(experts.astype(int), draw.power(0, 6).astype(int)).astype(float)
    columns = {
        "expert_parallel": parallel,
        "expert_tensor_parallel": draw.power(0, 2, 0.3),
        "dispatcher": draw.some(["alltoall", "allgather", "flex"], 0.4),
        "expert_routing": draw.some(ROUTINGS, 0.3),
        "overlaps_expert_comm": draw.some([True, False], 0.3),
        "overlaps_shared_experts": draw.some([True], 0.1),
    }
    return {name: where(experts > 1, column) for name, column in columns.items()}


def _shapes(draw: Draw) -> Columns:
    """Return named models, and in a third of the rows a shape without a name."""
    some, own = draw.some, draw.flags(0.35)
    heads, head_size = some([8, 16, 32, 40, 64, 96]), some([64, 80, 128])
    hidden, is_gated = heads * head_size, draw.flags(0.6)
    width = np.where(is_gated, 256 * (hidden * 8 // 768 + 1), 4 * hidden)
    dense = {
        "num_layers": some([4, 8, 12, 24, 30, 32, 46, 48, 61, 64, 96]),
        "hidden_size": hidden,
        "num_heads": heads,
        "uses_glu": is_gated.astype(object),
        "ffn_hidden_size": width,
        "vocab_size": some([32_000, 50_257, 128_256]),
        "ties_embedding": some([True, False]),
        "num_mtp_layers": some([1], 0.1),
    }
    mixture = {
        "num_experts": some([8, 16, 64, 160]),
        "experts_per_token": some([1, 2, 6]),
        "expert_ffn_hidden_size": some([768, 1536, 4096]),
        "num_shared_experts": some([1, 2], 0.3),
        "num_dense_layers": some([1, 3], 0.3),
    }
    latent = {
        "q_lora_rank": some([1536]),
        "kv_lora_rank": some([512]),
        "qk_head_size": some([192]),
        "qk_rotary_size": some([64]),
        "v_head_size": some([128]),
    }
    windows = {
        "attention_window": some([128, 1024, 4096]),
        "window_period": some([2, 4]),
    }
    is_latent = draw.flags(0.2)
    kinds = (
        (own, dense),
        (own & draw.flags(0.35), mixture),
        (own & is_latent, latent),
        (own & ~is_latent, {"num_kv_heads": np.minimum(some([1, 4, 8, 96]), heads)}),
        (own & ~is_latent & draw.flags(0.2), windows),
    )
    return {
        "model": where(~own, some(sorted(CATALOG.tables["model"]))),
        "seq_len": np.where(own, draw.power(10, 15), draw.power(10, 15, 0.5)),
        **{name: where(rows, column) for rows, of in kinds for name, column in of.items()},
    }
