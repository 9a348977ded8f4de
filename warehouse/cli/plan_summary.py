"""The answer of a plan in a few lines: layout, time, cost, memory, and how far to trust them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.interval import ENDS
from warehouse.evaluate.profiles import DEFAULT
from warehouse.plan.accuracy import SAFE, room_probability
from warehouse.plan.count_table import batch_line, unsold_count_lines
from warehouse.show.formats import count, wrapped
from warehouse.show.units import run_time_in_words, run_times_in_words, with_digits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from warehouse.plan.answer import PlanAnswer
    from warehouse.plan.track_record import TrackRecord

    Line = Mapping[str, Any]

_WIDTH = 100
"""Columns of a terminal that the answer fits."""

_USUAL_GOODPUT = 0.9
"""Goodput that large runs report (table `goodput`), for the remark on lost time."""

_MUCH_ATTENTION = 1 / 3
"""Share of attention in the counted FLOPs above which a causal mask makes the MFU far too high."""

_ERROR = "time_mean_absolute_relative_error"


def summary_lines(answer: PlanAnswer) -> list[str]:
    """Return layout, time, assumptions, cost, energy and memory of the best layout.

    An entry that is too long for one line continues on indented lines.
    """
    best = answer.best
    likely = answer.uncertainty.likely
    steps = best["training_seconds"] / best["step_seconds"]
    interval = (
        f", nine times in ten {run_times_in_words(*(steps * end for end in likely))}"
        if likely
        else ""
    )
    slow = "".join(f", whose slow end {each}" for each in exceeded_limits(answer)[:1])
    share = "" if best["mfu"] is None else f", {100 * best['mfu']:.0f} % of the peak"
    if answer.attention_share > _MUCH_ATTENTION:
        share += " (MFU counts all of attention, causal or not)"
    lines = [
        _line("layout", answer.in_words(best)),
        *_other_count(answer),
        *_other_batch(answer),
        _line(
            "time",
            f"{run_time_in_words(best['training_seconds'])}{interval}{slow}; "
            f"{with_digits(best['step_seconds'], 3)} s a step{share}",
        ),
        _line("assumes", _assumed(answer)),
        _line("cost", "; ".join(_costs(answer))),
        _line("energy", "; ".join(_energies(answer))),
    ]
    if best["memory_bytes"] is not None and best["hbm_bytes"] is not None:
        used, room = best["memory_bytes"] / 1e9, best["hbm_bytes"] / 1e9
        likely_to_fit = _likely_to_fit(answer.uncertainty.room)
        bias = answer.uncertainty.own_memory_bias
        own = (
            ""
            if bias is None
            else f", {used / (1 + bias):.1f} GB with the bias of your runs ({100 * bias:+.1f} %)"
        )
        lines.append(_line("memory", f"{used:.1f} of {room:.1f} GB a GPU{own}{likely_to_fit}"))
    if answer.surer is not None:
        lines.append(_line("surer", _surer(answer, answer.surer)))
    if answer.spare_wanted is not None:
        lines.append(_line("safer", _safer(answer, answer.spare_wanted)))
    return lines


def _other_count(answer: PlanAnswer) -> list[str]:
    """Return an entry with a faster count of whole servers, if the plan's count is none."""
    own = answer.own_count["training_seconds"]
    faster = any(
        line["num_gpus"] > answer.num_gpus and not line["note"] and line["training_seconds"] < own
        for line in answer.counts
    )
    lines = unsold_count_lines(answer)
    return [_line("GPUs", "; ".join(lines))] if faster and len(lines) > 1 else []


def _other_batch(answer: PlanAnswer) -> list[str]:
    """Return the entry of a batch with which the plan's count, or another, might be better."""
    found = batch_line(answer)
    return [] if found is None else [_line("GPUs", found)]


def accuracy_lines(answer: PlanAnswer) -> list[str]:
    """Return how far the estimator is from published steps like the plan's, and from own runs."""
    found = answer.uncertainty.record
    own = [own_runs_in_words(line) for line in answer.uncertainty.own_runs]
    lines = [_line("your runs", words) for words in own]
    if found is None:
        return [
            _line("accuracy", "no published step checks it; `warehouse measure` takes yours"),
            *lines,
        ]
    profile = answer.run.problem.get("profile")
    plain = f"; with the default constants, not those of profile {profile}"
    fitted = "" if profile in (None, DEFAULT) else plain
    return [_line("accuracy", record_in_words(found) + fitted), *lines]


def record_in_words(found: TrackRecord) -> str:
    """Return the errors on the published steps most like a plan, and which steps these are."""
    lacking = ""
    if found.found != found.wanted:
        steps = count(found.num_like, "published step")
        number = f"only {steps}" if found.num_like else "no published steps"
        verb = "is" if found.num_like == 1 else "are"
        lacking = f"{number} {verb} of {found.wanted}; "
    unmeasured = f", none on {found.unmeasured}" if found.unmeasured else ""
    like = "" if lacking else " like it"
    groups = (
        f"; by group: median {100 * found.middle_error:.1f} %, worst "
        f"{100 * found.worst_error:.0f} % ({found.worst_group})"
        if found.num_groups > 1
        else ""
    )
    inside = ""
    if found.inside_fraction is not None and found.all_inside_fraction is not None:
        inside = (
            f". {100 * found.inside_fraction:.0f} % of these steps lie in their intervals "
            f"({100 * found.all_inside_fraction:.0f} % of all {found.num_all:,})"
        )
    return (
        f"{lacking}{100 * found.mean_error:.1f} % mean error{found.bias_in_words()} on "
        f"{count(found.num_steps, 'published step')}{like} ({found.found}: "
        f"{', '.join(found.accelerators)}{unmeasured}){groups}{inside}"
    )


def own_runs_in_words(line: Line) -> str:
    """Return the error on a user's runs, and whether the constants were fitted to them."""
    words = (
        f"{count(line['num_rows'], 'step')} of {line['reference']}"
        f"{_of_runs(line)}: mean error {100 * line[_ERROR]:.1f} %"
    )
    if line["num_fitted_rows"]:
        which = "them" if line["num_fitted_rows"] == line["num_rows"] else "some of them"
        words += f", with profile {line['profile']}, which was fitted to {which}"
    return words


def _of_runs(line: Line) -> str:
    """Return the models and the accelerators of a user's runs."""
    return f" ({line['models'] or 'own models'} on {line['accelerators']})"


def _assumed(answer: PlanAnswer) -> str:
    """Return the assumptions behind the time: number format, batch, and lost time."""
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


def _likely_to_fit(room: float | None) -> str:
    """Return the chance that a layout fits in memory, for one that is estimated to fit."""
    return "" if room is None else f"; {percent_in_words(room)} likely to fit"


def percent_in_words(share: float) -> str:
    """Return a probability in whole percent, but never as certain."""
    return "over 99 %" if share > 0.994 else f"{100 * share:.0f} %"


def _safer(answer: PlanAnswer, spare: float) -> str:
    """Return the fastest layout that leaves enough memory free, with its time."""
    safer = answer.safer
    free = f"{100 * spare:.0f} % of the memory free"
    if safer is None:
        is_known = answer.uncertainty.room is not None
        least = f"is {percent_in_words(SAFE)} likely to fit" if is_known else f"leaves {free}"
        return f"no layout on {answer.num_gpus:,} GPUs {least}"
    slower = 100 * (safer["step_seconds"] / answer.best["step_seconds"] - 1)
    own = room_probability(answer.run, safer, answer.uncertainty.memory_factor)
    how = f"at least {free}" if own is None else f"{percent_in_words(own)} likely to fit"
    return (
        f"{run_time_in_words(safer['training_seconds'])} ({slower:+.1f} %), "
        f"{safer['memory_bytes'] / 1e9:.1f} GB, {how}: {answer.in_words(safer)}"
    )


def _surer(answer: PlanAnswer, surer: Line) -> str:
    """Return a layout with a much earlier slow end than the best layout's, with its time."""
    slower = 100 * (surer["step_seconds"] / answer.best["step_seconds"] - 1)
    steps = surer["training_seconds"] / surer["step_seconds"]
    low, high = (steps * surer[name] for name in ENDS)
    return (
        f"{run_time_in_words(surer['training_seconds'])} ({slower:+.1f} %), nine times in ten "
        f"{run_times_in_words(low, high)}: {answer.in_words(surer)}"
    )


def exceeded_limits(answer: PlanAnswer) -> list[str]:
    """Return the limits that the slow end of the likely interval exceeds, as predicates.

    Power does not depend on the time.
    """
    limits, likely = answer.run.request.limits, answer.uncertainty.likely
    if likely is None:
        return []
    best = answer.best
    slower = likely[1] / best["step_seconds"]
    lines = []
    if limits.days is not None and slower * best["training_seconds"] > limits.days * 86400:
        lines.append(f"exceeds --days {limits.days:g}")
    if limits.budget_usd is not None:
        dollars = slower * answer.own_count["cost_usd"]
        if dollars > limits.budget_usd:
            lines.append(
                f"costs {dollars:,.0f} USD, more than --budget-usd {limits.budget_usd:,.0f}"
            )
    return lines


def _costs(answer: PlanAnswer) -> list[str]:
    """Return the dollars: at each given price, or on the basis that budgets are compared with."""
    terms = answer.run.terms
    basis = "given" if terms.prices else terms.basis
    priced = [line for line in answer.costs if line["basis"] == basis and line["cost_usd"]]
    if not priced:
        return ["no published price of an hour: give one with --price"]
    found = []
    for line in priced:
        named = basis.replace("_", " ") + (f", {line['year']}" if line["year"] else "")
        found.append(
            f"{_dollars(line['cost_usd'])} at {line['usd_per_gpu_hour']:.2f} USD per GPU-hour "
            f"({named})"
        )
    return found


def _energies(answer: PlanAnswer) -> list[str]:
    """Return the energy, and the carbon on each grid that was given."""
    known = [line for line in answer.energies if line["energy_kwh"]]
    if not known:
        return ["no published power of the accelerator: give it with --watts"]
    first = known[0]
    found = [
        f"{_amount(first['energy_kwh'] / 1e3)} MWh, {_amount(first['power_watts'] / 1e6)} MW, PUE "
        f"{first['pue']:.3g} included"
    ]
    if answer.run.terms.carbons:
        found += [
            f"{_amount(line['kg_co2e'] / 1e3)} t CO2e on grid {line['grid']}" for line in known
        ]
    return found


def _amount(value: float) -> str:
    return with_digits(value, 2)


def _dollars(amount: float) -> str:
    return f"{amount / 1e6:,.1f} M USD" if amount >= 1e6 else f"{amount:,.0f} USD"


def _line(name: str, text: str) -> str:
    """Return an entry: its name, then its text in lines of at most `_WIDTH` columns."""
    return "\n".join(wrapped(text, _WIDTH, f"  {name:<9}  ", " " * 13))
