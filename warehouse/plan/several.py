"""Several questions of one command: a plan for each accelerator, GPU count and number of tokens.

Every question is read before the first is answered. A question whose limits a bound of its time
misses is not evaluated; its row says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

from estimators import registry
from estimators.contract import RefusedError, content_id
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError
from warehouse.evaluate.profiles import load_profiles
from warehouse.plan.compare import LimitsMissedError
from warehouse.plan.question import is_all, read_request, read_terms, reference_tables, resolve
from warehouse.plan.question_words import run_in_words
from warehouse.plan.run import answer_plan, store_sweep
from warehouse.plan.search import Sweep, plan_first_sweep, plan_sweep
from warehouse.studies.definitions import catalog_file

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.options import PlanOptions
    from warehouse.plan.answer import PlanAnswer
    from warehouse.plan.question import TrainingRun
    from warehouse.plan.run import Store

Line = Mapping[str, Any]

COLUMNS = (
    *("rank", "accelerator", "network_bytes_per_second", "dataset_tokens", "num_gpus"),
    *(
        "num_idle_gpus",
        "precision",
        "global_batch_size",
        "training_seconds",
        "cost_usd",
        "energy_kwh",
        "memory_bytes",
    ),
    *("fit_probability", "time_mean_absolute_relative_error", "layout", "note"),
)
"""Columns of the table of several answers."""


@dataclass(frozen=True)
class Question:
    """One of several questions, read and resolved.

    Attributes
    ----------
    options
        The options that ask this question alone.
    place
        Where its tokens and its GPU count stand among those that were asked for.
    sweep, error
        Its first sweep, or why it has none.
    """

    options: PlanOptions
    place: tuple[int, int]
    run: TrainingRun
    sweep: Sweep | None
    error: InputError | None = None

    @property
    def in_words(self) -> str:
        """What is trained where, within which limits."""
        return run_in_words(self.run, self.run.request.num_gpus)

    @property
    def first_step(self) -> str:
        """Its first sweep, or why it has none, in words."""
        return str(self.error).replace("\n", "; ") if self.sweep is None else self.sweep.in_words()


@dataclass(frozen=True)
class Answered:
    """A question with its answer, or with the error that says why it has none."""

    question: Question
    answer: PlanAnswer | None
    error: InputError | None = None

    @property
    def run(self) -> TrainingRun:
        """The run that is answered, with its batch; without an answer the run that was asked."""
        return self.question.run if self.answer is None else self.answer.run

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts answers: in the order asked by tokens and GPU count, then the best first.

        The best is the fastest, or the cheapest with a limit on days. A layout that is unlikely to
        fit comes after those that are, and what has no answer last: the nearest miss first.
        """
        if self.answer is None:
            return (True, self.miss)
        best, cost = self.answer.best, self.answer.own_count["cost_usd"]
        figure = best["training_seconds"]
        if self.run.request.limits.takes_cheapest:
            figure = inf if cost is None else cost
        return (False, *self.question.place, not best["is_likely_to_fit"], figure)

    @property
    def miss(self) -> float:
        """By which share the limits are missed at least; infinite where this is unknown."""
        return self.error.share if isinstance(self.error, LimitsMissedError) else inf

    @property
    def note(self) -> str | None:
        """Why there is no answer, in a few words."""
        if self.error is None:
            return None
        if isinstance(self.error, LimitsMissedError):
            return self.error.by_how_much
        return self.error.message.splitlines()[0].replace("`", "")

    def record(self) -> dict[str, Any]:
        """Return the row of the table of several answers, without its rank."""
        run, answer = self.run, self.answer
        values: dict[str, Any] = {
            "accelerator": run.problem["accelerator"],
            "network_bytes_per_second": run.problem.get("network_bytes_per_second"),
            "dataset_tokens": run.request.tokens,
            "num_gpus": run.request.num_gpus,
            "precision": run.problem.get("precision"),
            "global_batch_size": run.batch,
            "note": self.note,
        }
        if answer is not None:
            best, record = answer.best, answer.uncertainty.record
            is_measured = record is not None and not record.unmeasured
            values |= {
                "num_gpus": answer.num_gpus + answer.num_idle_gpus,
                "num_idle_gpus": answer.num_idle_gpus,
                "training_seconds": best["training_seconds"],
                "cost_usd": answer.own_count["cost_usd"],
                "energy_kwh": answer.energies[0]["energy_kwh"] if answer.energies else None,
                "memory_bytes": best["memory_bytes"],
                "fit_probability": answer.uncertainty.fit_probability,
                "time_mean_absolute_relative_error": (
                    record.mean_error if record is not None and is_measured else None
                ),
                "layout": answer.in_words(best),
            }
        return {name: values.get(name) for name in COLUMNS if name != "rank"}


def none_answered(answered: Sequence[Answered]) -> InputError:
    """Return the error of several questions of which none has an answer."""
    reasons = [f"{one.question.in_words}: {one.note}" for one in answered]
    return InputError(
        "\n".join([f"none of the {len(answered)} questions has an answer", *reasons]),
        "ask one of them alone for all that is known",
    )


def asks_several(options: PlanOptions) -> bool:
    """Return whether options ask more than one question."""
    repeated = (options.tokens, options.num_gpus or (), options.accelerator or ())
    return any(len({*values}) > 1 for values in repeated) or _asks_all(options)


def _asks_all(options: PlanOptions) -> bool:
    return any(map(is_all, options.accelerator or ()))


def read_questions(options: PlanOptions, database: Path) -> list[Question]:
    """Return the questions that options ask, each with its first sweep or why it has none.

    Nothing is evaluated or written. An accelerator that is named is refused where the model or the
    number format cannot use it; one that `all` stands for is left out.
    """
    named: Sequence[str | None] = [n for n in options.accelerator or (None,) if not is_all(n)]
    names: Sequence[str | None] = [*named, *(_accelerators(options) if _asks_all(options) else ())]
    tokens, counts = (dict.fromkeys(v or [None]) for v in (options.tokens, options.num_gpus))
    found: dict[object, Question] = {}
    refused: RefusedError | None = None
    profiles = cache(partial(load_profiles, database))
    with reference_tables(database) as reference:
        terms = read_terms(options, reference)
        asked = product(enumerate(tokens), enumerate(counts), dict.fromkeys(names))
        for (first, each_tokens), (second, count), name in asked:
            one = replace(
                options,
                tokens=[each_tokens],
                num_gpus=None if count is None else [count],
                accelerator=None if name is None else [name],
            )
            request = read_request(one, database)
            try:
                run = resolve(request, terms, profiles)
            except RefusedError as error:
                if name in named:
                    raise
                refused = error
                continue
            key = (run.problem["accelerator"], request.tokens, request.num_gpus)
            if key in found:  # two names of one accelerator
                continue
            try:
                found[key] = Question(one, (first, second), run, plan_first_sweep(run, reference))
            except InputError as error:
                found[key] = Question(one, (first, second), run, None, error)
            except RefusedError as error:
                why = InputError.from_refusals(error.refusals)
                found[key] = Question(one, (first, second), run, None, why)
    if refused is not None and not found:
        raise refused
    return [*found.values()]


_PCIE = 64e9
"""Bytes per second of PCIe 5.0 x16, one way: a slower fast domain has no links of its own."""


def _accelerators(options: PlanOptions) -> list[str]:
    """Return the products whose servers have fast links, and the systems of the catalog file.

    A paper's systems and named clusters are no products. Cards that exchange over PCIe alone are
    left out, too: a large run on them takes several times as long to plan, and to train.
    """
    registry.get(options.estimator)  # an unknown one is refused by name
    products = packaged_catalog().tables["accelerator"].items()
    linked = (name for name, row in products if float(row["nvlink_bytes_per_second"] or 0) > _PCIE)
    return [*sorted(linked), *catalog_file(options.catalog).systems]


def answer_all(
    questions: Sequence[Question],
    database: Path,
    top: int,
    store: Store = store_sweep,
    on_question: Callable[[int, Question], None] = lambda *_: None,
) -> list[Answered]:
    """Answer questions, the best answer first; what has no answer is last.

    `on_question` gets the number of each question, and the question, before it is answered.
    """
    return sorted(_answers(questions, database, top, store, on_question), key=lambda one: one.order)


def _answers(
    questions: Sequence[Question],
    database: Path,
    top: int,
    store: Store,
    on_question: Callable[[int, Question], None],
) -> Iterator[Answered]:
    if sweep := _together([one.sweep for one in questions if one.sweep is not None]):
        store(sweep, database)
    for number, question in enumerate(questions, start=1):
        if question.sweep is None:
            yield Answered(question, None, question.error)
            continue
        on_question(number, question)
        run = question.run
        if not run.request.limits:  # one question compares other batches, several do not
            run = replace(run, other_batches=[])
        with reference_tables(database) as connection:  # most cells are stored by now
            sweep = plan_sweep(run, question.sweep.candidates, connection)
        try:
            yield Answered(question, answer_plan(run, sweep, database, top, store))
        except InputError as error:
            yield Answered(question, None, error)


def _together(sweeps: Sequence[Sweep]) -> Sweep | None:
    """Return one sweep for those of the definitions of the first; None where it saves nothing.

    The first row of a sweep takes a second to store.
    """
    missing = [one for one in sweeps if one.missing_cells]
    alike = [one for one in missing if one.study.defined == missing[0].study.defined]
    if len(alike) < 2:
        return None
    first = alike[0]
    digest = content_id(*(one.study.name for one in alike)) % 16**6
    name = f"plan of {len(alike)} questions {digest:06x}"
    listed = [space for one in alike for space in one.study.definition["spaces"]]
    study = replace(
        first.study,
        name=name,
        spaces=tuple(space for one in alike for space in one.study.spaces),
        definition={**first.study.definition, "name": name, "spaces": listed},
    )
    counted = tuple(pair for one in alike for pair in one.cells.counted)
    return Sweep(
        study,
        [candidate for one in alike for candidate in one.candidates],
        replace(first.cells, study=study, counted=counted),
        sum(one.missing_cells for one in alike),
        sum(one.missing_rows for one in alike),
    )
