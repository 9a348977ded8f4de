"""The answer of a plan in words: its eight lines, the alternatives, the notes of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from estimators.catalog import product_behind
from estimators.interval import ENDS
from estimators.kernels.gemms import FORMULA
from estimators.names import any_of
from warehouse.evaluate.profiles import DEFAULT
from warehouse.plan.accuracy import fit_probability_of
from warehouse.plan.published_runs import published_in_words
from warehouse.plan.question_words import assumptions
from warehouse.show.formats import count
from warehouse.show.units import (
    STEP_PARTS,
    run_time_in_words,
    run_times_in_words,
    with_digits,
)

if TYPE_CHECKING:
    from warehouse.plan.answer import PlanAnswer
    from warehouse.plan.question import TrainingRun
    from warehouse.plan.track_record import TrackRecord
    from warehouse.show.page import Entry

Line = Mapping[str, Any]

RANGE = "the range of a steady step of a tuned program"
"""The interval of a time for people. It does not cover lost time or a cluster that nobody tuned:
half of the published runs lie inside."""

_USUAL_GOODPUT = 0.9
"""Goodput that large runs report (table `goodput`), for the remark on lost time."""

_MUCH_ATTENTION = 1 / 3
"""Share of attention in the counted FLOPs above which a causal mask makes the MFU far too high."""


def probability_in_words(share: float) -> str:
    """Return a probability in whole percent: no estimate is certain."""
    if share > 0.99:
        return "over 99 %"
    return f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"


def dollars_in_words(cost: float) -> str:
    """Return dollars as far as they can be known: an estimate has no more than three digits."""
    if cost >= 1e6:
        return f"{cost / 1e6:,.1f} M USD"
    return f"{with_digits(float(f'{cost:.3g}'), 3)} USD"


def longer_in_words(layout: Line, best: Line) -> str:
    """Return how much longer the step of a layout is than that of the best one."""
    percent = f"{100 * (layout['step_seconds'] / best['step_seconds'] - 1):.2f}"
    return "as long" if percent == "0.00" else f"{percent} % longer"


def limits_in_words(answer: PlanAnswer) -> list[str]:
    """Return which limits hold for the median, and whether the slow end exceeds them.

    Power does not depend on the time.
    """
    limits, likely, best = answer.run.request.limits, answer.uncertainty.likely, answer.best
    slower = 0.0 if likely is None else likely[1] / best["step_seconds"]
    taken = {
        "--days": best["training_seconds"] / 86400,
        "--budget-usd": answer.own_count["cost_usd"],
    }
    given = [
        (f"{option} {limit:,.10g}", slower * taken[option] > limit)
        for option, limit in limits.by_option.items()
        if option in taken
    ]
    if not given:
        return []
    exceeded = [words.split()[0] for words, is_exceeded in given if is_exceeded]
    limit_or_limits = "limits" if len(given) == 1 else "limit"
    said = f"{' and '.join(words for words, _ in given)} {limit_or_limits} the median"
    if not exceeded:
        return [said]
    which = {(1, 1): "it", (2, 2): "both"}.get((len(exceeded), len(given)), exceeded[0])
    return [f"{said}; the slow end exceeds {which}"]


# ---- the eight lines ----


def answer_entries(answer: PlanAnswer) -> list[Entry]:
    """Return the eight lines of an answer, each with its name."""
    return [
        ("layout", _layout(answer)),
        ("time", _time(answer)),
        ("step", _step(answer)),
        ("cost", "; ".join(_costs(answer))),
        ("energy", "; ".join(_energies(answer))),
        ("memory", _memory(answer)),
        ("basis", "; ".join(_basis(answer))),
        ("assumes", ", ".join(_assumptions(answer))),
    ]


def _layout(answer: PlanAnswer) -> str:
    words = [answer.in_words(answer.best)]
    if stages := answer.stages_in_words(answer.best):
        words.append(f"stages of {stages}")
    if idle := answer.num_idle_gpus:
        words.append(f"{count(idle, 'GPU')} of {answer.num_gpus + idle:,} idle, and paid for")
    return "; ".join(words)


def _time(answer: PlanAnswer) -> str:
    best, likely = answer.best, answer.uncertainty.likely
    words = [run_time_in_words(best["training_seconds"])]
    if likely:
        steps = best["training_seconds"] / best["step_seconds"]
        words.append(f"{run_times_in_words(*(steps * end for end in likely))} is {RANGE}")
    return "; ".join([*words, *limits_in_words(answer)])


def _step(answer: PlanAnswer) -> str:
    best = answer.best
    words = f"{with_digits(best['step_seconds'], 3)} s"
    if best["mfu"] is not None:
        words += f" at {100 * best['mfu']:.0f} % of the peak"
    if answer.attention_share > _MUCH_ATTENTION:
        words += " (MFU counts all of attention, causal or not)"
    return f"{words}; {largest_parts(best)}"


def _costs(answer: PlanAnswer) -> list[str]:
    words = []
    for line in answer.costs_of_basis:
        dollars, year = dollars_in_words(line["cost_usd"]), line["year"]
        words.append(
            f"{dollars} at {line['usd_per_gpu_hour']:.2f} USD per GPU-hour "
            f"({line['basis'].replace('_', ' ')}{f', {year}' if year else ''})"
        )
    if words:
        return words
    others = any_of([*dict.fromkeys(line["basis"] for line in answer.costs if line["cost_usd"])])
    if others:
        basis = str(answer.run.terms.price_basis).replace("_", " ")
        return [f"no published price {basis}: ask for --basis {others}, or give yours with --price"]
    return ["no published price of an hour: give one with --price"]


def _energies(answer: PlanAnswer) -> list[str]:
    known = answer.headline_energies
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
        return f"{answer.run.estimator.name} does not estimate it"
    used, bias = best["memory_bytes"] / 1e9, sure.own_memory_bias
    words = f"{used:.1f} of {best['hbm_bytes'] / 1e9:.1f} GB a GPU"
    if bias is not None:
        words += f", {used / (1 + bias):.1f} GB with the bias of your runs ({100 * bias:+.1f} %)"
    if sure.fit_probability is not None:
        words += f"; {probability_in_words(sure.fit_probability)} likely to fit"
    return words if best["is_likely_to_fit"] else f"unlikely to fit: {words}"


def _basis(answer: PlanAnswer) -> list[str]:
    """Return the measured steps and runs on which the accuracy rests, the user's own first."""
    record, words = answer.uncertainty.record, own_runs_in_words(answer)
    profile = answer.run.problem.get("profile")
    if record is None:
        words.append("no published step checks it; `warehouse measure` takes yours")
    else:
        of_default = profile not in (None, DEFAULT)
        constants = f", with the default constants, not those of {profile}" if of_default else ""
        words.append(f"{record_in_words(record)}{constants}")
    return [*words, *_formula_in_words(answer.run), *published_in_words(answer)]


def _formula_in_words(run: TrainingRun) -> list[str]:
    """Return that no kernels of the accelerator were measured, where its matmuls need some."""
    product = product_behind(run.catalog, run.problem["accelerator"])
    row = run.catalog.tables["accelerator"].get(str(product), {})
    if run.problem.get("kernels") != FORMULA or row.get("kernels") is not None:
        return []
    return [f"no kernels of {product} were measured: its matmuls follow a formula of a wide range"]


def _assumptions(answer: PlanAnswer) -> list[str]:
    run = answer.run
    words = [*assumptions(run)]
    if run.terms.goodput is None:
        lost = run_time_in_words(answer.best["training_seconds"] / _USUAL_GOODPUT)
        words.append(f"no lost time (--goodput {_USUAL_GOODPUT:g}: {lost})")
    quotes = [line["num_quotes"] for line in answer.costs_of_basis if line["num_quotes"]]
    prices = [f"the middle of {n} prices" if n > 1 else "the price of one vendor" for n in quotes]
    return [*words, *prices[:1]]


def record_in_words(record: TrackRecord) -> str:
    """Return the errors on the published steps most like a plan, and which steps these are."""
    lacking = ""
    if record.found != record.wanted:
        steps = count(record.num_like, "published step")
        number = f"only {steps}" if record.num_like else "no published steps"
        verb = "is" if record.num_like == 1 else "are"
        lacking = f"{number} {verb} of {record.wanted}; "
    return (
        f"{lacking}{100 * record.mean_error:.1f} % mean error{record.bias_in_words()} on "
        f"{count(record.num_steps, 'published step')} of {record.found}: "
        f"{', '.join(record.accelerators)}"
        f"{f', none on {record.unmeasured}' if record.unmeasured else ''}"
    )


def own_runs_in_words(answer: PlanAnswer) -> list[str]:
    """Return the error on a user's runs; or that they do not count, and why."""
    words = []
    for line in answer.uncertainty.own_runs:
        what = f"{count(line['num_rows'], 'step')} of {line['reference']}"
        if line["why_not"]:
            words.append(f"your {what} do not count: {line['why_not']}")
            continue
        said = (
            f"your {what} ({line['models'] or 'own models'}): "
            f"{100 * line['time_mean_absolute_relative_error']:.1f} % mean error"
        )
        if line["num_fitted_rows"]:
            which = "them" if line["num_fitted_rows"] == line["num_rows"] else "some of them"
            said += f", with profile {line['profile']}, which was fitted to {which}"
        words.append(said)
    return words


# ---- other layouts and batches ----


def alternative_entries(answer: PlanAnswer) -> list[Entry]:
    """Return the alternatives to the best layout: time, memory, chance to fit, layout."""
    return [(name, _alternative(answer, name, layout)) for name, layout in answer.alternatives]


def _alternative(answer: PlanAnswer, name: str, layout: Line) -> str:
    slower = 100 * (layout["step_seconds"] / answer.best["step_seconds"] - 1)
    words = [f"{run_time_in_words(layout['training_seconds'])} ({slower:+.1f} %)"]
    if name == "surer":
        steps = layout["training_seconds"] / layout["step_seconds"]
        words.append(f"at most {run_time_in_words(steps * layout[ENDS[1]])}")
    if layout["memory_bytes"] is not None:
        words.append(f"{layout['memory_bytes'] / 1e9:.1f} GB")
        fits = fit_probability_of(answer.run, layout, answer.uncertainty.memory_factor)
        if fits is not None:
            words.append(f"fits: {probability_in_words(fits)}")
    return f"{', '.join(words)}; {answer.in_words(layout)}"


def batch_entries(answer: PlanAnswer) -> list[Entry]:
    """Return what other batches of the usual range take, and why this one was taken."""
    others = [
        f"{line['global_batch_size']:,} take {run_time_in_words(line['training_seconds'])}"
        + ("" if line.get("cost_usd") is None else f", {dollars_in_words(line['cost_usd'])}")
        for line in answer.batches
    ]
    words = "; ".join(filter(None, [answer.batch_note, *others]))
    return [("batches", words)] if words else []


# ---- notes of the tables ----


def largest_parts(layout: Line) -> str:
    """Return the two largest parts of a layout's step, with their shares of it."""
    parts = {name: layout[name] or 0.0 for name in STEP_PARTS}
    first, second = sorted(parts, key=lambda name: -parts[name])[:2]
    share = {name: f"{100 * parts[name] / layout['step_seconds']:.0f} %" for name in parts}
    words = f"{share[first]} of the step is {STEP_PARTS[first]}"
    return f"{words}, {share[second]} {STEP_PARTS[second]}" if parts[second] else words


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


def count_rows(answer: PlanAnswer) -> list[dict[str, Any]]:
    """Return the figures of each count that was tried, and a note.

    The note says that it has no layout, is the best, or is within the limits.
    """
    slow, has_limits = "slow_training_seconds", bool(answer.run.request.limits)
    lines = answer.counts
    columns = ["num_gpus", "training_seconds", slow, "gpu_hours", "cost_usd", "energy_kwh"]
    columns += ["power_watts", "mfu", "memory_bytes"]
    if all(line.get(slow) is None for line in lines):
        columns.remove(slow)
    rows = []
    for line in lines:
        mark = None
        if line["num_gpus"] == answer.num_gpus:
            mark = "best"
        elif has_limits and line["num_gpus"] in answer.within_limits:
            mark = "within the limits"
        note = "; ".join(text for text in (line["note"], mark) if text)
        rows.append({**{name: line.get(name) for name in columns}, "note": note})
    return rows
