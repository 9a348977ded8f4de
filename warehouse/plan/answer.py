"""The answer of a plan: the best layouts on the best GPU count, their dollars, energy and error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.interval import ENDS, STEP
from warehouse.errors import InputError
from warehouse.plan import queries
from warehouse.plan.accuracy import (
    Uncertainty,
    fit_probability_of,
    memory_factor,
    slow_times,
    uncertainty,
    with_intervals,
)
from warehouse.plan.candidates import slowest_needed
from warehouse.plan.compare import best_counts, compare_counts, why_no_layout_fits
from warehouse.plan.errors import known_errors
from warehouse.plan.search import batch_on
from warehouse.show.units import layout_in_words, stages_in_words

if TYPE_CHECKING:
    from warehouse.plan.candidates import QueryCache
    from warehouse.plan.errors import Errors
    from warehouse.plan.question import TrainingRun
    from warehouse.plan.search import Sweep

Line = Mapping[str, Any]

_STEADIER_TIME, _STEADIER_END = 1.05, 0.9
"""A steadier layout has at most these multiples of the best layout's time and of its slow end."""


_ALTERNATIVES = 3
"""Alternatives to the best layout that an answer has."""


@dataclass(frozen=True)
class PlanAnswer:
    """A planned run, in base units.

    Attributes
    ----------
    layouts
        The best layouts on `num_gpus`, best first.
    other_kind
        The best layout that differs from the best in a degree, recomputation or ZeRO stage.
    riskier_layout
        The fastest layout that fits in memory by the estimate, if it is faster than the best.
    counts
        Every GPU count that was tried, with the figures of its best layout and a note; within
        limits also the slow end of its time.
    expert_degrees
        The best layout of each degree of expert parallelism; none where only one is possible.
    num_idle_gpus
        GPUs that were asked for beyond the `num_gpus` that the best layout uses.
    batches, batch_note
        What other batches take, and why the batch was taken if it is not the asked or usual one.
    """

    run: TrainingRun
    num_gpus: int
    problem_id: int
    layouts: Sequence[Line]
    other_kind: Line | None
    riskier_layout: Line | None
    counts: Sequence[Line]
    within_limits: frozenset[int]
    expert_degrees: Sequence[Line]
    costs: Sequence[Line]
    energies: Sequence[Line]
    published_runs: Sequence[Line]
    uncertainty: Uncertainty
    sweeps: Sequence[Sweep]
    queries: Mapping[str, str]
    num_idle_gpus: int = 0
    batches: Sequence[Line] = ()
    batch_note: str = ""

    @property
    def best(self) -> Line:
        """The best layout."""
        return self.layouts[0]

    @property
    def attention_share(self) -> float:
        """Share of attention in the FLOPs that the MFU counts; NaN where it is not known.

        The least FLOPs have half of the attention, that of a causal mask.
        """
        run, best = self.run, self.best
        if best["mfu"] is None:
            return math.nan
        names = (*run.estimator.problem_columns, *run.estimator.choice_columns)
        size = {"num_gpus": self.num_gpus, "global_batch_size": run.batch}
        known = {**run.problem, **best, **size}
        given = {name: known.get(name) for name in names}
        columns = {
            name: np.array([math.nan if value is None else value]) for name, value in given.items()
        }
        least = float(run.estimator.step.least_seconds(columns)[0])
        return 2 * (1 - least / float(best["mfu"] * best[STEP]))

    @property
    def runner_up(self) -> Line | None:
        """The second best layout."""
        return self.layouts[1] if len(self.layouts) > 1 else None

    @property
    def alternatives(self) -> list[tuple[str, Line]]:
        """Other layouts, each with the name of its difference; at most `_ALTERNATIVES`."""
        named: list[tuple[str, Line | None]] = [
            ("riskier", self.riskier_layout),
            ("surer", self.steadier_layout),
            ("other", self.other_kind),
            *((f"rank {rank}", line) for rank, line in enumerate(self.layouts[1:], start=2)),
        ]
        found: dict[str, tuple[str, Line]] = {}
        for name, layout in named:
            if layout is not None:
                found.setdefault(self.in_words(layout), (name, layout))
        return list(found.values())[:_ALTERNATIVES]

    @property
    def steadier_layout(self) -> Line | None:
        """The layout with the earliest slow end among those read, if it is worth its time."""
        high = ENDS[1]
        slowest = self.best.get(high)
        if slowest is None:
            return None
        near = [
            line
            for line in [*self.layouts, *filter(None, [self.other_kind])]
            if line[STEP] <= _STEADIER_TIME * self.best[STEP]
            and line.get(high) is not None
            and line["is_likely_to_fit"] >= self.best["is_likely_to_fit"]
        ]
        steadiest = min(near, key=lambda line: float(line[high]))
        return steadiest if steadiest[high] < _STEADIER_END * slowest else None

    @property
    def costs_of_basis(self) -> list[Line]:
        """The costs at the given prices, or at the published price of the plan's basis."""
        basis = self.run.terms.price_basis
        return [line for line in self.costs if line["basis"] == basis and line["cost_usd"]]

    @property
    def headline_energies(self) -> list[Line]:
        """The energies that are known, on the first given site at its first price of a kWh."""
        known = [line for line in self.energies if line["energy_kwh"]]
        sites = [(line["pue"], line["usd_per_kwh"]) for line in known]
        return [line for line, site in zip(known, sites, strict=True) if site == sites[0]]

    @property
    def own_count(self) -> Line:
        """The line of `counts` of the GPU count that is taken."""
        return next(line for line in self.counts if line["num_gpus"] == self.num_gpus)

    def in_words(self, layout: Line) -> str:
        """Return a layout in words, with its strategy if the estimator has several."""
        has_strategy = "strategy" in self.run.estimator.choice_columns
        return layout_in_words({n: v for n, v in layout.items() if n != "strategy" or has_strategy})

    def stages_in_words(self, layout: Line) -> str:
        """Return how the stages of a layout differ; "" where they are equal."""
        estimator = self.run.estimator
        missing = dict.fromkeys(estimator.optional_columns)
        return stages_in_words(estimator.uneven_stages({**missing, **self.run.problem, **layout}))


def read_answer(run: TrainingRun, ask: QueryCache, sweeps: Sequence[Sweep], top: int) -> PlanAnswer:
    """Read the answer from the database; every sweep must be stored.

    The last sweep has every GPU count that was tried. The answer has `top` layouts, and those of
    the alternatives at least, if there are as many.
    """
    last = sweeps[-1]
    within_limits = best_counts(run, *compare_counts(run, ask, last))
    num_gpus = int(within_limits[0]["num_gpus"])
    batch = batch_on(run.batch, num_gpus)
    is_usual = run.is_default_batch and batch == run.batch
    run = replace(run, batch=batch, asked_batch=run.batch, is_default_batch=is_usual)
    problem = last.problems[num_gpus]
    problems, wanted = list(last.problems.values()), max(top, 1 + _ALTERNATIVES)
    errors = known_errors(run, ask)
    parts = _Parts(ask)
    parts.queries["layouts"] = queries.best_layouts(run, problem, wanted)
    with ask.fastest_of(run, problems):
        counts = _read_runs(parts, run, problem, problems)
        slowest = slowest_needed(run, ask, problem, wanted)
    with ask.layouts_of(run, problem, slowest):
        best = parts.read("layouts", parts.queries["layouts"])[0]
        parts.read("other_kind", queries.best_layouts(run, problem, 1, unlike=best))
        if run.request.strict_fit and not best["is_likely_to_fit"]:
            raise _unlikely(run, best, num_gpus, errors)
        [fastest] = parts.read("riskier", queries.best_layouts(run, problem, 1, is_any_fit=True))
        if fastest[STEP] >= best[STEP]:
            parts.rows["riskier"] = []
    # only queried if a count has no layout that fits: the query reads all layouts
    has_all = len(counts) == len(last.problems)
    memory = [] if has_all else ask(parts.queries["least_memory"])
    degree = "expert_parallel"
    is_searched = degree in run.estimator.relations[0].keys and degree not in run.request.held
    if is_searched and int(run.problem.get("num_experts") or 1) > 1:
        parts.read("expert_degrees", queries.best_by_experts(run, problem))
    groups = [parts.rows.get(name, []) for name in ("layouts", "other_kind", "riskier")]
    lines = iter(with_intervals(run, [*chain(*groups)], num_gpus))
    layouts, other_kind, riskier = (list(islice(lines, len(group))) for group in groups)
    degrees = [
        layouts[0] if line[degree] == best[degree] else line
        for line in parts.rows.get("expert_degrees", [])
    ]
    sure = uncertainty(run, ask, best, num_gpus, errors)
    return PlanAnswer(
        run,
        num_gpus,
        problem,
        layouts,
        next(iter(other_kind), None),
        next(iter(riskier), None),
        _all_counts(counts, memory, last),
        frozenset(line["num_gpus"] for line in within_limits),
        degrees if len(degrees) > 1 else [],
        [{**line, "option": _option_of_price(line)} for line in parts.rows["costs"]],
        [
            {**line, "option": "--watts" if line["watts_per_gpu"] is None else None}
            for line in parts.rows["energies"]
        ],
        parts.rows["published_runs"],
        sure,
        sweeps,
        {**parts.queries, **sure.queries},
        max((run.request.num_gpus or num_gpus) - num_gpus, 0),
    )


def _unlikely(run: TrainingRun, layout: Line, num_gpus: int, errors: Errors) -> InputError:
    """Return the error of a plan whose likeliest layout may not fit in memory."""
    found = fit_probability_of(run, layout, memory_factor(run, errors)) or 0.0
    least = 100 * run.request.fit_probability
    return InputError(
        f"`--strict-fit`: no layout on {num_gpus:,} GPUs is {least:g} % likely to fit in memory: "
        f"the likeliest has a chance of {100 * found:.0f} %",
        "leave --strict-fit out to see it",
    )


class _Parts:
    """The parts of an answer by name: their queries, in order, and their rows."""

    def __init__(self, ask: QueryCache) -> None:
        self.ask = ask
        self.queries: dict[str, str] = {}
        self.rows: dict[str, list[Line]] = {}

    def read(self, name: str, query: str) -> list[Line]:
        """Keep the query of a part, and return its rows."""
        self.queries[name] = query
        self.rows[name] = self.ask(query)
        return self.rows[name]


def _read_runs(
    parts: _Parts, run: TrainingRun, problem: int, problems: Sequence[int]
) -> list[Line]:
    """Read costs, energies, published runs and GPU counts; return the counts that fit.

    Within limits these have the slow end of their time. Call it in a block of
    `QueryCache.fastest_of`.
    """
    prices = parts.read("costs", queries.costs(run, problem))
    powers = parts.read("energies", queries.energies(run, problem))
    rates = queries.gpu_rates(run, prices, powers)
    counts = parts.read("counts", queries.counts(run, problems, rates))
    parts.read("published_runs", queries.published_runs(run, problem))
    parts.queries["least_memory"] = queries.least_memory(run, problems)
    if not run.request.limits:
        return counts
    layouts = parts.read("layouts_of_counts", queries.layouts_of_counts(run, problems))
    slow = slow_times(run, layouts)
    return [{**line, "slow_training_seconds": slow.get(line["num_gpus"])} for line in counts]


def _option_of_price(line: Line) -> str | None:
    if line["usd_per_gpu_hour"] is not None:
        return None
    return "--watts" if line["basis"] == "owned" else "--price"


def _all_counts(fitting: Sequence[Line], memory: Sequence[Line], sweep: Sweep) -> list[Line]:
    """Return a line for every GPU count; a note explains why a count has no layout that fits."""
    fits = {line["num_gpus"]: line for line in fitting}
    least = {line["num_gpus"]: line["least_memory_bytes"] for line in memory}
    return [
        {
            "num_gpus": count,
            "problem_id": problem,
            **fits.get(count, {}),
            "note": None if count in fits else why_no_layout_fits(least.get(count)),
        }
        for count, problem in sorted(sweep.problems.items())
    ]
