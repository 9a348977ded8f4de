"""The accuracy of a plan: the interval of its time, and errors on measured steps."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.catalog import product_of
from estimators.interval import (
    ENDS,
    STEP,
    fit_probability,
    has_interval,
    interval_term,
    memory_that_fits,
)
from warehouse.ask.explain import explain
from warehouse.database.cache import cached
from warehouse.database.sql_text import least_fit_probability as ranked_from
from warehouse.evaluate.inputs import evaluate_intervals, evaluate_rows, resolve_rows
from warehouse.evaluate.one import show_configuration
from warehouse.plan.candidates import QueryCache
from warehouse.plan.errors import known_errors, memory_errors, own_run_errors
from warehouse.plan.track_record import track_record

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from warehouse.ask.explain import Explanation
    from warehouse.plan.errors import Errors
    from warehouse.plan.question import TrainingRun
    from warehouse.plan.track_record import TrackRecord

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Uncertainty:
    """The uncertainty of a plan; memory and own runs are those of `Errors`.

    Attributes
    ----------
    memory_factor
        Factor, at least 1, of the estimated memory behind the probability of fitting.
    likely, extreme
        Interval of the step's seconds, and the step with all constants at their fast and at their
        slow end; None, as `explanation`, for an estimator without ranges of constants.
    unlike
        Properties of the run that no published step has.
    """

    own_memory_bias: float | None
    memory_factor: float
    fit_probability: float | None
    likely: tuple[float, float] | None
    extreme: tuple[float, float] | None
    explain_command: str
    memory: Sequence[Line]
    own_runs: Sequence[Line]
    record: TrackRecord | None
    unlike: Sequence[str]
    queries: Mapping[str, str]
    explanation: Explanation | None


def uncertainty(
    run: TrainingRun, ask: QueryCache, layout: Line, num_gpus: int, errors: Errors
) -> Uncertainty:
    """Return the uncertainty of the estimate of a layout."""
    explanation, command = None, ""
    if run.estimator.step.formulas and run.estimator.constants.names:
        given = _explain_pairs(run, layout, num_gpus)
        command = shlex.join(["warehouse", "explain", *(f"{n}={v}" for n, v in given.items())])
        shown = show_configuration(
            *(run.estimator, run.estimator.relations[0], given, run.mends, run.catalog),
            has_ends=False,
        )
        # of layouts with equal time another may be stored, whose interval would differ
        if np.isclose(float(shown.results["step_seconds"] or 0), layout["step_seconds"]):
            explanation = explain(shown, run.catalog)
    queries = {"memory_accuracy": memory_errors(run)}
    if errors.own_runs:
        queries["own_runs"] = own_run_errors(run)
    factor = memory_factor(run, errors)
    return Uncertainty(
        own_memory_bias(errors),
        factor,
        fit_probability_of(run, layout, factor),
        None if explanation is None else explanation.likely,
        None if explanation is None else explanation.extreme,
        command,
        errors.memory,
        errors.own_runs,
        track_record(run, ask),
        unlike_published(run),
        queries,
        explanation,
    )


def own_memory_bias(errors: Errors) -> float | None:
    """Return the mean relative error of the memory on own runs that count."""
    known = [
        (line["num_memory_rows"], line["memory_bias"])
        for line in errors.counted_runs
        if line["num_memory_rows"]
    ]
    rows = sum(number for number, _ in known)
    return sum(number * bias for number, bias in known) / rows if rows else None


def memory_factor(run: TrainingRun, errors: Errors) -> float:
    """Return the factor of the estimated memory for the probability of fitting.

    The bias on own runs replaces that on published rows. The factor is 1 if own runs needed less
    memory: a few runs do not justify a smaller margin.
    """
    bias = own_memory_bias(errors)
    if bias is None:
        return 1.0
    mean = interval_term(run.catalog, "memory_error")[0] if _knows_memory_errors(run) else 0.0
    return max(float(np.exp(-mean)) / (1 + bias), 1.0)


def fit_probability_of(run: TrainingRun, layout: Line, factor: float) -> float | None:
    """Return the probability that a layout fits in memory; None if it is unknown."""
    if not _knows_memory_errors(run):
        return None
    memory_bytes = np.array([factor * float(layout["memory_bytes"])])
    return float(fit_probability(memory_bytes, float(layout["hbm_bytes"]), run.catalog)[0])


@contextmanager
def asking(run: TrainingRun, connection: DuckDBPyConnection) -> Iterator[QueryCache]:
    """Yield the queries of a plan; they rank by the chance to fit that it asks for.

    If the user's own runs took more memory than estimated, they rank by the chance with that.
    """
    ask = QueryCache(connection)
    least = least_fit_probability(run, memory_factor(run, known_errors(run, ask)))
    with ranked_from(connection, least):
        yield ask


def least_fit_probability(run: TrainingRun, factor: float) -> float:
    """Return the stored chance to fit from which a layout is as likely to fit as is asked.

    Stored chances are those of the estimated memory, without the `factor` of `memory_factor`.
    """
    share = safe_share(run)
    if share is None or factor == 1:
        return run.request.fit_probability
    return float(fit_probability(np.array([share / factor]), 1.0, run.catalog)[0])


def safe_share(run: TrainingRun) -> float | None:
    """Return the share of the memory up to which a layout is as likely to fit as is asked.

    It is None for an estimator whose errors of the memory are unknown.
    """
    if not _knows_memory_errors(run):
        return None
    return memory_that_fits(run.request.fit_probability, 1.0, run.catalog)


def _knows_memory_errors(run: TrainingRun) -> bool:
    return "fit_probability" in run.estimator.relations[0].outputs


def with_intervals(run: TrainingRun, layouts: Sequence[Line], num_gpus: int) -> list[Line]:
    """Return layouts with both ends of the interval next to their step, if the estimator has one.

    A layout is on `num_gpus` unless it has a column with its GPU count. If a layout of equal time
    but with other columns is stored instead, its interval would differ: then the layout has none.
    """
    relation = run.estimator.relations[0]
    if not layouts or not has_interval(run.estimator, relation):
        return list(layouts)
    pairs = [_explain_pairs(run, line, int(line.get("num_gpus", num_gpus))) for line in layouts]
    resolved = resolve_rows(run.estimator, relation, pairs, run.catalog, run.mends)
    intervals = evaluate_intervals(resolved, run.request.inputs)
    steps = evaluate_rows(resolved, [STEP])[STEP]
    figures = iter(zip(steps.tolist(), *(intervals[name].tolist() for name in ENDS), strict=True))
    lines: list[Line] = []
    for layout, is_good in zip(layouts, resolved.is_good, strict=True):
        step, *ends = next(figures) if is_good else (np.nan, np.nan, np.nan)
        if not np.isclose(step, layout[STEP]):
            ends = [None, None]
        line: dict[str, Any] = {}
        for name, value in layout.items():
            line[name] = value
            if name == STEP:
                line |= zip(ENDS, ends, strict=True)
        lines.append(line)
    return lines


def slow_times(run: TrainingRun, layouts: Sequence[Line]) -> dict[int, float]:
    """Return the slow end of the time of layouts on several GPU counts, by count [s].

    A count is left out where its layout has no interval.
    """
    return {
        int(line["num_gpus"]): line["training_seconds"] * line[ENDS[1]] / line[STEP]
        for line in with_intervals(run, layouts, 0)
        if line.get(ENDS[1]) is not None
    }


def _explain_pairs(run: TrainingRun, layout: Line, num_gpus: int) -> dict[str, str]:
    estimator, problem = run.estimator, run.problem
    searched = [name for name in estimator.searched_choices if layout.get(name) is not None]
    wanted = {
        **({} if problem["model"] is None else {"model": problem["model"]}),
        "accelerator": problem["accelerator"],
        **run.request.inputs,
        **{n: v for n, v in run.request.held.items() if n in estimator.choice_columns},
        "num_gpus": num_gpus,
        "global_batch_size": layout.get("global_batch_size", run.batch),
        **{name: layout[name] for name in (*searched, *estimator.relations[0].keys)},
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in wanted.items()
    }


def unlike_published(run: TrainingRun) -> list[str]:
    """Return the properties of the run that no published step has, so that no error covers them."""

    def covered() -> dict[str, Any]:
        from warehouse.plan.evaluated_steps import covered_by_published_steps  # takes polars

        return covered_by_published_steps()

    published, values, lines = cached("published", (), covered), run.problem, []
    if int(values.get("num_experts") or 1) > 1 and not published["has_experts"]:
        lines.append("no published step is of a mixture of experts")
    accelerators = published["accelerators"]
    if product_of(run.catalog, values["accelerator"]) not in accelerators:
        lines.append(
            f"no published step is on {values['accelerator']}: all are on "
            f"{' or '.join(accelerators)}"
        )
    programs = published["programs"]
    framework = values.get("framework")
    if framework is not None and framework not in programs:
        listed = f"{', '.join(programs[:-1])} and {programs[-1]}"
        lines.append(f"no published step is by {framework}: its own programs are {listed}")
    return lines
