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
from warehouse.cli.plan_question import batch_in_words, domain_in_words
from warehouse.show.formats import Figure, json_value
from warehouse.show.units import layout_in_words, unless_rounding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.ask.why import Question, Why

SHOWN_NEIGHBOURS = 5
OWN_SYSTEM = "a system of one's own"


def why(
    pairs: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="The layout, as `explain` and `show` take it."),
    ],
    estimator: Annotated[
        str, typer.Option(metavar="NAME", help="Whose estimates: training_step or roofline.")
    ] = "training_step",
    tokens: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Tokens of the run: where no batch is given, it is that of `plan` for them.",
            show_default="20 for each active parameter",
        ),
    ] = None,
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
    that it read. What is not given is a default, and is told; the batch is that of `plan`.
    """
    from estimators import registry
    from estimators.contract import RefusedError
    from warehouse.ask.cost import above_zero
    from warehouse.ask.defaults import with_model_hint
    from warehouse.ask.why import ESTIMATORS, completed
    from warehouse.ask.why import why as found_why
    from warehouse.database.catalog import packaged_catalog
    from warehouse.errors import UsageError
    from warehouse.evaluate.one import read_pairs
    from warehouse.evaluate.profiles import load_profiles, with_profiles

    model = registry.get(estimator)
    if estimator not in ESTIMATORS:
        raise UsageError(
            f"`--estimator` {estimator} searches no layouts of a step",
            f"use {' or '.join(ESTIMATORS)}",
        )
    given = read_pairs(model, model.relations[0], pairs)
    catalog = with_profiles(packaged_catalog(), lambda: load_profiles(db), model, profile)
    mends = frozenset(model.mends)
    question = completed(model, given, mends, catalog, above_zero("tokens", tokens))
    try:
        found = found_why(model, question.given, mends, catalog)
    except RefusedError as error:
        raise with_model_hint(error, given) from None
    if as_json:
        document = {"question": _question(question), **_document(found)}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    say(title_line(estimator))
    for line in question_lines(question, found):
        _line(line)
    if found.shown is None:
        _put_broken(found)
    else:
        _put_compared(found)


def question_lines(question: Question, found: Why) -> list[str]:
    """Return what is asked: the problem, the batch and where it is from, the layout."""
    from warehouse.ask.defaults import OWN_MODEL

    shown = found.shown
    values = question.problem if shown is None else shown.problem
    if not values:
        return []
    num_gpus = question.num_gpus if shown is None else shown.problem["num_gpus"]
    gpus = "" if num_gpus is None else f"{num_gpus:,} x "
    framework = f", framework {values['framework']}" if values.get("framework") else ""
    lines = [
        f"{values['model'] or OWN_MODEL} on {gpus}"
        f"{values['accelerator'] or OWN_SYSTEM} in "
        f"{domain_in_words(values)}, sequences of {values['seq_len']:,}{framework}"
    ]
    batch = question.batch
    if shown is not None:
        batch = int(shown.problem["global_batch_size"] or 0)
    if batch is not None:
        lines.append(batch_in_words(batch, values) + _rule(question))
    if shown is not None:
        choices = {name: shown.problem[name] for name in shown.estimator.choice_columns}
        lines.append(f"layout {layout_in_words({**shown.layout, **choices})}")
    return lines


def _rule(question: Question) -> str:
    if not question.is_default_batch:
        return ""
    told = f", that of `plan` for {(question.dataset_tokens or 0) / 1e12:,.3g} T tokens"
    if question.multiple is not None:
        told += f", to a multiple of the {question.multiple:,} that the layout takes at once"
    return f"{told}; global_batch_size= or --tokens gives another"


def _question(question: Question) -> dict[str, Any]:
    return {
        **{name: json_value(value) for name, value in question.problem.items()},
        "num_gpus": question.num_gpus,
        "global_batch_size": question.batch,
        "is_default_batch": question.is_default_batch,
        "dataset_tokens": question.dataset_tokens,
    }


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
    _line(f"the best takes {best:.4g} s, {layout_in_words(found.best)}")
    if unless_rounding(seconds - best, best) > 0:
        _line(f"it loses {seconds - best:.4g} s, {100 * (seconds / best - 1):.1f} % of the best")
    _put_parts(found, seconds, best)
    _put_neighbours(found, seconds)


def _put_parts(found: Why, seconds: float, best: float) -> None:
    rows: list[tuple[str, ...]] = [
        (
            part.name.removesuffix("_seconds"),
            Figure(f"{unless_rounding(part.seconds, best):.4g}"),
            Figure(f"{unless_rounding(part.best_seconds, best):.4g}"),
            Figure(f"{unless_rounding(part.difference_seconds, best):+.3g}"),
            Figure(f"{100 * unless_rounding(part.difference_seconds, best) / best:+.1f}"),
        )
        for part in found.parts
    ]
    more = unless_rounding(seconds - best, best)
    total = (seconds, best, more, 100 * more / best)
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
            layout_in_words(one.layout),
        )
        for one in found.neighbours[:SHOWN_NEIGHBOURS]
    ]
    put(("change", "from", "to", "step s", "%", "memory GB", "layout"), [rows])


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
