"""Compares GPU counts: finds the best one within the limits, or explains why there is none.

The best count is the fastest one within the limits, or the cheapest where the days are limited.
With limits there is a second round: three counts between the best of the first round and the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warehouse.ask.defaults import besides_gpus
from warehouse.errors import InputError
from warehouse.evaluate.space import cells_of_problem, evaluated
from warehouse.plan import queries
from warehouse.plan.accuracy import memory_factor, safe_share
from warehouse.plan.errors import known_errors
from warehouse.plan.queries import GpuRates
from warehouse.plan.search import LAYOUT_RULE, is_sold, server_size
from warehouse.show.units import run_time_in_words

if TYPE_CHECKING:
    from warehouse.plan.candidates import QueryCache
    from warehouse.plan.question import TrainingRun
    from warehouse.plan.search import Sweep

Line = Mapping[str, Any]

_REFINED = (5, 6, 7)
"""Counts in quarters of a power of two that are tried between it and the next."""

_HARDLY = 0.95
"""Share of a smaller count's time above which a larger count is hardly faster."""

_LARGEST = 65_536
"""GPU count up to which a hint looks for one that holds the model."""


def compare_counts(
    run: TrainingRun, ask: QueryCache, sweep: Sweep
) -> tuple[Sequence[Line], GpuRates]:
    """Return the fastest layout of each GPU count of a stored sweep, and the rates of one GPU."""
    problems, wanted = list(sweep.problems.values()), run.request.num_gpus
    with ask.fastest_of(run, problems):
        lines, rates = [], GpuRates()
        problem = None if wanted is None else sweep.problems[wanted]
        if problem is None and (lines := ask(queries.counts(run, problems, rates))):
            problem = lines[0]["problem_id"]
        if problem is not None:
            ask.keep_runs(problems)
            rates = queries.gpu_rates(run, ask, problem)
            lines = ask(queries.counts(run, problems, rates))
    if not lines or (wanted is not None and wanted not in {line["num_gpus"] for line in lines}):
        raise nothing_fits(run, ask, sweep, lines)
    return lines, rates


def best_counts(run: TrainingRun, lines: Sequence[Line], rates: GpuRates) -> list[Line]:
    """Return the lines within every limit, the best one first; there is one at least."""
    if within := within_limits(run, lines):
        return within
    raise nothing_within_limits(run, lines, rates)


def refined_counts(run: TrainingRun, tried: Iterable[int], lines: Sequence[Line]) -> list[int]:
    """Return the counts to try between a power of two and the next.

    `lines` has the fastest layout of each count that was tried and has one which fits.
    """
    within = within_limits(run, lines)
    best = within[0]["num_gpus"] if within else _nearest_count(run, lines)
    low = best // 2 if run.request.limits.takes_cheapest else best
    counts = {low * quarter // 4 for quarter in _REFINED if low >= 4} - set(tried)
    server = server_size(run)
    return sorted(n for n in counts if is_sold(n, server) and n <= run.request.max_gpus)


def _nearest_count(run: TrainingRun, lines: Sequence[Line]) -> int:
    """Return the count in whose neighbourhood a count within the limits is most likely.

    With a limit on days that is the smallest that ends in time: a slightly smaller one may keep
    the other limits as well. Without one it is the cheapest.
    """
    days = run.request.limits.days
    if days is not None:
        in_time = [line["num_gpus"] for line in lines if line["training_seconds"] <= days * 86400]
        return int(min(in_time, default=2 * max(line["num_gpus"] for line in lines)))
    return int(min(lines, key=lambda line: line["gpu_hours"])["num_gpus"])


def within_limits(run: TrainingRun, lines: Iterable[Line]) -> list[Line]:
    """Return the lines within every limit, the best one first.

    Lines whose layout is likely to fit come before the others.
    """
    limits = run.request.limits
    bounds = {
        "training_seconds": None if limits.days is None else limits.days * 86400,
        "cost_usd": limits.budget_usd,
        "power_watts": None if limits.max_mw is None else limits.max_mw * 1e6,
    }
    within = [
        line
        for line in lines
        if all(
            bound is None or (line[name] is not None and line[name] <= bound)
            for name, bound in bounds.items()
        )
    ]
    by_time = ("training_seconds", "gpu_hours")
    order = ("gpu_hours", "num_gpus") if limits.takes_cheapest else by_time
    return sorted(
        within,
        key=lambda line: (
            not line.get("is_likely_to_fit", True),
            *(line[name] for name in order),
        ),
    )


# ---- counts that the batch does not divide over ----


@dataclass(frozen=True)
class NoFaster:
    """A GPU count that is no faster than a smaller one, or hardly.

    If the largest odd factor of the count does not divide the batch of the plan, `odd_part` has it,
    else 1, and `batch` is one near it that the factor divides. Layers and heads rarely have such a
    factor, so the number of replicas needs it, and replicas must divide the batch.
    """

    num_gpus: int
    smaller: int
    is_slower: bool
    odd_part: int
    batch: int | None

    def in_words(self, batch: int) -> str:
        """Return a note that the count is no faster, with the reason if it is known."""
        words = f"{'no' if self.is_slower else 'hardly'} faster than {self.smaller:,}"
        return (
            words if self.batch is None else f"{words}: {self.odd_part} does not divide {batch:,}"
        )


def no_faster_counts(run: TrainingRun, lines: Iterable[Line]) -> dict[int, NoFaster]:
    """Return the GPU counts whose time is hardly better than that of a smaller one, by count."""
    slow: dict[int, NoFaster] = {}
    fastest: Line | None = None
    for line in sorted(lines, key=_count):
        ratio = 0 if fastest is None else line["training_seconds"] / fastest["training_seconds"]
        if fastest is None or ratio < _HARDLY:
            fastest = line
            continue
        count = _count(line)
        odd, batch = missing_factor(run, count) or (1, None)
        slow[count] = NoFaster(count, _count(fastest), ratio >= 1, odd, batch)
    return slow


def missing_factor(run: TrainingRun, num_gpus: int) -> tuple[int, int] | None:
    """Return the odd factor of a GPU count, and a batch that it divides.

    None: it divides that of the plan. If not, the replicas do without it: only layers, heads and
    sequences can have it.
    """
    odd = num_gpus // (num_gpus & -num_gpus)
    if run.batch % odd == 0:
        return None
    # the least product of the factor and a power of two that is not below the batch
    return odd, int(odd << (-(-run.batch // odd) - 1).bit_length())


def better_batch(run: TrainingRun, lines: Sequence[Line]) -> NoFaster | None:
    """Return the count that might be best with another batch, or None.

    A count might be best if it would be within the limits and better than all others with GPU-hours
    between those of the nearest counts that are not slowed down.
    """
    if not run.request.limits:
        return None
    slow = no_faster_counts(run, lines)
    good = [line for line in lines if line["num_gpus"] not in slow]
    uneven = {count: why for count, why in slow.items() if why.batch}
    scaled = [_between(good, num_gpus) for num_gpus in uneven]
    within = within_limits(run, [*lines, *scaled])
    return uneven[within[0]["num_gpus"]] if within and within[0].get("is_scaled") else None


def _between(good: Sequence[Line], num_gpus: int) -> Line:
    """Return a line for a GPU count from the counts next to it."""
    smaller = max((line for line in good if line["num_gpus"] < num_gpus), key=_count)
    larger = min((line for line in good if line["num_gpus"] > num_gpus), key=_count, default=None)
    more = num_gpus / smaller["num_gpus"]
    growth = 1.0
    if larger is not None:
        ratio = larger["gpu_hours"] / smaller["gpu_hours"]
        growth = ratio ** (math.log(more) / math.log(larger["num_gpus"] / smaller["num_gpus"]))
    cost, watts = smaller["cost_usd"], smaller["power_watts"]
    return {
        "num_gpus": num_gpus,
        "training_seconds": smaller["training_seconds"] * growth / more,
        "gpu_hours": smaller["gpu_hours"] * growth,
        "cost_usd": None if cost is None else cost * growth,
        "power_watts": None if watts is None else watts * more,
        "is_scaled": True,
    }


def _count(line: Line) -> int:
    return int(line["num_gpus"])


# ---- why there is no plan ----


def why_no_layout_fits(least_bytes: float | None) -> str:
    """Return why a GPU count has no layout that fits; without least memory it has none at all."""
    if least_bytes is None:
        return f"no layout: {LAYOUT_RULE}"
    return f"none fits: the smallest takes {least_bytes / 1e9:,.1f} GB"


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
    other = better_batch(run, lines)
    batch = f", or try --batch {other.batch}" if other else ""
    raised = "raise a limit"
    if limits.days is not None and _largest_is_too_slow(run, lines, limits.days):
        raised += f" or --max-gpus {run.request.max_gpus:,}"
    return InputError(
        "\n".join(["no GPU count that was tried meets every limit", *reasons]),
        f"{raised}, or ask for fewer --tokens{batch}; tried {tried} GPUs at a batch of "
        f"{run.batch:,}; other counts were not tried",
    )


def _largest_is_too_slow(run: TrainingRun, lines: Sequence[Line], days: float) -> bool:
    fastest = min(lines, key=lambda line: float(line["training_seconds"]))
    is_largest = all(line["num_gpus"] <= fastest["num_gpus"] for line in lines)
    may_be_larger = 2 * fastest["num_gpus"] > run.request.max_gpus
    return is_largest and may_be_larger and fastest["training_seconds"] > days * 86400
