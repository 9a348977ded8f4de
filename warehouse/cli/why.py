"""`warehouse why`: a layout's rank, what it loses and where, or what excludes it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warehouse.cli.common import (
    DEFAULT_DATABASE,
    Database,
    ProfileOption,
    count,
    put,
    put_for_people,
    say,
    title_line,
)
from warehouse.formats import Figure, json_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.why import Why

SHOWN_NEIGHBOURS = 5


def why(
    pairs: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="The layout, as `explain` and `show` take it."),
    ],
    estimator: Annotated[
        str, typer.Option(metavar="NAME", help="Whose estimates: training_step or roofline.")
    ] = "training_step",
    profile: ProfileOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, in base units.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Say why a layout is not the best.

    The layout is evaluated beside every other one of the same problem, in memory; nothing is
    stored. Shown are its rank, its step beside that of the best one part by part, and the changes
    of one choice that would help most (data parallelism follows). Of a layout that does not fit:
    by how much, and what takes the memory. Of one that no rule admits: the rule, with the values
    that it read. What is not given is a default.
    """
    from estimators import registry
    from warehouse.catalog import packaged_catalog
    from warehouse.errors import UsageError
    from warehouse.profiles import load_profiles, profiled
    from warehouse.showing import read_pairs
    from warehouse.why import ESTIMATORS
    from warehouse.why import why as found_why

    model = registry.get(estimator)
    if estimator not in ESTIMATORS:
        raise UsageError(
            f"`--estimator` {estimator} searches no layouts of a step",
            f"use {' or '.join(ESTIMATORS)}",
        )
    given = read_pairs(model, model.relations[0], pairs)
    model = profiled(model, lambda: load_profiles(db), profile)
    found = found_why(model, given, frozenset(model.mends), packaged_catalog())
    if as_json:
        sys.stdout.write(json.dumps(_document(found), indent=1) + "\n")
        return
    say(title_line(estimator))
    if found.shown is None:
        _put_broken(found)
    else:
        _put_compared(found)


def _put_broken(found: Why) -> None:
    sys.stdout.write(f"excluded by {count(len(found.broken), 'rule')}\n\n")
    rows = [
        (
            each.rule,
            f"{each.column} {each.value} {each.reason}",
            ", ".join(f"{name} {value}" for name, value in each.values.items()),
            each.hint,
        )
        for each in found.broken
    ]
    put(("rule", "broken", "values", "hint"), [rows])


def _put_compared(found: Why) -> None:
    assert found.shown is not None
    results = found.shown.results
    seconds = float(results["step_seconds"] or 0)
    say(f"{count(found.num_layouts, 'layout')} of the same problem, {found.num_fitting:,} fit")
    if not found.is_searched:
        say("it is none of them: a search leaves it out, as another does the same or is as good")
    if found.rank is not None:
        _line(
            f"rank {found.rank:,} of {found.num_fitting:,}: {seconds:.4g} s, "
            f"{-found.excess_bytes / 1e9:,.1f} GB of memory are left"
        )
    else:
        _line(f"does not fit: {found.excess_bytes / 1e9:,.1f} GB too much; {seconds:.4g} s")
        _table(
            [{"part": part.removesuffix("_bytes"), "memory_bytes": b} for part, b in found.memory]
        )
        _line("")
    if found.best is None:
        _line("no layout of this problem fits: ask for more GPUs")
        return
    best = float(str(found.best["step_seconds"]))
    _line(f"the best takes {best:.4g} s, {_words(found.best)}")
    if seconds > best:
        _line(f"it loses {seconds - best:.4g} s, {100 * (seconds / best - 1):.1f} % of the best")
    _put_parts(found, seconds, best)
    _put_neighbours(found, seconds)


def _put_parts(found: Why, seconds: float, best: float) -> None:
    rows: list[tuple[str, ...]] = [
        (
            part.name.removesuffix("_seconds"),
            Figure(f"{part.seconds:.4g}"),
            Figure(f"{part.best_seconds:.4g}"),
            Figure(f"{part.difference_seconds:+.3g}"),
            Figure(f"{100 * part.difference_seconds / best:+.1f}"),
        )
        for part in found.parts
    ]
    total = (seconds, best, seconds - best, 100 * (seconds / best - 1))
    rows.append(
        (
            "step",
            *(Figure(f"{value:.4g}") for value in total[:2]),
            Figure(f"{total[2]:+.3g}"),
            Figure(f"{total[3]:+.1f}"),
        )
    )
    _line("")
    put(("part", "s", "best s", "more s", "% of the best step"), [rows])


def _put_neighbours(found: Why, seconds: float) -> None:
    _line("")
    if not found.neighbours:
        if found.rank == 1:
            _line("no layout is faster")
        elif found.rank is None:
            _line("no single change makes it fit")
        else:
            _line("no single change makes it faster: the way to the best takes several")
        return
    _line("changes of one choice that make it " + ("fit" if found.rank is None else "faster"))
    rows = [
        (
            one.changed,
            str(one.old),
            str(one.new),
            Figure(f"{one.step_seconds:.4g}"),
            Figure(f"{100 * (one.step_seconds / seconds - 1):+.1f}"),
            Figure(f"{one.memory_bytes / 1e9:,.1f}"),
            _words(one.layout),
        )
        for one in found.neighbours[:SHOWN_NEIGHBOURS]
    ]
    put(("change", "from", "to", "step s", "%", "memory GB", "layout"), [rows])


_SHORT = {
    "data_parallel": "dp",
    "tensor_parallel": "tp",
    "tensor_parallel_2": "x",
    "context_parallel": "cp",
    "expert_parallel": "ep",
    "pipeline_parallel": "pp",
    "virtual_pipeline": "chunks",
    "microbatch_size": "micro",
    "zero_stage": "zero",
    "summa_panels": "panels",
}


def _words(layout: Mapping[str, Any]) -> str:
    """Return a layout in words, as view best_of_cell has them."""
    words = [str(layout["strategy"])] if "strategy" in layout else []
    always = ("data_parallel", "tensor_parallel", "pipeline_parallel", "microbatch_size")
    for name, short in _SHORT.items():
        if name in layout and (name in always or layout[name] not in (0, 1)):
            words.append(f"{short}{layout[name]}")
    if layout.get("zero_stage") == 1:
        words.append("zero1")
    if layout.get("uses_sequence_parallel"):
        words.append("sp")
    if layout["activation_recompute"] != "none":
        words.append(f"recompute {layout['activation_recompute']}")
    return " ".join(words)


def _table(rows: list[dict[str, Any]]) -> None:
    columns = tuple(rows[0])
    put_for_people(columns, [[row[name] for name in columns] for row in rows])


def _line(text: str) -> None:
    sys.stdout.write(text + "\n")


def _document(found: Why) -> dict[str, Any]:
    if found.shown is None:
        return {"is_admitted": False, "rules": [_plain(vars(each)) for each in found.broken]}
    shown = found.shown
    seconds = float(shown.results["step_seconds"] or 0)
    best = None if found.best is None else float(str(found.best["step_seconds"]))
    return {
        "is_admitted": True,
        "inputs": _plain({**shown.problem, **shown.layout}),
        "results": _plain(shown.results),
        "is_searched": found.is_searched,
        "rank": found.rank,
        "num_layouts": found.num_layouts,
        "num_fitting_layouts": found.num_fitting,
        "fits_memory": found.rank is not None,
        "excess_bytes": found.excess_bytes,
        "memory": dict(found.memory),
        "best": None if found.best is None else _plain(found.best),
        "loss_seconds": None if best is None else seconds - best,
        "loss_fraction": None if best is None else seconds / best - 1,
        "parts": [
            {**vars(part), "difference_seconds": part.difference_seconds} for part in found.parts
        ],
        "neighbours": [_plain(vars(one)) for one in found.neighbours],
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _plain(value) if isinstance(value, dict) else json_value(value)
        for name, value in values.items()
    }
