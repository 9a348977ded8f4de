"""Compares GPU counts: finds the best one within the limits, or explains why there is none.

The best count is the fastest one within the limits, or the cheapest where the days are limited. The
GPU-hours of counts that were not tried are expected to be near those of the counts around them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from warehouse.ask.defaults import besides_gpus
from warehouse.errors import InputError
from warehouse.evaluate.space import cells_of_problem, evaluated
from warehouse.plan import queries
from warehouse.plan.accuracy import memory_factor, safe_share
from warehouse.plan.errors import known_errors
from warehouse.plan.queries import GpuRates
from warehouse.plan.search import LAYOUT_RULE, listed_counts
from warehouse.show.units import run_time_in_words, with_digits

if TYPE_CHECKING:
    from warehouse.plan.candidates import QueryCache
    from warehouse.plan.question import TrainingRun
    from warehouse.plan.search import Sweep

Line = Mapping[str, Any]

_LEAST_SHARE = 0.85
"""Least share of the expected GPU-hours that a count takes: it may divide layers, heads and batch
better than the counts around it, and its batch may be up to 15 % larger."""

_LARGEST = 65_536
"""GPU count up to which a hint looks for one that holds the model."""


def compare_counts(
    run: TrainingRun, ask: QueryCache, sweep: Sweep
) -> tuple[Sequence[Line], GpuRates]:
    """Return the fastest layout of each GPU count of a stored sweep, and the rates of one GPU."""
    problems = list(sweep.problems.values())
    with ask.fastest_of(run, problems):
        rates = GpuRates()
        if lines := ask(queries.counts(run, problems, rates)):
            ask.keep_runs(problems)
            asked = (of(run, lines[0]["problem_id"]) for of in (queries.costs, queries.energies))
            rates = queries.gpu_rates(run, *map(ask, asked))
            lines = ask(queries.counts(run, problems, rates))
    if not lines:
        raise nothing_fits(run, ask, sweep, lines)
    return lines, rates


def best_counts(run: TrainingRun, lines: Sequence[Line], rates: GpuRates) -> list[Line]:
    """Return the lines within every limit, the best one first; there is one at least."""
    if within := within_limits(run, lines):
        return within
    raise nothing_within_limits(run, lines, rates)


def promising_counts(run: TrainingRun, tried: Iterable[int], lines: Sequence[Line]) -> list[int]:
    """Return the listed counts that may be within the limits and better than the best so far.

    The likeliest to be the best is first. `lines` are the best layouts of counts that were tried.
    """
    known = sorted(lines, key=lambda line: int(line["num_gpus"]))
    counts = {*listed_counts(run, run.request.max_gpus)} - {*tried}
    hoped = within_limits(run, (_hoped(num_gpus, known) for num_gpus in counts))
    if best := within_limits(run, lines)[:1]:
        hoped = [line for line in hoped if _order(run, line) < _order(run, best[0])]
    return [line["num_gpus"] for line in hoped]


def _hoped(num_gpus: int, known: Sequence[Line]) -> Line:
    """Return the least figures of a GPU count that the lines of other counts let one hope for.

    Good layouts take more GPU-hours on more GPUs: a larger count that takes fewer than a smaller
    one shows that the smaller one is a bad one.
    """
    tried = np.array([line["num_gpus"] for line in known])
    near = known[int(np.abs(np.log(tried / num_gpus)).argmin())]
    hours = np.minimum.accumulate([line["gpu_hours"] for line in reversed(known)])[::-1]
    gpu_hours = _LEAST_SHARE * float(np.interp(np.log(num_gpus), np.log(tried), hours))
    usd, watts = near["cost_usd"], near["power_watts"]
    return {
        "num_gpus": num_gpus,
        "training_seconds": gpu_hours * 3600 / num_gpus,
        "gpu_hours": gpu_hours,
        "cost_usd": None if usd is None else usd * gpu_hours / near["gpu_hours"],
        "power_watts": None
        if watts is None
        else _LEAST_SHARE * watts * num_gpus / near["num_gpus"],
    }


def time_to_beat(run: TrainingRun, lines: Iterable[Line], num_gpus: int) -> float:
    """Return the time from which a run on a GPU count is no better than the best so far [s]."""
    if not (best := within_limits(run, lines)[:1]):
        return math.inf
    if run.request.limits.takes_cheapest:
        return float(best[0]["gpu_hours"] * 3600 / num_gpus)
    return float(best[0]["training_seconds"])


def within_limits(run: TrainingRun, lines: Iterable[Line]) -> list[Line]:
    """Return the lines within every limit, the best one first.

    Lines whose layout is likely to fit come before the others.
    """
    within = [line for line in lines if _largest_share(run, line) <= 1]
    return sorted(within, key=lambda line: _order(run, line))


def _order(run: TrainingRun, line: Line) -> tuple[float, ...]:
    by_time = ("training_seconds", "gpu_hours")
    order = ("gpu_hours", "num_gpus") if run.request.limits.takes_cheapest else by_time
    return (not line.get("is_likely_to_fit", True), *(line[name] for name in order))


def least_share(run: TrainingRun, lines: Iterable[Line]) -> float:
    """Return the largest share of a limit that the count nearest to the limits takes."""
    return _largest_share(run, _nearest_to_limits(run, lines))


def _nearest_to_limits(run: TrainingRun, lines: Iterable[Line]) -> Line:
    return min(lines, key=lambda line: _largest_share(run, line))


def _largest_share(run: TrainingRun, line: Line) -> float:
    """Return the largest share of a limit that a count takes; infinite if it is not known."""
    return max(_shares(run, line).values(), default=0.0)


def _shares(run: TrainingRun, line: Line) -> dict[str, float]:
    """Return the share of each limit that a count takes, by the option with its value."""
    limits = run.request.limits
    bounds = {
        f"--days {limits.days or 0:g}": ("training_seconds", limits.days, 86400),
        f"--budget-usd {limits.budget_usd or 0:,.0f}": ("cost_usd", limits.budget_usd, 1),
        f"--max-mw {limits.max_mw or 0:g}": ("power_watts", limits.max_mw, 1e6),
    }
    return {
        option: math.inf if line[name] is None else line[name] / (limit * unit)
        for option, (name, limit, unit) in bounds.items()
        if limit is not None
    }


# ---- why there is no plan ----


def why_no_layout_fits(least_bytes: float | None) -> str:
    """Return why a GPU count has no layout that fits; without least memory it has none at all."""
    if least_bytes is None:
        return f"no layout: {LAYOUT_RULE}"
    return f"none that was tried fits: the smallest takes {least_bytes / 1e9:,.1f} GB"


def nothing_fits(
    run: TrainingRun, ask: QueryCache, sweep: Sweep, fitting: Sequence[Line]
) -> InputError:
    """Return the error of GPU counts without a layout that fits: the least memory, what fits."""
    counts = sorted(sweep.problems)
    wanted = run.request.num_gpus or counts[-1]
    memory = ask(queries.least_memory(run, sweep.problems.values()))
    # of several counts, the largest one that has a layout
    least = next((line for line in memory if line["num_gpus"] == wanted), memory[-1])
    enough = next((line["num_gpus"] for line in fitting if line["num_gpus"] > wanted), None)
    used = safe_share(run)
    if used is not None:
        used /= memory_factor(run, known_errors(run, ask))
    safe = next(
        (
            line["num_gpus"]
            for line in memory
            if enough and line["num_gpus"] >= enough and _holds(run, line, used)
        ),
        None,
    )
    if enough is None or safe is None:
        tried = _counts_that_hold(run, counts[-1] * 2, used)
        enough, safe = enough or tried[0], safe or tried[1]
    place = f"`--gpus` {wanted:,}" if run.request.num_gpus else f"up to {wanted:,} GPUs"
    said = (
        f"{place}: none of {least['num_layouts']:,} layouts of {run.model} fits: the smallest "
        f"takes {least['least_memory_bytes'] / 1e9:,.1f} GB of "
        f"{least['hbm_bytes'] / 1e9:,.1f} GB"
    )
    headroom = run.request.headroom_bytes
    if headroom:
        said += f", of which --headroom-gb {headroom / 1e9:g} must stay free"
    chance = f"is {100 * run.request.fit_probability:g} % likely to fit"
    hint = (
        _counts_in_words(enough, safe, chance)
        if enough
        else "ask for an accelerator with more memory"
    )
    smaller = ["--headroom-gb"] if headroom else []
    smaller += ["--batch", "--seq-len"] if enough else []
    hint = f"{hint}, or a smaller {' or '.join(smaller)}" if smaller else hint
    return InputError(said, f"{hint}; {besides_gpus(run.estimator)}")


def _holds(run: TrainingRun, line: Line, used: float | None) -> bool:
    """Return whether the layout with the least memory of a count uses at most a share of it."""
    free = float(line["hbm_bytes"]) - run.request.headroom_bytes
    limit = free if used is None else min(free, used * float(line["hbm_bytes"]))
    return float(line["least_memory_bytes"]) <= limit


def _counts_in_words(enough: int, safe: int | None, chance: str) -> str:
    if safe == enough:
        return f"{enough:,} GPUs hold it"
    if safe is None:
        return (
            f"{enough:,} GPUs are enough by the estimate (but with its error no count is likely to "
            "fit)"
        )
    return (
        f"{safe:,} GPUs are likely to hold it ({enough:,} hold it by the estimate, but no layout "
        f"there {chance})"
    )


def _counts_that_hold(
    run: TrainingRun, first: int, used: float | None
) -> tuple[int | None, int | None]:
    """Return the first counts with a layout that fits, and with one that is likely to; store none.

    The counts are `first`, 2 x `first` and so on.
    """
    relation = run.estimator.relations[0]
    num_gpus, fits = first, None
    while num_gpus <= _LARGEST:
        values = {**run.problem, "num_gpus": num_gpus, "global_batch_size": run.batch}
        cells = cells_of_problem(run.estimator, relation, values, run.mends, run.request.held)
        found = evaluated(run.estimator, relation, cells, ["memory_bytes"], run.catalog)
        memory = found.columns["memory_bytes"]
        least = memory[memory > 0].min(initial=math.inf)  # NaN is left out
        line = {"hbm_bytes": values["hbm_bytes"] or 0, "least_memory_bytes": least}
        fits = fits or (num_gpus if _holds(run, line, None) else None)
        if _holds(run, line, used):
            return fits, num_gpus
        num_gpus *= 2
    return fits, None


class LimitsMissedError(InputError):
    """No count that was tried meets every limit: by how much the nearest misses them.

    Attributes
    ----------
    share
        The largest share by which the nearest count is over a limit.
    by_how_much
        Which limits it misses, by how much and on how many GPUs, in words.
    """

    def __init__(self, message: str, hint: str, share: float, by_how_much: str) -> None:
        super().__init__(message, hint)
        self.share, self.by_how_much = share, by_how_much


def _nearest_miss(run: TrainingRun, lines: Sequence[Line]) -> tuple[float, str]:
    """Return by which share the nearest count misses the limits, and this in words."""
    nearest = _nearest_to_limits(run, lines)
    words = " and ".join(
        f"{option} by {with_digits(100 * (share - 1), 2)} %"
        for option, share in _shares(run, nearest).items()
        if share > 1
    )
    batch = f" with batch {run.batch:,}" if run.request.compares_batches else ""
    place = f"{nearest['num_gpus']:,} GPUs{batch}"
    return _largest_share(run, nearest) - 1, f"misses {words} on {place}"


def nothing_within_limits(run: TrainingRun, lines: Sequence[Line], rates: GpuRates) -> InputError:
    """Return the error of limits that no count meets, with the nearest figure for each limit."""
    limits = run.request.limits
    if limits.budget_usd is not None and rates.usd_per_gpu_hour is None:
        return InputError(
            f"`--budget-usd` {limits.budget_usd:,.0f}: there is no price on the basis "
            f"{run.terms.basis}",
            "give the price of an hour of one GPU: --price",
        )
    reasons = []
    if limits.days is not None:
        fastest = min(lines, key=lambda line: line["training_seconds"])
        time = run_time_in_words(fastest["training_seconds"])
        reasons.append(
            f"`--days` {limits.days:g}: the fastest takes {time} on {fastest['num_gpus']:,} GPUs"
        )
    if limits.budget_usd is not None:
        cheapest = min(lines, key=lambda line: line["cost_usd"])
        reasons.append(
            f"`--budget-usd` {limits.budget_usd:,.0f}: the cheapest costs "
            f"{cheapest['cost_usd']:,.0f} USD at {rates.usd_per_gpu_hour:.2f} USD/GPU-hour, on "
            f"{cheapest['num_gpus']:,} GPUs in {run_time_in_words(cheapest['training_seconds'])}"
        )
    if limits.max_mw is not None:
        least = min(lines, key=lambda line: line["power_watts"])
        reasons.append(
            f"`--max-mw` {limits.max_mw:g}: the least is {least['power_watts'] / 1e6:,.3f} MW, on "
            f"{least['num_gpus']:,} GPUs in {run_time_in_words(least['training_seconds'])}"
        )
    tried = ", ".join(f"{line['num_gpus']:,}" for line in lines)
    batches = ", ".join(f"{batch:,}" for batch in sorted((run.batch, *run.other_batches)))
    at = f"batches of {batches}" if run.other_batches else f"a batch of {run.batch:,}"
    raised = "raise a limit"
    if limits.days is not None and _largest_is_too_slow(run, lines, limits.days):
        raised += f" or --max-gpus {run.request.max_gpus:,}"
    nearest = "no GPU count that was tried meets every limit"
    others = "counts"
    if run.request.compares_batches:
        nearest, others = f"{nearest}; the nearest are with a batch of {run.batch:,}", "ones"
    return LimitsMissedError(
        "\n".join([nearest, *reasons]),
        f"{raised}, or ask for fewer --tokens; tried {tried} GPUs at {at}; other {others} were not "
        "tried",
        *_nearest_miss(run, lines),
    )


def _largest_is_too_slow(run: TrainingRun, lines: Sequence[Line], days: float) -> bool:
    fastest = min(lines, key=lambda line: float(line["training_seconds"]))
    is_largest = all(line["num_gpus"] <= fastest["num_gpus"] for line in lines)
    may_be_larger = 2 * fastest["num_gpus"] > run.request.max_gpus
    return is_largest and may_be_larger and fastest["training_seconds"] > days * 86400
