"""The answer of a plan in a few lines: layout, time, cost, memory, and how far to trust them."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from warehouse.calibrate.references import OTHER, OWN
from warehouse.show.units import layout_in_words, run_time_in_words, run_times_in_words

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from warehouse.plan.answer import PlanAnswer

    Line = Mapping[str, Any]

_ERROR = "time_mean_absolute_relative_error"


def summary_lines(answer: PlanAnswer) -> list[str]:
    """Return layout, time, cost, energy and memory of the best layout, a line each."""
    best = answer.best
    likely = answer.uncertainty.likely
    steps = best["training_seconds"] / best["step_seconds"]
    interval = (
        f", nine times in ten {run_times_in_words(*(steps * end for end in likely))}"
        if likely
        else ""
    )
    share = "" if best["mfu"] is None else f", {100 * best['mfu']:.0f} % of the peak"
    lines = [
        _line("layout", layout_line(answer, best)),
        _line(
            "time",
            f"{run_time_in_words(best['training_seconds'])}{interval}; "
            f"{best['step_seconds']:.3g} s a step{share}",
        ),
        _line("cost", "; ".join(_costs(answer))),
        _line("energy", "; ".join(_energies(answer))),
    ]
    if best["memory_bytes"] is not None and best["hbm_bytes"] is not None:
        used, room = best["memory_bytes"] / 1e9, best["hbm_bytes"] / 1e9
        lines.append(_line("memory", f"{used:.1f} of {room:.1f} GB a GPU"))
    return lines


def accuracy_line(answer: PlanAnswer) -> str:
    """Return how far the estimator is from published steps: the middle group and the worst.

    Steps of programs that the estimator has no constants of do not count.
    """
    lines = [line for line in answer.uncertainty.errors if line["published_group"] != OTHER]
    errors = [float(line[_ERROR]) for line in lines]
    if not errors:
        return _line("accuracy", "no published step checks it; `warehouse measure` takes yours")
    worst = max(lines, key=lambda line: float(line[_ERROR]))
    rows = sum(int(line["num_rows"]) for line in lines)
    return _line(
        "accuracy",
        f"mean error of the time on {rows:,} published steps in {len(lines)} groups: "
        f"{100 * median(errors):.1f} % in the middle one, {100 * max(errors):.0f} % in the worst "
        f"({_name(worst)})",
    )


def layout_line(answer: PlanAnswer, layout: Line) -> str:
    """Return a layout in words; its strategy where the estimator has a choice of it."""
    has_strategy = "strategy" in answer.run.estimator.choice_columns
    return layout_in_words({n: v for n, v in layout.items() if n != "strategy" or has_strategy})


def _costs(answer: PlanAnswer) -> list[str]:
    """Return the dollars: at each price that was given, or on the basis that is compared."""
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
    found = [f"{_amount(known[0]['energy_kwh'] / 1e3)} MWh"]
    if answer.run.terms.carbons:
        found += [
            f"{_amount(line['kg_co2e'] / 1e3)} t CO2e on grid {line['grid']}" for line in known
        ]
    return found


def _name(line: Line) -> str:
    """Return the name of a group of published steps."""
    table = str(line["reference"]).removeprefix("published_")
    return table if line["published_group"] == OWN else line["published_group"]


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _dollars(amount: float) -> str:
    return f"{amount / 1e6:,.1f} M USD" if amount >= 1e6 else f"{amount:,.0f} USD"


def _line(name: str, text: str) -> str:
    return f"  {name:<9}  {text}"
