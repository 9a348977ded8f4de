"""Steps, FLOPs, GPUs and time of a run.

Source: xrsrke/hf-notebooks diloco/utils.py @dfaef07; 6 FLOPs a parameter and token as in
arXiv 2001.08361 section 2.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Columns, Mends, Values
from estimators.transformer import activations, number

STATE_BYTES = 16
"""Bytes of a parameter's weight, gradient and Adam state in mixed precision (2 + 2 + 12)."""


def budget(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return steps, FLOPs, GPUs, time and cost.

    A step of 6 FLOPs a parameter and token takes the GPUs that finish it in `target_step_seconds`
    at ``peak x mfu``; under C12 also those that hold the training state. If `available_gpus` gives
    their number, the time of a step follows from it. The run takes ``steps x step / goodput``.
    """
    size, active = number(values, "parameters"), number(values, "active_parameters")
    tokens, batch = number(values, "dataset_tokens"), number(layouts, "global_batch_tokens")
    accumulation = number({"gradient_accumulation": 1, **layouts}, "gradient_accumulation")
    reached = number(values, "peak_flops_per_second") * number(layouts, "mfu")
    step_flops = 6 * active * batch
    in_time = reached * number(values, "target_step_seconds")

    for_flops = _gpus_for_flops(step_flops, in_time, accumulation, mends)
    for_memory = _gpus_for_memory(values, batch / accumulation, mends)
    needed = np.maximum(for_flops, for_memory) if "C12" in mends else for_flops
    at_hand = number(values, "available_gpus")
    gpus = np.where(np.isnan(at_hand), needed, at_hand)
    # As published, accumulation makes the run longer and not the step.
    at_once = gpus if "C11" in mends else np.where(np.isnan(at_hand), gpus * accumulation, gpus)
    num_steps = ceil_divide(tokens, batch) if "C15" in mends else np.floor_divide(tokens, batch)
    seconds = num_steps * _over(step_flops, gpus * reached) / number(values, "goodput")
    hours = gpus * seconds / 3600
    return {
        "critical_batch_tokens": critical_batch(size, active, tokens, mends),
        "num_steps": num_steps,
        "total_flops": 6 * active * tokens,
        "step_flops": step_flops,
        "num_gpus_unrounded": step_flops / in_time,
        "num_gpus_for_flops": for_flops,
        "num_gpus_for_memory": for_memory,
        "num_gpus": gpus,
        "step_seconds": _over(step_flops, at_once * reached),
        "training_seconds": seconds,
        "gpu_hours": hours,
        "cost_usd": hours * number(values, "usd_per_gpu_hour"),
    }


def critical_batch(size: Any, active: Any, tokens: Any, mends: Mends) -> Any:
    """Return the critical batch in tokens: 0.2920 C^0.3271 (arXiv 2401.02954 section 3.1).

    C is the compute of the run, 6 FLOPs a parameter and token. The source puts the number of
    parameters in place of C, and takes the result for sequences of 4,096 tokens (C9).
    """
    if "C9" in mends:
        return 0.2920 * (6 * active * tokens) ** 0.3271
    return 4096 * 0.2920 * size**0.3271


def ceil_divide(number: Any, by: Any) -> Any:
    """Return a quotient rounded up."""
    return -np.floor_divide(-number, by)


def _gpus_for_flops(step_flops: Any, in_time: Any, accumulation: Any, mends: Mends) -> Any:
    """Return the GPUs that finish a step in time; accumulation divides their number."""
    if "C11" in mends:
        return np.maximum(ceil_divide(step_flops, in_time * accumulation), 1)
    return np.floor_divide(step_flops, in_time) / accumulation


def _gpus_for_memory(values: Values, tokens: Any, mends: Mends) -> Any:
    """Return the GPUs that hold one copy of the state, and the activations if the shape is known.

    The source takes the tokens of a batch for its sequences (C13).
    """
    sequences = tokens / number(values, "seq_len") if "C13" in mends else tokens
    kept = activations(
        activation_shape(values, mends), sequences, values.get("activation_recompute")
    )
    state = STATE_BYTES * number(values, "parameters")
    return ceil_divide(state + np.nan_to_num(kept), number(values, "hbm_bytes"))


def activation_shape(values: Values, mends: Mends) -> Values:
    """Return the shape for the activations: as published, that of a plain GPT (C18)."""
    if "C18" in mends:
        return values
    plain = {"num_kv_heads": values.get("num_heads"), "uses_glu": False}
    return {**values, **plain, "ffn_hidden_size": 4 * number(values, "hidden_size")}


def _over(work: Any, rate: Any) -> Any:
    """Return work over rate in seconds; zero where no GPU works, as in the source."""
    with np.errstate(all="ignore"):
        return np.where(np.equal(rate, 0), 0.0, work / rate)
