"""The search of a plan: which GPU counts to try first, and what to sweep for them.

Within limits on days, dollars or megawatts, powers of two are tried first. Every layout of every
count that is tried is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from estimators.contract import EmptySpaceError, Scalar, content_id
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError
from warehouse.evaluate.profiles import cells_of_space, check_space
from warehouse.evaluate.space import named_choices
from warehouse.plan import queries
from warehouse.show.formats import count
from warehouse.show.units import in_words
from warehouse.studies.study import Study
from warehouse.sweep.cells import StudyCells, counted_cells

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from warehouse.plan.question import TrainingRun

_SERVER = 8
"""GPUs of a server of up to eight that share NVLink, as DGX and HGX have (NVIDIA DGX H100 User
Guide, introduction)."""

_TRAY = 4
"""GPUs of a compute tray of a wider domain (NVIDIA GB200 NVL72: 18 trays of four)."""

_TRIED_NEXT = 32
"""Counts that are tried on each side of one without a layout; each takes some milliseconds."""

_SMALL_FACTORS = (3, 5, 7)
"""Odd prime factors of counts that a hint names."""

Line = Mapping[str, Any]

_ALL_STORED = "all of them are stored already"

LAYOUT_RULE = "degrees must multiply to it and divide heads, layers and batch"
"""Rule that a GPU count without a layout breaks, in words."""


# ---- GPU counts as they are sold: whole servers, or a power of two below one ----


def server_size(run: TrainingRun) -> int:
    """Return the GPUs of one server of the system."""
    domain = int(run.problem.get("nvlink_size") or 1)
    return _TRAY if domain > _SERVER else domain


def is_sold(num_gpus: int, server: int) -> bool:
    """Return whether a count is whole servers, or a power of two below one server."""
    if num_gpus < server:
        return num_gpus & (num_gpus - 1) == 0
    return num_gpus % server == 0


def multiples(least: int, most: int, unit: int) -> range:
    """Return the multiples of `unit` from `least` to `most`, both included."""
    return range(-(-least // unit) * unit, most + 1, unit)


def sold_between(least: int, most: int, server: int) -> Sequence[int]:
    """Return the counts that are sold from `least` to `most`, both included; `least` is above 0."""
    servers = multiples(least, most, server)
    if least >= server:
        return servers
    below = [n for n in range(least, min(most, server - 1) + 1) if is_sold(n, server)]
    return [*below, *servers]


def next_sold(num_gpus: int, server: int) -> tuple[int | None, int]:
    """Return the counts that are sold below and above one; None: there is none below."""
    if num_gpus < server:
        above = 1 << num_gpus.bit_length()
        below = 1 << (num_gpus - 1).bit_length() - 1 if num_gpus > 1 else None
        return below, min(above, server)
    smaller = num_gpus // server * server
    if smaller == num_gpus:
        smaller -= server
    return smaller or server // 2 or None, num_gpus // server * server + server


# ---- GPU counts to try ----


def first_counts(run: TrainingRun, watts_per_gpu: float | None = None) -> list[int]:
    """Return the GPU counts to try first.

    For a given count these are the count itself with one smaller and one larger count; within
    limits they are powers of two. Next to a count that is not sold they are the nearest ones that
    are. `watts_per_gpu` includes the share of the site.
    """
    request = run.request
    if request.num_gpus is not None:
        asked, server = request.num_gpus, server_size(run)
        if not is_sold(asked, server):
            below, above = next_sold(asked, server)
            return sorted({below or 1, asked, above})
        half = asked // 2
        smaller = half if is_sold(half, server) else next_sold(half, server)[0]
        return sorted({smaller or 1, asked, 2 * asked})
    limits, by_memory, by_days, by_power = request.limits, least_gpus_by_memory(run), 1.0, math.inf
    if limits.days is not None:  # at the peak rate
        by_days = run.least_seconds_of_one_gpu / (limits.days * 86400)
    if limits.max_mw is not None and watts_per_gpu:
        by_power = limits.max_mw * 1e6 / watts_per_gpu
    least, largest = max(by_memory, by_days), min(request.max_gpus, by_power)
    if math.ceil(least) > largest:
        raise _no_counts(run, by_memory, by_days, by_power)
    powers = [2**n for n in range(request.max_gpus.bit_length())]
    # the only counts within the limits may lie near the bounds, between two powers
    return [n for n in powers if 2 * n >= least and n / 2 <= largest and 2 * n > by_memory]


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


# ---- what to sweep ----


@dataclass(frozen=True)
class Sweep:
    """The study of some GPU counts, its cells with their rows, and how much is not stored."""

    study: Study
    cells: StudyCells
    missing_cells: int
    missing_rows: int

    @property
    def problems(self) -> dict[int, int]:
        """GPU count -> id of the problem."""
        return {
            int(cell.problem.values["num_gpus"] or 0): cell.problem.id
            for cell, _ in self.cells.counted
        }

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


def plan_sweep(run: TrainingRun, counts: Sequence[int], connection: DuckDBPyConnection) -> Sweep:
    """Return the sweep of some GPU counts; evaluates and writes nothing.

    Without a database the connection is to one without rows.
    """
    study = study_of(run, counts)
    wanted = run.request.num_gpus
    if wanted is not None and not _has_layouts(run, wanted):
        raise _no_layout(run, wanted)
    cells = counted_cells(study, packaged_catalog(), run.stored_profiles)
    ids = [cell.id for cell, _ in cells.counted]
    query = "select cell_id from cell where list_contains(?, cell_id)"
    stored = {row[0] for row in connection.execute(query, [ids]).fetchall()}
    missing = [rows for cell, rows in cells.counted if cell.id not in stored]
    return Sweep(study, cells, len(missing), sum(missing))


_NAMED = 2
"""Inputs of a question that are part of the study's name; others are shown as dots."""


def study_of(run: TrainingRun, counts: Sequence[int]) -> Study:
    """Return the study of every layout on some GPU counts."""
    request, problem, estimator = run.request, run.problem, run.estimator
    space: dict[str, tuple[Scalar, ...]] = {
        **({} if request.model is None else {"model": (problem["model"],)}),
        "accelerator": (problem["accelerator"],),
        **{name: (value,) for name, value in request.inputs.items()},
        **named_choices(estimator),
        **{name: (value,) for name, value in request.held.items()},
        "num_gpus": tuple(counts),
        "global_batch_size": (run.batch,),
    }
    defined = request.defined.as_data()
    digest = content_id(estimator.name, sorted(run.mends), space, *([defined] if defined else []))
    digest %= 16**6
    shape = f"{problem['num_layers']} layers of {problem['hidden_size']}"
    name = (
        f"plan {problem['model'] or shape} on {_counts_in_words(counts)} x "
        f"{problem['accelerator']}{_changed_in_words(run)} {digest:06x}"
    )
    definition: dict[str, Any] = {
        "name": name,
        "description": "asked by `warehouse plan`",
        "estimator": estimator.name,
        "mends": [[mend for mend in estimator.mends if mend in run.mends]],
        "spaces": [{key: list(values) for key, values in space.items()}],
        **defined,
    }
    mends = (run.mends,)
    return Study(name, estimator.name, mends, (space,), definition, "plan", request.defined)


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


def _has_layouts(run: TrainingRun, num_gpus: int) -> bool:
    """Return whether a GPU count has a layout; a held value that leaves none at all is refused."""
    search = run.estimator.search
    assert search is not None
    [space] = study_of(run, [num_gpus]).spaces
    try:
        check_space(run.estimator, space, run.catalog, run.mends)
    except EmptySpaceError:
        if run.request.held.keys() & {*run.estimator.relations[0].keys}:
            raise
        return False
    cells = cells_of_space(run.estimator, space, run.catalog, run.mends)
    return any(map(search.count, cells))


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

    watts = terms.watts or _idle_watts(run.problem) or first(queries.POWER_OF, name)
    pue = terms.pue or first(queries.PUE)
    if limits.max_mw is not None and watts is None:
        raise InputError(
            f"`--max-mw` {limits.max_mw:g}: no power of a server with {name} is published",
            "give the power of one GPU with its server, in watts: --watts",
        )
    if limits.budget_usd is not None:
        _check_budget(run, terms.price or first(queries.PRICE_OF, name, terms.basis))
    return None if watts is None or pue is None else watts * pue


def _idle_watts(problem: Mapping[str, Scalar]) -> float | None:
    if problem.get("power_limit_watts") is None:
        return None
    return sum(float(problem.get(name) or 0) for name in ("gpu_idle_watts", "host_watts"))


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


def _next_with_layouts(run: TrainingRun, num_gpus: int, *, above: bool) -> int | None:
    """Return the next count that is sold and has a layout, None if none is found.

    This tries counts from half to double. If there are many, it tries multiples of larger powers of
    two, which have more divisors. Below half, it tries powers of two.
    """
    server = server_size(run)
    ends = (num_gpus + 1, 2 * num_gpus) if above else (max(num_gpus // 2, 1), num_gpus - 1)
    sold: Sequence[int] = sold_between(*ends, server)
    unit = server
    while len(sold) > _TRIED_NEXT:
        unit *= 2
        sold = multiples(*ends, unit)
    smaller = (2**n for n in range((num_gpus // 2).bit_length(), -1, -1))
    nearest = sold if above else [*sold[::-1], *smaller]
    # a count with few layouts is suggested only if there is no other
    ordered = sorted(nearest, key=lambda n: not has_many_layouts(run, n))
    return next((n for n in ordered if n != num_gpus and _has_layouts(run, n)), None)


def has_many_layouts(run: TrainingRun, num_gpus: int) -> bool:
    """Return whether a count has only small prime factors, and odd ones only with batch or layers.

    Other odd factors leave few layouts, which are slow: 496 GPUs are 16 x 31.
    """
    odd = num_gpus // (num_gpus & -num_gpus)
    if run.batch * int(run.problem.get("num_layers") or 1) % odd:
        return False
    for factor in _SMALL_FACTORS:
        while odd % factor == 0:
            odd //= factor
    return odd == 1


def _no_layout(run: TrainingRun, num_gpus: int) -> InputError:
    found = [_next_with_layouts(run, num_gpus, above=above) for above in (False, True)]
    counts = " or ".join(f"{n:,}" for n in found if n is not None)
    return InputError(
        f"`--gpus` {num_gpus:,}: {run.model} has no layout on this count with a batch of "
        f"{run.batch:,}: {LAYOUT_RULE}",
        f"ask for {counts}, or for another --batch" if counts else "ask for another --batch",
    )
