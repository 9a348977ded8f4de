"""Which numbers of GPUs a plan tries, and which of them is best.

Limits on days, dollars or megawatts are met by trying powers of two, then three counts between
the best of them and the next; every layout of every count tried is stored. Without a limit on days
the fastest run that keeps within all limits is the best, with one the cheapest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from warehouse.plan.question import Asked, Run

REFINED = (5, 6, 7)
"""Quarters of a power of two that are tried between it and the next."""


def first_counts(run: Run, watts_per_gpu: float | None = None) -> list[int]:
    """Return the numbers of GPUs to try first: those asked for, or powers of two.

    Beside them one count to either side, to tell what it would give.

    Parameters
    ----------
    watts_per_gpu
        Power of one GPU with its share of the site; None: not known.

    Raises
    ------
    InputError
        If bounds that hold for every layout leave none.
    """
    asked = run.asked
    if asked.num_gpus is not None:
        half, is_odd = divmod(asked.num_gpus, 2)
        smaller = 2 ** (asked.num_gpus.bit_length() - 1) if is_odd else half
        return sorted({max(smaller, 1), asked.num_gpus, 2 * asked.num_gpus})
    by_memory, by_days = least_gpus_by_memory(run), least_gpus_by_days(run)
    by_power = math.inf
    if asked.limits.max_mw is not None and watts_per_gpu:
        by_power = asked.limits.max_mw * 1e6 / watts_per_gpu
    least, largest = max(by_memory, by_days), min(asked.max_gpus, by_power)
    if math.ceil(least) > largest:
        raise _no_counts(run, by_memory, by_days, by_power)
    powers = [2**n for n in range(asked.max_gpus.bit_length())]
    # one power to either side of the bounds: between them may lie the only counts that keep them
    return [n for n in powers if 2 * n >= least and n / 2 <= largest and 2 * n > by_memory]


def _no_counts(run: Run, by_memory: float, by_days: float, by_power: float) -> InputError:
    asked = run.asked
    hint = "raise --max-gpus"
    if asked.limits.days is not None and by_days > min(by_power, asked.max_gpus):
        why = (
            f"`--days` {asked.limits.days:g}: at the peak rate of {asked.accelerator} the run "
            f"takes {math.ceil(by_days):,} GPUs to end in time"
        )
        hint = "raise --days or --max-gpus"
    elif by_memory > min(by_power, asked.max_gpus):
        why = (
            f"`--model` {run.model}: its weights, gradients and optimizer state alone fill "
            f"{math.ceil(by_memory):,} GPUs"
        )
    else:
        why = f"what the limits leave is no whole number of GPUs from {math.ceil(by_days):,} up"
    if by_power < asked.max_gpus:
        return InputError(f"{why}, and --max-mw feeds {max(by_power, 0):,.1f}", "raise --max-mw")
    return InputError(f"{why}, and --max-gpus is {asked.max_gpus:,}", hint)


def least_gpus_by_memory(run: Run) -> float:
    """Return the GPUs that hold weights, gradients and optimizer state if all is sharded."""
    values = run.facts.problem
    parts = ("stored_weight_bytes", "stored_gradient_bytes", "stored_optimizer_bytes")
    if any(values.get(name) is None for name in parts):
        return 1.0
    state = run.parameters * sum(float(values[name] or 0) for name in parts)
    room = float(values["hbm_bytes"] or 0) - float(values["framework_bytes"] or 0)
    room -= run.asked.headroom_bytes
    return state / room if room > 0 else math.inf


def least_gpus_by_days(run: Run) -> float:
    """Return the GPUs that end the run in time at their peak rate; 1 without such a limit."""
    days = run.asked.limits.days
    return run.least_seconds_of_one_gpu / (days * 86400) if days is not None else 1.0


def counts_beside(run: Run, tried: Sequence[int], best: int) -> list[int]:
    """Return what to try between the best power of two and the next that may be better."""
    low = best // 2 if run.asked.takes_cheapest else best
    found = {low * quarter // 4 for quarter in REFINED if low >= 4}
    return sorted(n for n in found - set(tried) if n <= run.asked.max_gpus)


def nearest_count(asked: Asked, lines: Sequence[Mapping[str, Any]]) -> int:
    """Return the count beside which to look where none of those tried keeps within the limits.

    With a limit on days that is the smallest that ends in time, as what is too dear or draws too
    much there may do just before; without one it is the cheapest.
    """
    if asked.limits.days is not None:
        bound = asked.limits.days * 86400
        in_time = [line["num_gpus"] for line in lines if line["training_seconds"] <= bound]
        return int(min(in_time, default=2 * max(line["num_gpus"] for line in lines)))
    return int(min(lines, key=lambda line: line["gpu_hours"])["num_gpus"])


def within(asked: Asked, lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the lines that keep within every limit, the best one first."""
    limits = asked.limits
    bounds = {
        "training_seconds": None if limits.days is None else limits.days * 86400,
        "cost_usd": limits.budget_usd,
        "power_watts": None if limits.max_mw is None else limits.max_mw * 1e6,
    }
    kept = [
        line
        for line in lines
        if all(
            bound is None or (line[name] is not None and line[name] <= bound)
            for name, bound in bounds.items()
        )
    ]
    order = ("gpu_hours", "num_gpus") if asked.takes_cheapest else ("training_seconds", "gpu_hours")
    return sorted(kept, key=lambda line: tuple(line[name] for name in order))
