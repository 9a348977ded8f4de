"""The search of a plan: which GPU counts and batches to try, and what to sweep for them.

For N GPUs the candidates are the layouts of every count up to N of one list that does not depend on
N. A larger N only adds candidates, so that no run takes longer on more GPUs. Counts are tried from
the largest down, and cells are left out that cannot win by a lower bound of their time. Within
limits on days, dollars or megawatts, a count between each two powers of two is tried first. Every
layout of each cell that is tried is stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from estimators.contract import Cell, Scalar, content_id
from warehouse.errors import InputError
from warehouse.evaluate.profiles import check_space
from warehouse.evaluate.space import cells_of_problem, named_choices
from warehouse.plan import queries
from warehouse.show.formats import count
from warehouse.show.units import in_words
from warehouse.studies.study import Study
from warehouse.sweep.cells import StudyCells, num_layouts

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from warehouse.plan.question import TrainingRun

_SERVER = 8
"""GPUs of a server of up to eight that share NVLink, as DGX and HGX have (NVIDIA DGX H100 User
Guide, introduction)."""

_TRAY = 4
"""GPUs of a compute tray of a wider domain (NVIDIA GB200 NVL72: 18 trays of four)."""

_FACTORS = (2, 3, 5, 7)
"""Prime factors of listed counts. Batches, heads and layers rarely have larger ones."""

_DEGREES = (
    *("data_parallel", "tensor_parallel", "tensor_parallel_2", "context_parallel"),
    "pipeline_parallel",
)
_EXPERT_DEGREES = ("expert_parallel", "expert_tensor_parallel", "pipeline_parallel")
"""Degrees whose product divides the GPUs: of all layers, and of those with experts."""

_ANY_COUNT = 64
"""Counts up to this one are listed whether they are whole servers or not."""

_HALF = 128
"""GPU count from which counts below its half are not tried where nothing fits above: a layout on
fewer GPUs needs more memory."""

_CHANGE = 0.15
"""Largest change of a batch to one that a count divides."""

Line = Mapping[str, Any]

_ALL_STORED = "all of them are stored already"

LAYOUT_RULE = "degrees must multiply to it and divide heads, layers and batch"
"""Rule that a GPU count without a layout breaks, in words."""


# ---- GPU counts to try ----


def server_size(run: TrainingRun) -> int:
    """Return the GPUs of one server of the system."""
    domain = int(run.problem.get("nvlink_size") or 1)
    return _TRAY if domain > _SERVER else domain


def listed_counts(run: TrainingRun, most: int) -> list[int]:
    """Return the listed counts up to `most`, descending.

    They have no prime factor but `_FACTORS` and those of the degrees that the layouts must have.
    Large ones are whole servers. The list itself does not depend on `most`.
    """
    server = server_size(run)
    keys = run.estimator.relations[0].keys
    degrees = [value for name, value in run.request.held.items() if name in keys]
    factors = {*_FACTORS, *(f for d in degrees if isinstance(d, int) for f in _prime_factors(d))}
    found = [1]
    for factor in sorted(factors):
        powers = itertools.takewhile(lambda n: n <= most, (factor**k for k in itertools.count()))
        found = [number * power for power in powers for number in found if number * power <= most]
    return sorted((n for n in found if n <= _ANY_COUNT or n % server == 0), reverse=True)


def _prime_factors(number: int) -> Iterator[int]:
    factor = 2
    while factor * factor <= number:
        if number % factor == 0:
            yield factor
            number //= factor
        else:
            factor += 1
    if number > 1:
        yield number


def batch_on(batch: int, num_gpus: int) -> int:
    """Return the batch of a GPU count: the nearest to `batch` that its replicas can divide.

    Layers and heads rarely have the odd factors of a count, so the replicas need them. If the
    largest odd factor does not divide the batch, the batch becomes the nearest multiple of it, and
    of as many factors of two as leave one within `_CHANGE`; if there is none, a smaller odd factor
    has to do.
    """
    odd = num_gpus // (num_gpus & -num_gpus)
    largest = min(odd, int((1 + _CHANGE) * batch))
    for unit in (n for n in range(largest, 0, -1) if odd % n == 0):
        if batch % unit == 0:
            return batch
        while num_gpus % (2 * unit) == 0 and unit <= _CHANGE * batch:
            unit *= 2
        nearest = round(batch / unit) * unit
        if nearest and abs(nearest - batch) <= _CHANGE * batch:
            return nearest
    return batch


def first_counts(run: TrainingRun, watts_per_gpu: float | None = None) -> list[int]:
    """Return the GPU counts to try first within limits: see `spread_counts`.

    `watts_per_gpu` includes the share of the site.
    """
    request = run.request
    limits, by_memory, by_days, by_power = request.limits, least_gpus_by_memory(run), 1.0, math.inf
    if limits.days is not None:  # at the peak rate
        by_days = run.least_seconds_of_one_gpu / (limits.days * 86400)
    if limits.max_mw is not None and watts_per_gpu:
        by_power = limits.max_mw * 1e6 / watts_per_gpu
    least, largest = max(by_memory, by_days), min(request.max_gpus, by_power)
    if math.ceil(least) > largest:
        raise _no_counts(run, by_memory, by_days, by_power)
    # the only counts within the limits may lie near the bounds, between two of these
    return [
        n
        for n in spread_counts(run, 1, request.max_gpus)
        if 2 * n >= least and n / 2 <= largest and 2 * n > by_memory
    ]


def spread_counts(run: TrainingRun, least: int, most: int) -> list[int]:
    """Return a listed count from each power of two up to the next one, ascending.

    It is a multiple of the degrees that the layouts must have, and has the largest number of
    replicas that divides the batch: for a power of two, a power of two.
    """
    unit = _least_gpus(run)
    found: dict[int, int] = {}
    for num_gpus in listed_counts(run, most):
        if num_gpus >= least and num_gpus % unit == 0:
            place = num_gpus.bit_length()
            best = found.setdefault(place, num_gpus)
            shares = (math.gcd(n // unit, run.batch) for n in (num_gpus, best))
            if next(shares) >= next(shares):  # of equals the smallest
                found[place] = num_gpus
    return sorted(found.values())


def _least_gpus(run: TrainingRun) -> int:
    """Return the number that divides every GPU count that has the degrees which are held."""
    held = {name: run.request.held.get(name) for name in run.estimator.relations[0].keys}
    dense, experts = (
        math.prod(degree for name in names if isinstance(degree := held.get(name), int))
        for names in (_DEGREES, _EXPERT_DEGREES)
    )
    return math.lcm(dense, experts)


def least_gpus_by_memory(run: TrainingRun) -> float:
    """Return the GPUs that hold weights, gradients and optimizer state if all are sharded."""
    values = run.problem
    parts = ("stored_weight_bytes", "stored_gradient_bytes", "stored_optimizer_bytes")
    if any(values.get(name) is None for name in parts):
        return 1.0
    state = run.parameters * sum(float(values[name] or 0) for name in parts)
    room = float(values["hbm_bytes"] or 0) - float(values["framework_bytes"] or 0)
    room -= run.request.headroom_bytes
    return state / room if room > 0 else math.inf


# ---- cells to try, with the least time that they can take ----


@dataclass(frozen=True)
class Candidate:
    """A cell with layouts on a GPU count; no layout of it trains in less than `least_seconds`."""

    cell: Cell
    num_layouts: int
    least_seconds: float

    @property
    def num_gpus(self) -> int:
        """GPUs of its layouts."""
        return int(self.cell.problem.values["num_gpus"] or 0)

    @property
    def batch(self) -> int:
        """Sequences of a step."""
        return int(self.cell.problem.values["global_batch_size"] or 0)


def candidates_on(run: TrainingRun, num_gpus: int, below: float = math.inf) -> list[Candidate]:
    """Return the cells of every layout on a GPU count; none where it has no layout.

    Cells whose bound is above the time `below` are left out [s].
    """
    batch = batch_on(run.batch, num_gpus)
    values = {**run.problem, "num_gpus": num_gpus, "global_batch_size": batch}
    relation, held = run.estimator.relations[0], run.request.held
    cells = cells_of_problem(run.estimator, relation, values, run.mends, held)
    bounds = zip(cells, least_seconds_of(run, cells), strict=True)
    found = [
        (cell, num_layouts(run.estimator, cell), least) for cell, least in bounds if least < below
    ]
    return [Candidate(cell, number, least) for cell, number, least in found if number]


def least_seconds_of(run: TrainingRun, cells: Sequence[Cell]) -> list[float]:
    """Return lower bounds of the time of the run by any layout of each cell of a problem [s]."""
    values = cells[0].problem.values
    tokens = int(values["global_batch_size"] or 1) * int(values["seq_len"] or 1)
    steps = math.ceil(run.tokens / tokens)
    by_step = steps * run.estimator.least_step_seconds(cells, run.catalog) / run.goodput
    at_peak = run.least_seconds_of_one_gpu / int(values["num_gpus"] or 1)
    return [max(float(seconds), at_peak) for seconds in by_step]


def _most_gpus(run: TrainingRun, wanted: int) -> int:
    """Return the GPU count from which to look down: most counts far above a batch have no layout.

    It is less than twice the largest power of two, times the degrees that layouts must have, that
    has one. Where none has, all counts are looked at.
    """
    if candidates_on(run, listed_counts(run, wanted)[0]):
        return wanted
    unit = _least_gpus(run)
    doublings = (wanted // unit).bit_length()
    for num_gpus in (unit << n for n in reversed(range(doublings))):
        if candidates_on(run, num_gpus):
            return min(wanted, 2 * num_gpus - 1)
    return wanted


def fewer_gpus(run: TrainingRun, below: int) -> Iterator[int]:
    """Yield the listed counts below one that have memory for the model, from the largest down."""
    least = least_gpus_by_memory(run)
    yield from (n for n in listed_counts(run, below - 1) if n >= least)


def is_worth_trying(run: TrainingRun, num_gpus: int, largest: int, seconds: float) -> bool:
    """Return whether a run on a GPU count might be faster than `seconds`, the best one so far.

    `largest` is the largest count that has a layout.
    """
    if math.isinf(seconds) and largest >= _HALF:
        return 2 * num_gpus > largest
    return run.least_seconds_of_one_gpu / num_gpus < seconds


def slowest_within(run: TrainingRun, num_gpus: int, price: float | None) -> float:
    """Return the time from which a run on a GPU count misses the days or the dollars [s].

    `price` is that of a GPU-hour.
    """
    limits, usd_per_second = run.request.limits, num_gpus * (price or 0) / 3600
    by_days = math.inf if limits.days is None else limits.days * 86400
    if limits.budget_usd is None or not usd_per_second:
        return by_days
    return min(by_days, limits.budget_usd / usd_per_second)


# ---- what to sweep ----


@dataclass(frozen=True)
class Sweep:
    """The study of some GPU counts, its cells with their rows, and how much is not stored."""

    study: Study
    candidates: Sequence[Candidate]
    cells: StudyCells
    missing_cells: int
    missing_rows: int

    @property
    def problems(self) -> dict[int, int]:
        """GPU count -> id of the problem."""
        return {one.num_gpus: one.cell.problem.id for one in self.candidates}

    def is_needed(self, database: Path) -> bool:
        """Return whether the study has to run; the file is not written where nothing is missing."""
        return self.missing_cells > 0 or not database.exists()

    def in_words(self) -> str:
        """Return the GPU counts and how much there is to evaluate, in a line for people."""
        gpus = ", ".join(f"{n:,}" for n in sorted(self.problems))
        size = self.cells.size()
        layouts, cells = count(size.rows, "layout"), count(size.cells, "cell")
        rows = f"{count(self.missing_rows, 'row')} of {count(self.missing_cells, 'cell')}"
        missing = f"{rows} to evaluate and store" if self.missing_cells else _ALL_STORED
        return f"sweep {gpus} GPUs: {layouts} in {cells}; {missing}"


def plan_first_sweep(run: TrainingRun, connection: DuckDBPyConnection) -> Sweep:
    """Return the first sweep of a plan; evaluates and writes nothing.

    It has the largest listed count that has a layout, or within limits the first counts. Without a
    database the connection is to one without rows.
    """
    wanted = run.request.num_gpus
    size = (run.cluster or {}).get("num_gpus")
    if size is not None and wanted is not None and wanted > int(size):
        name = run.problem["accelerator"]
        hint = f"ask for at most that, or for the bare chip: {(run.cluster or {})['based_on']}"
        raise InputError(f"`--gpus` {wanted:,}: {name} has {int(size):,} GPUs", hint)
    if wanted is None:
        counts = first_counts(run, check_limits(run, connection))
        found = [one for n in counts for one in candidates_on(run, n)]
    else:
        counts = listed_counts(run, _most_gpus(run, wanted))
        found = next(filter(None, (candidates_on(run, n) for n in counts)), [])
    if not found:
        raise _no_layout(run, counts if wanted is None else [wanted])
    return plan_sweep(run, found, connection)


def plan_sweep(
    run: TrainingRun, candidates: Sequence[Candidate], connection: DuckDBPyConnection
) -> Sweep:
    """Return the sweep of some cells; evaluates and writes nothing."""
    study = study_of(run, candidates)
    counted = {one.cell.id: (one.cell, one.num_layouts) for one in candidates}
    cells = StudyCells(study, run.estimator, run.catalog, tuple(counted.values()))
    query = "select cell_id from cell where list_contains(?, cell_id)"
    stored = {row[0] for row in connection.execute(query, [[*counted]]).fetchall()}
    missing = [rows for cell, rows in counted.values() if cell.id not in stored]
    return Sweep(study, candidates, cells, len(missing), sum(missing))


_NAMED = 2
"""Inputs of a question that are part of the study's name; others are shown as dots."""


def _space(
    run: TrainingRun,
    counts: Sequence[int],
    batch: int,
    choices: Mapping[str, Sequence[Scalar]],
) -> dict[str, tuple[Scalar, ...]]:
    request, problem = run.request, run.problem
    return {
        **({} if request.model is None else {"model": (problem["model"],)}),
        "accelerator": (problem["accelerator"],),
        **{name: (value,) for name, value in request.inputs.items()},
        **{name: tuple(values) for name, values in choices.items()},
        **{name: (value,) for name, value in request.held.items()},
        "num_gpus": tuple(counts),
        "global_batch_size": (batch,),
    }


def study_of(run: TrainingRun, candidates: Iterable[Candidate]) -> Study:
    """Return the study of some cells: a space for the counts that share batch and choices."""
    request, problem, estimator = run.request, run.problem, run.estimator
    searched = [name for name in estimator.searched_choices if name not in request.held]
    kept: dict[tuple[int, int], list[Cell]] = {}
    for one in candidates:
        kept.setdefault((one.num_gpus, one.batch), []).append(one.cell)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for (num_gpus, batch), cells in sorted(kept.items()):
        values = (tuple(dict.fromkeys(cell.choices[n] for cell in cells)) for n in searched)
        groups.setdefault((batch, *values), []).append(num_gpus)
    spaces = tuple(
        _space(run, counts, batch, dict(zip(searched, values, strict=True)))
        for (batch, *values), counts in groups.items()
    )
    defined = request.defined.as_data()
    digest = content_id(estimator.name, sorted(run.mends), spaces, *([defined] if defined else []))
    digest %= 16**6
    shape = f"{problem['num_layers']} layers of {problem['hidden_size']}"
    name = (
        f"plan {problem['model'] or shape} on {_counts_in_words(sorted({n for n, _ in kept}))} x "
        f"{problem['accelerator']}{_changed_in_words(run)} {digest:06x}"
    )
    definition: dict[str, Any] = {
        "name": name,
        "description": "asked by `warehouse plan`",
        "estimator": estimator.name,
        "mends": [[mend for mend in estimator.mends if mend in run.mends]],
        "spaces": [{key: list(values) for key, values in space.items()} for space in spaces],
        **defined,
    }
    mends = (run.mends,)
    return Study(name, estimator.name, mends, spaces, definition, "plan", request.defined)


def _changed_in_words(run: TrainingRun) -> str:
    given = {**run.request.inputs, **run.request.held}
    said = {"nvlink_size", *run.estimator.shape_columns}
    names = [name for name in given if name not in said]
    words = [
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {str(value).lower()}"
        for name, value in given.items()
        if name in names[:_NAMED]
    ]
    more = ["..."] if len(names) > _NAMED else []
    return "".join(f", {word}" for word in (*words, *more))


def _counts_in_words(counts: Sequence[int]) -> str:
    return ",".join(map(str, counts)) if len(counts) <= 3 else f"{counts[0]}..{counts[-1]}"


# ---- why there is nothing to sweep ----


def check_limits(run: TrainingRun, reference: DuckDBPyConnection) -> float | None:
    """Return the power of one GPU with its share of the site, or None if it is unknown.

    If the estimator computes the power of each layout, this is a lower bound: an idle board with
    its host. A limit without a price or power, or a budget that no layout keeps, is refused.
    """
    terms, limits = run.terms, run.request.limits
    name = str(run.problem["accelerator"])

    def first(query: str, *values: Any) -> float | None:
        rows = reference.execute(query, list(values)).fetchall()
        return rows[0][0] if rows else None

    watts = terms.watts or queries.idle_watts(run.problem) or first(queries.POWER_OF, name)
    pue = terms.pue or first(queries.PUE)
    if limits.max_mw is not None and watts is None:
        raise InputError(
            f"`--max-mw` {limits.max_mw:g}: no power of a server with {name} is published",
            "give the power of one GPU with its server, in watts: --watts",
        )
    if limits.budget_usd is not None:
        _check_budget(run, terms.price or first(queries.PRICE_OF, name, terms.basis))
    return None if watts is None or pue is None else watts * pue


def _check_budget(run: TrainingRun, price: float | None) -> None:
    terms, budget = run.terms, run.request.limits.budget_usd or 0.0
    accelerator = run.problem["accelerator"]
    is_owned = terms.basis == "owned"
    if price is None and not (is_owned and terms.watts is not None):
        option = " or --watts" if is_owned else ""
        raise InputError(
            f"`--budget-usd` {budget:,.0f}: no price of an hour of {accelerator} is published on "
            f"the basis {terms.basis}",
            f"give the price of an hour of one GPU: --price{option}; or another --basis",
        )
    if price is None or is_owned:
        return
    least = run.least_seconds_of_one_gpu / 3600 * price
    if least > budget:
        raise InputError(
            f"`--budget-usd` {budget:,.0f}: {in_words('dataset_tokens', run.request.tokens)} of "
            f"{run.model} cost "
            f"at least {least:,.0f} USD at {price:.2f} USD/GPU-hour, even at the peak rate of "
            f"{accelerator}",
            "raise it, ask for fewer --tokens, or give another --basis or --price",
        )


def _no_counts(run: TrainingRun, by_memory: float, by_days: float, by_power: float) -> InputError:
    request = run.request
    hint = "raise --max-gpus"
    if request.limits.days is not None and by_days > min(by_power, request.max_gpus):
        why = (
            f"`--days` {request.limits.days:g}: even at the peak rate of {request.accelerator} "
            f"the run needs at least {count(math.ceil(by_days), 'GPU')}"
        )
        hint = "raise --days or --max-gpus"
    elif by_memory > min(by_power, request.max_gpus):
        why = (
            f"`--model` {run.model}: weights, gradients and optimizer state alone need at least "
            f"{count(math.ceil(by_memory), 'GPU')}"
        )
    else:
        why = f"no GPU count meets every limit: at least {math.ceil(by_days):,} are needed"
    if by_power < request.max_gpus:
        return InputError(f"{why}; --max-mw feeds {max(by_power, 0):,.1f}", "raise --max-mw")
    return InputError(f"{why}; --max-gpus is {request.max_gpus:,}", hint)


def _no_layout(run: TrainingRun, counts: Sequence[int]) -> InputError:
    """Return the error of counts without a layout; a held value that no layout has is named."""
    for num_gpus in counts[:1]:
        batch = batch_on(run.batch, num_gpus)
        space = _space(run, (num_gpus,), batch, named_choices(run.estimator))
        check_space(run.estimator, space, run.catalog, run.mends)
    return InputError(
        f"{run.model} has no layout on {', '.join(f'{n:,}' for n in sorted(counts)[-3:])} GPUs or "
        f"fewer with a batch of {run.batch:,}: {LAYOUT_RULE}",
        "ask for another --batch",
    )
