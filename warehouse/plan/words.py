"""The answer of a plan in words, for the terminal, the report and other commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from estimators.interval import ENDS
from warehouse.evaluate.profiles import DEFAULT
from warehouse.plan.accuracy import fit_probability_of
from warehouse.plan.compare import better_batch, missing_factor, no_faster_counts
from warehouse.plan.search import is_sold, server_size
from warehouse.show.formats import count, wrapped
from warehouse.show.units import (
    STEP_PARTS,
    in_words,
    run_time_in_words,
    run_times_in_words,
    with_digits,
)

if TYPE_CHECKING:
    from warehouse.plan.answer import PlanAnswer
    from warehouse.plan.track_record import TrackRecord

Line = Mapping[str, Any]

_WIDTH = 100
"""Columns of a terminal that the answer fits."""

_USUAL_GOODPUT = 0.9
"""Goodput that large runs report (table `goodput`), for the remark on lost time."""

_MUCH_ATTENTION = 1 / 3
"""Share of attention in the counted FLOPs above which a causal mask makes the MFU far too high."""


def probability_in_words(share: float) -> str:
    """Return a probability in whole percent: no estimate is certain."""
    if share > 0.99:
        return "over 99 %"
    return f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"


def longer_in_words(layout: Line, best: Line) -> str:
    """Return how much longer the step of a layout is than that of the best one."""
    percent = f"{100 * (layout['step_seconds'] / best['step_seconds'] - 1):.2f}"
    return "as long" if percent == "0.00" else f"{percent} % longer"


def exceeded_limits(answer: PlanAnswer) -> list[str]:
    """Return the limits that the slow end of the likely interval exceeds, as predicates.

    Power does not depend on the time.
    """
    limits, likely, best = answer.run.request.limits, answer.uncertainty.likely, answer.best
    if likely is None:
        return []
    slower, lines = likely[1] / best["step_seconds"], []
    if limits.days is not None and slower * best["training_seconds"] > limits.days * 86400:
        lines.append(f"exceeds --days {limits.days:g}")
    cost = answer.own_count["cost_usd"]
    if limits.budget_usd is not None and slower * cost > limits.budget_usd:
        lines.append(
            f"costs {slower * cost:,.0f} USD, more than --budget-usd {limits.budget_usd:,.0f}"
        )
    return lines


# ---- the best layout in a few lines ----


def summary_lines(answer: PlanAnswer) -> list[str]:
    """Return layout, time, assumptions, cost, energy and memory of the best layout.

    An entry that is too long for one line continues on indented lines.
    """
    found = [("layout", answer.in_words(answer.best))]
    if stages := answer.stages_in_words(answer.best):
        found.append(("stages", stages))
    lines = unsold_count_lines(answer)
    if len(lines) > 1 and _has_faster_count(answer):
        found.append(("GPUs", "; ".join(lines)))
    if batch := batch_line(answer):
        found.append(("GPUs", batch))
    found += [
        ("time", _time(answer)),
        ("assumes", _assumptions(answer)),
        ("cost", "; ".join(_costs(answer))),
        ("energy", "; ".join(_energies(answer))),
    ]
    if memory := _memory(answer):
        found.append(("memory", memory))
    if answer.steadier_layout is not None:
        found.append(("surer", _steadier(answer, answer.steadier_layout)))
    if answer.riskier_layout is not None:
        found.append(("riskier", riskier_in_words(answer, answer.riskier_layout)))
    return [_entry(name, text) for name, text in found]


def accuracy_lines(answer: PlanAnswer) -> list[str]:
    """Return how far the estimator is from published steps like the plan's, and from own runs."""
    record = answer.uncertainty.record
    words = "no published step checks it; `warehouse measure` takes yours"
    if record is not None:
        words = record_in_words(record)
        profile = answer.run.problem.get("profile")
        if profile not in (None, DEFAULT):
            words += f"; with the default constants, not those of profile {profile}"
    own_runs = [_entry("your runs", own_run_in_words(line)) for line in answer.uncertainty.own_runs]
    return [_entry("accuracy", words), *own_runs]


def _entry(name: str, text: str) -> str:
    return "\n".join(wrapped(text, _WIDTH, f"  {name:<9}  ", " " * 13))


def _has_faster_count(answer: PlanAnswer) -> bool:
    seconds = answer.own_count["training_seconds"]
    return any(
        line["num_gpus"] > answer.num_gpus and line["training_seconds"] < seconds
        for line in answer.fitting_counts
    )


def _time(answer: PlanAnswer) -> str:
    best, likely = answer.best, answer.uncertainty.likely
    words = run_time_in_words(best["training_seconds"])
    if likely:
        steps = best["training_seconds"] / best["step_seconds"]
        words += f", nine times in ten {run_times_in_words(*(steps * end for end in likely))}"
    words += "".join(f", whose slow end {limit}" for limit in exceeded_limits(answer)[:1])
    words += f"; {with_digits(best['step_seconds'], 3)} s a step"
    if best["mfu"] is not None:
        words += f", {100 * best['mfu']:.0f} % of the peak"
    if answer.attention_share > _MUCH_ATTENTION:
        words += " (MFU counts all of attention, causal or not)"
    return words


def _assumptions(answer: PlanAnswer) -> str:
    run = answer.run
    precision = run.problem.get("precision")
    words = [] if precision is None else [str(precision).upper()]
    words.append(f"batch {run.batch:,}")
    if run.terms.goodput is None:
        lost = run_time_in_words(answer.best["training_seconds"] / _USUAL_GOODPUT)
        words.append(f"goodput 1: no lost time (--goodput {_USUAL_GOODPUT:g} makes it {lost})")
    else:
        words.append(f"goodput {run.goodput:g}")
    return ", ".join(words)


def _costs(answer: PlanAnswer) -> list[str]:
    terms = answer.run.terms
    basis = "given" if terms.prices else terms.basis
    words = []
    for line in answer.costs:
        if line["basis"] == basis and line["cost_usd"]:
            cost, year = line["cost_usd"], line["year"]
            dollars = f"{cost / 1e6:,.1f} M USD" if cost >= 1e6 else f"{cost:,.0f} USD"
            words.append(
                f"{dollars} at {line['usd_per_gpu_hour']:.2f} USD per GPU-hour "
                f"({basis.replace('_', ' ')}{f', {year}' if year else ''})"
            )
    return words or ["no published price of an hour: give one with --price"]


def _energies(answer: PlanAnswer) -> list[str]:
    known = [line for line in answer.energies if line["energy_kwh"]]
    if not known:
        return ["no published power of the accelerator: give it with --watts"]
    first = known[0]
    words = [
        f"{with_digits(first['energy_kwh'] / 1e3, 2)} MWh, "
        f"{with_digits(first['power_watts'] / 1e6, 2)} MW, PUE {first['pue']:.3g} included"
    ]
    if answer.run.terms.carbons:
        words += [
            f"{with_digits(line['kg_co2e'] / 1e3, 2)} t CO2e on grid {line['grid']}"
            for line in known
        ]
    return words


def _memory(answer: PlanAnswer) -> str:
    best, sure = answer.best, answer.uncertainty
    if best["memory_bytes"] is None or best["hbm_bytes"] is None:
        return ""
    used, bias = best["memory_bytes"] / 1e9, sure.own_memory_bias
    words = f"{used:.1f} of {best['hbm_bytes'] / 1e9:.1f} GB a GPU"
    if bias is not None:
        words += f", {used / (1 + bias):.1f} GB with the bias of your runs ({100 * bias:+.1f} %)"
    if sure.fit_probability is not None:
        words += f"; {probability_in_words(sure.fit_probability)} likely to fit"
    return words if best["is_likely_to_fit"] else f"unlikely to fit: {words}"


def _slower_time(answer: PlanAnswer, layout: Line) -> str:
    slower = 100 * (layout["step_seconds"] / answer.best["step_seconds"] - 1)
    return f"{run_time_in_words(layout['training_seconds'])} ({slower:+.1f} %)"


def riskier_in_words(answer: PlanAnswer, layout: Line) -> str:
    """Return the fastest layout that fits by the estimate, with its time and chance to fit."""
    chance = fit_probability_of(answer.run, layout, answer.uncertainty.memory_factor)
    fits = "" if chance is None else f", {probability_in_words(chance)} likely to fit"
    return (
        f"{_slower_time(answer, layout)}, {layout['memory_bytes'] / 1e9:.1f} GB{fits}: "
        f"{answer.in_words(layout)}"
    )


def _steadier(answer: PlanAnswer, layout: Line) -> str:
    steps = layout["training_seconds"] / layout["step_seconds"]
    low, high = (steps * layout[name] for name in ENDS)
    return (
        f"{_slower_time(answer, layout)}, nine times in ten {run_times_in_words(low, high)}: "
        f"{answer.in_words(layout)}"
    )


def record_in_words(record: TrackRecord) -> str:
    """Return the errors on the published steps most like a plan, and which steps these are."""
    lacking = ""
    if record.found != record.wanted:
        steps = count(record.num_like, "published step")
        number = f"only {steps}" if record.num_like else "no published steps"
        verb = "is" if record.num_like == 1 else "are"
        lacking = f"{number} {verb} of {record.wanted}; "
    words = (
        f"{lacking}{100 * record.mean_error:.1f} % mean error{record.bias_in_words()} on "
        f"{count(record.num_steps, 'published step')}{'' if lacking else ' like it'} "
        f"({record.found}: {', '.join(record.accelerators)}"
        f"{f', none on {record.unmeasured}' if record.unmeasured else ''})"
    )
    if record.num_groups > 1:
        words += (
            f"; by group: median {100 * record.middle_error:.1f} %, worst "
            f"{100 * record.worst_error:.0f} % ({record.worst_group})"
        )
    if record.inside_fraction is not None and record.all_inside_fraction is not None:
        words += (
            f". {100 * record.inside_fraction:.0f} % of these steps lie in their intervals "
            f"({100 * record.all_inside_fraction:.0f} % of all {record.num_all:,})"
        )
    return words


def own_run_in_words(line: Line) -> str:
    """Return the error on a user's runs, and whether the constants were fitted to them."""
    words = (
        f"{count(line['num_rows'], 'step')} of {line['reference']} "
        f"({line['models'] or 'own models'} on {line['accelerators']}): "
        f"mean error {100 * line['time_mean_absolute_relative_error']:.1f} %"
    )
    if line["num_fitted_rows"]:
        which = "them" if line["num_fitted_rows"] == line["num_rows"] else "some of them"
        words += f", with profile {line['profile']}, which was fitted to {which}"
    return words


# ---- below the tables ----


def layout_line(answer: PlanAnswer) -> str:
    """Return time and memory of the best layout, and the chance that it fits."""

    def gigabytes(name: str) -> str:
        value = best[name]
        return "-" if value is None else f"{value / 1e9:,.1f} GB"

    best, fits = answer.best, answer.uncertainty.fit_probability
    chance = "" if fits is None else f"; the chance that it fits is {probability_in_words(fits)}"
    return (
        f"{run_time_in_words(best['training_seconds'])}, "
        f"{in_words('gpu_hours', best['gpu_hours'])}; {gigabytes('memory_bytes')} of "
        f"{gigabytes('hbm_bytes')} used, {gigabytes('headroom_bytes')} free{chance}"
    )


def share_in_words(layout: Line, name: str) -> str:
    """Return a part of a step in percent, without the sign."""
    return f"{100 * layout[name] / layout['step_seconds']:.1f}"


def bound_by(layout: Line) -> str:
    """Return the two largest parts of a layout's step."""
    parts = {name: layout[name] for name in STEP_PARTS if layout[name] is not None}
    first = max(parts, key=lambda name: parts[name])
    rest = {name: value for name, value in parts.items() if name != first and value > 0}
    share = share_in_words(layout, first)
    words = f"bound by {first.removesuffix('_seconds')}: {share} % of the step"
    if rest:
        second = max(rest, key=lambda name: rest[name])
        words += f"; next {second.removesuffix('_seconds')}: {share_in_words(layout, second)} %"
    return words


def memory_lines(answer: PlanAnswer) -> list[str]:
    """Return the errors of the memory on measured runs, or a remark that there are none."""
    if not answer.uncertainty.memory:
        return [
            "memory: no published figure of this accelerator checks it; `warehouse measure` "
            "compares it with your own runs"
        ]
    return [
        f"memory on {count(line['num_rows'], 'run')} of {line['reference']} (+: too large): "
        f"mean |error| {100 * line['memory_mean_absolute_relative_error']:.1f} %, "
        f"max {100 * line['memory_max_absolute_relative_error']:.1f} %, "
        f"bias {100 * line['memory_bias']:+.1f} %"
        for line in answer.uncertainty.memory
    ]


# ---- GPU counts ----


def count_rows(answer: PlanAnswer) -> list[dict[str, Any]]:
    """Return the figures of each count, and a note: no layout, the plan's, no faster than another.

    Within limits these are all counts that were tried, else the plan's and those next to it.
    """
    slow, has_limits = "slow_training_seconds", bool(answer.run.request.limits)
    at = list(answer.counts).index(answer.own_count)
    lines = answer.counts if has_limits else answer.counts[max(at - 1, 0) : at + 2]
    columns = ["num_gpus", "training_seconds", slow, "gpu_hours", "cost_usd", "energy_kwh"]
    columns += ["power_watts", "mfu", "memory_bytes"]
    if all(line.get(slow) is None for line in lines):
        columns.remove(slow)
    no_faster = no_faster_counts(answer.run, answer.fitting_counts)
    rows = []
    for line in lines:
        mark = None
        if line["num_gpus"] == answer.num_gpus:
            mark = "best" if has_limits else "asked for"
        elif has_limits and line["num_gpus"] in answer.within_limits:
            mark = "within the limits"
        why = no_faster.get(line["num_gpus"])
        notes = (line["note"], mark, why and why.in_words(answer.run.batch))
        note = "; ".join(text for text in notes if text)
        rows.append({**{name: line.get(name) for name in columns}, "note": note})
    return rows


def batch_to_try(answer: PlanAnswer) -> int | None:
    """Return a batch with which the plan's count, or another, may be better; None without one."""
    if answer.run.request.limits:
        better = better_batch(answer.run, answer.fitting_counts)
        return None if better is None else better.batch
    missing = missing_factor(answer.run, answer.num_gpus)
    return None if missing is None else missing[1]


def batch_line(answer: PlanAnswer) -> str | None:
    """Return why another batch may be better; None where none is known."""
    run = answer.run
    if run.request.limits:
        better = better_batch(run, answer.fitting_counts)
        if better is None:
            return None
        kind = "cheapest" if run.request.limits.takes_cheapest else "fastest"
        return (
            f"the {kind} of the counts tried at this batch; {better.odd_part} does not divide "
            f"{run.batch:,}, so {better.num_gpus:,} GPUs have few layouts: try --batch "
            f"{better.batch}"
        )
    missing = missing_factor(run, answer.num_gpus)
    return missing and (
        f"{run.batch:,} is not a multiple of {missing[0]}, so replicas cannot use all GPUs evenly: "
        f"--batch {missing[1]} may be faster"
    )


def count_lines(answer: PlanAnswer) -> list[str]:
    """Return how the plan's count compares with a smaller one, and with the next that is sold."""
    no_faster = no_faster_counts(answer.run, answer.fitting_counts)
    smaller = [
        line
        for line in answer.fitting_counts
        if line["num_gpus"] < answer.num_gpus and line["num_gpus"] not in no_faster
    ]
    if not smaller:
        return unsold_count_lines(answer)
    count, other = answer.own_count, smaller[-1]
    less = 1 - count["training_seconds"] / other["training_seconds"]
    more = count["gpu_hours"] / other["gpu_hours"] - 1
    return [
        f"against {other['num_gpus']:,} GPUs: {-100 * less:+.1f} % time, "
        f"{100 * more:+.1f} % GPU-hours",
        *unsold_count_lines(answer),
    ]


def unsold_count_lines(answer: PlanAnswer) -> list[str]:
    """Return how a count that is not sold compares with the next one that is."""

    def difference(other: Line, name: str, less: str) -> str:
        share = other[name] / answer.own_count[name] - 1
        return f"{100 * abs(share):.1f} % {less if share < 0 else 'more'}"

    server = server_size(answer.run)
    if is_sold(answer.num_gpus, server):
        return []
    why = f"part of a server of {server}, but no power of two"
    if answer.num_gpus > server:
        why = f"not whole servers of {server}"
    lines = [f"{answer.num_gpus:,} GPUs are {why}"]
    larger = [line for line in answer.fitting_counts if line["num_gpus"] > answer.num_gpus]
    if larger:
        other = larger[0]
        lines.append(
            f"{other['num_gpus']:,} GPUs take {difference(other, 'training_seconds', 'less')} time "
            f"and {difference(other, 'gpu_hours', 'fewer')} GPU-hours: --gpus {other['num_gpus']}"
        )
    return lines
