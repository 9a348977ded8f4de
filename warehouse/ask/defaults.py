"""Defaults that follow from a model and an accelerator: the batch, the NVLink domain."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from estimators.accelerators import product_of
from estimators.contract import RefusedError, Scalar
from estimators.decoder import parameters
from estimators.training_step.estimator import FLAGS, with_derived
from estimators.training_step.inputs import NEEDED as SHAPE
from warehouse.database.catalog import packaged_catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from estimators.contract import Estimator

OWN_MODEL = "a model of one's own"
"""What a model is called that is given by its shape alone."""

BATCH_RULE = "2,048^2 tokens at 1e25 FLOPs, with the sixth root of the FLOPs, to a power of two"
"""How large a batch is unless it is given; source: davidsj/ml_par_sim run_optimizer2.ipynb."""


def with_model_hint(error: RefusedError, given: Iterable[str]) -> RefusedError:
    """Return the error of an unknown model or an incomplete shape with what to do about it.

    Parameters
    ----------
    given
        Names of the inputs that were given.
    """
    missing = [name for name in SHAPE if name not in given]
    shape = f"or give its shape: {' '.join(f'{name}=...' for name in missing)}"
    listing = '`warehouse sql "select model from model"` lists all'
    refusals = []
    for one in error.refusals:
        if one.column == "model" and "table" in one.reason:
            own = shape if missing else "or leave it out beside the shape"
            refusals.append(replace(one, hint=f"{one.hint}; {listing}; {own}"))
        elif one.column in SHAPE and one.reason == "is missing":
            refusals.append(replace(one, hint=f"name a model: {listing}; {shape}"))
        else:
            refusals.append(one)
    return RefusedError(refusals)


def layer_parameters(problem: Mapping[str, Scalar]) -> tuple[float, float]:
    """Return the parameters of all layers, and of those a token passes through."""
    neutral = {"num_experts": 1, "experts_per_token": 1, "num_shared_experts": 0}
    neutral |= {"num_dense_layers": 0}
    shape = {**neutral, **problem, "vocab_size": None}
    shape.setdefault("num_kv_heads", shape["num_heads"])
    shape.setdefault("head_size", int(shape["hidden_size"] or 0) // int(shape["num_heads"] or 1))
    shape.setdefault("expert_ffn_hidden_size", shape["ffn_hidden_size"])
    for name in FLAGS:
        shape.setdefault(name, False)
    shape |= {"precision": None, "fp8_flops_per_second": None}
    count = parameters(with_derived(shape))
    layers = float(shape["num_layers"] or 0)
    share = float(shape["experts_per_token"] or 1) / float(shape["num_experts"] or 1)
    whole, active = count.layer + count.experts, count.layer + share * count.experts
    return float(layers * whole), float(layers * active)


def default_batch(active_parameters: float, tokens: float, seq_len: int) -> int:
    """Return the sequences of a step by `BATCH_RULE`."""
    flops = 6 * active_parameters * tokens
    sequences = 2048**2 * (flops / 1e25) ** (1 / 6) / seq_len
    return int(2 ** max(round(math.log2(sequences)), 0))


def sold_domain(estimator: Estimator, accelerator: str) -> dict[str, Scalar]:
    """Return the GPUs of a domain as an accelerator, or what a system stands for, is sold.

    Empty of a system that is no product, and for an estimator that takes it from there itself.
    """
    if "framework" in estimator.problem_columns:
        return {}
    catalog = packaged_catalog()
    records = catalog.tables["accelerator"]
    for table in ("accelerator", "system"):
        try:
            name = catalog.find(table, accelerator)["accelerator"]
        except RefusedError:
            continue
        sold = records.get(product_of(catalog, name) or "", {}).get("gpus_per_node")
        if sold is not None:
            return {"nvlink_size": int(sold)}
    return {}
