"""The GPU counts of a plan as people read them: figures, notes, and how the plan's compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warehouse.plan.compare import better_batch, missing_factor, no_faster_counts
from warehouse.plan.servers import is_sold, server_size

if TYPE_CHECKING:
    from warehouse.plan.answer import PlanAnswer

_SLOW = "slow_training_seconds"

_COLUMNS = (
    *("num_gpus", "training_seconds", _SLOW, "gpu_hours", "cost_usd", "energy_kwh"),
    *("power_watts", "mfu", "memory_bytes"),
)


def count_rows(answer: PlanAnswer) -> list[dict[str, Any]]:
    """Return the figures of each count, and a note: no layout, the plan's, no faster than another.

    Within limits these are all counts that were tried, else the plan's and those next to it.
    """
    has_limits = bool(answer.run.request.limits)
    place = list(answer.counts).index(answer.own_count)
    lines = answer.counts if has_limits else answer.counts[max(place - 1, 0) : place + 2]
    has_slow = any(line.get(_SLOW) is not None for line in lines)
    columns = [name for name in _COLUMNS if has_slow or name != _SLOW]
    no_faster = no_faster_counts(answer.run, answer.fitting_counts)
    rows = []
    for line in lines:
        chosen = "best" if has_limits else "asked for"
        mark = chosen if line["num_gpus"] == answer.num_gpus else None
        if mark is None and has_limits and line["num_gpus"] in answer.within_limits:
            mark = "within the limits"
        why = no_faster.get(line["num_gpus"])
        notes = (line["note"], mark, why and why.in_words(answer.run.batch))
        note = "; ".join(each for each in notes if each)
        rows.append({**{name: line.get(name) for name in columns}, "note": note})
    return rows


def batch_to_try(answer: PlanAnswer) -> int | None:
    """Return a batch with which the plan's count, or another, may be better; None without one."""
    run = answer.run
    if run.request.limits:
        found = better_batch(run, answer.fitting_counts)
        return None if found is None else found.batch
    missing = missing_factor(run, answer.num_gpus)
    return None if missing is None else missing[1]


def batch_line(answer: PlanAnswer) -> str | None:
    """Return why another batch may be better; None where none is known."""
    run = answer.run
    if not run.request.limits:
        missing = missing_factor(run, answer.num_gpus)
        if missing is None:
            return None
        odd, batch = missing
        return (
            f"{odd} does not divide the batch of {run.batch:,}, so the replicas have no factor "
            f"{odd}: --batch {batch} may be faster"
        )
    found = better_batch(run, answer.fitting_counts)
    if found is None:
        return None
    kind = "cheapest" if run.request.limits.takes_cheapest else "fastest"
    return (
        f"the {kind} of the counts tried at this batch; {found.odd_part} does not divide "
        f"{run.batch:,}, so {found.num_gpus:,} GPUs have few layouts: try --batch {found.batch}"
    )


def count_lines(answer: PlanAnswer) -> list[str]:
    """Return how the plan's count compares with a smaller one, and with the next that is sold."""
    return [*_against_smaller(answer), *unsold_count_lines(answer)]


def _against_smaller(answer: PlanAnswer) -> list[str]:
    """Return the difference from the next smaller count that is not slowed down itself."""
    no_faster = no_faster_counts(answer.run, answer.fitting_counts)
    smaller = [
        line
        for line in answer.fitting_counts
        if line["num_gpus"] < answer.num_gpus and line["num_gpus"] not in no_faster
    ]
    if not smaller:
        return []
    own, other = answer.own_count, smaller[-1]
    less = 1 - own["training_seconds"] / other["training_seconds"]
    more = own["gpu_hours"] / other["gpu_hours"] - 1
    return [
        f"against {other['num_gpus']:,} GPUs: {-100 * less:+.1f} % time, "
        f"{100 * more:+.1f} % GPU-hours"
    ]


def unsold_count_lines(answer: PlanAnswer) -> list[str]:
    """Return how a count that is not sold compares with the next one that is."""
    server, own = server_size(answer.run), answer.own_count
    if is_sold(answer.num_gpus, server):
        return []
    why = (
        f"not whole servers of {server}"
        if answer.num_gpus > server
        else f"part of a server of {server}, but no power of two"
    )
    lines = [f"{answer.num_gpus:,} GPUs are {why}"]
    for line in answer.counts:
        if line["num_gpus"] > answer.num_gpus and not line["note"]:
            time = line["training_seconds"] / own["training_seconds"] - 1
            hours = line["gpu_hours"] / own["gpu_hours"] - 1
            lines.append(
                f"{line['num_gpus']:,} GPUs take {_difference(time, 'less')} time and "
                f"{_difference(hours, 'fewer')} GPU-hours: --gpus {line['num_gpus']}"
            )
            break
    return lines


def _difference(share: float, less: str) -> str:
    """Return a relative difference in words; `less` is the word of a negative one."""
    return f"{100 * abs(share):.1f} % {less if share < 0 else 'more'}"
