"""The queries behind a plan's figures; each runs as it is in the shell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from estimators.columns import LAYOUT_COLUMNS
from warehouse.database.sql_text import double, literal, value_literal
from warehouse.show.units import STEP_PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from estimators.contract import Scalar
    from warehouse.plan.question import TrainingRun

    Line = Mapping[str, Any]
    """A row of a query's result."""

KIND = (
    *("data_parallel", "tensor_parallel", "tensor_parallel_2", "context_parallel"),
    *("expert_parallel", "expert_tensor_parallel", "pipeline_parallel"),
    *("activation_recompute", "zero_stage"),
)
"""Columns that define the kind of a layout: degrees, recomputation, ZeRO stage. Layouts of one kind
differ only in chunks, microbatches, panels or placements."""

_NO_DIFFERENCE = ("activation_recompute", "num_microbatches")
_DISTINCT = tuple(
    name for name in LAYOUT_COLUMNS if not name.startswith("nvlink_") and name not in _NO_DIFFERENCE
)
"""Columns by which people distinguish layouts with equal time and memory."""

BEST_FIRST = "layout_order(layout_run)"
"""Sorts the layouts of a query, the best first."""

EXPERT_COLUMNS = (*LAYOUT_COLUMNS, "step_seconds", "memory_bytes")
"""Columns of the best layout of each degree of expert parallelism."""


@dataclass(frozen=True)
class GpuRates:
    """Dollars and power of one GPU; None where they are not known.

    `facility_watts`, with the share of server and site, is for layouts whose power the estimator
    does not compute, `pue` for the others.
    """

    usd_per_gpu_hour: float | None = None
    facility_watts: float | None = None
    pue: float | None = None


def best_layouts(
    run: TrainingRun,
    problem: int,
    top: int | None,
    unlike: Line | None = None,
    *,
    is_any_fit: bool = False,
) -> str:
    """Return the query of the best layouts of one problem; of all of them without `top`.

    Layouts count once if they differ only in a placement, or in the recomputation of tensors that
    are not kept anyway. They differ from `unlike` in a column of `KIND`. With `is_any_fit` they are
    the fastest that fit in memory by the estimate, likely or not.
    """
    limit = "" if top is None else f"\nlimit {top}"
    order = "time_order(layout_run)" if is_any_fit else BEST_FIRST
    others = ""
    if unlike is not None:
        same = " and ".join(
            f"{name} = {value_literal(unlike[name])}" for name in KIND if unlike[name] is not None
        )
        others = f"\n    and not ({same})"
    return f"""\
select
    {", ".join(LAYOUT_COLUMNS)},
    step_seconds,
    training_seconds,
    gpu_hours,
    mfu,
    tokens_per_second,
    memory_bytes,
    hbm_bytes,
    headroom_bytes,
    fit_probability,
    is_likely_to_fit(layout_run) as is_likely_to_fit,
    {", ".join(STEP_PARTS)}
from {_layout_runs(run, [problem])}
qualify
    row_number() over (
        partition by {", ".join(("step_seconds", "memory_bytes", *_DISTINCT))}
        order by activation_recompute = 'none' desc, activation_recompute
    ) = 1{others}
order by {order}{limit}"""


def counts(run: TrainingRun, problems: Iterable[int], rates: GpuRates) -> str:
    """Return the query of the best layout of each problem: one problem a GPU count."""
    price, watts = (
        "cast(null as double)" if rate is None else double(rate)
        for rate in (rates.usd_per_gpu_hour, rates.facility_watts)
    )
    if rates.pue is not None:
        watts = f"coalesce(slot_watts * {double(rates.pue)}, {watts})"
    return f"""\
select
    num_gpus,
    problem_id,
    step_seconds,
    training_seconds,
    gpu_hours,
    mfu,
    memory_bytes,
    fit_probability,
    is_likely_to_fit(layout_run) as is_likely_to_fit,
    gpu_hours * {price} as cost_usd,
    gpu_hours * {watts} / 1000 as energy_kwh,
    {_paid_gpus(run)} * {watts} as power_watts
from {_layout_runs(run, problems)}
qualify row_number() over (partition by problem_id order by {BEST_FIRST}) = 1
order by num_gpus"""


def layouts_of_counts(run: TrainingRun, problems: Iterable[int]) -> str:
    """Return the query of the layouts whose figures `counts` has."""
    return f"""\
select
    num_gpus,
    global_batch_size,
    {", ".join(LAYOUT_COLUMNS)},
    step_seconds,
    training_seconds
from {_layout_runs(run, problems)}
qualify row_number() over (partition by problem_id order by {BEST_FIRST}) = 1
order by num_gpus"""


def best_by_experts(run: TrainingRun, problem: int) -> str:
    """Return the query of the fastest layout of each degree of expert parallelism."""
    packed = ",\n            ".join(f"{name} := {name}" for name in EXPERT_COLUMNS)
    room = run.request.headroom_bytes
    free = f"\n        and hbm_bytes - memory_bytes >= {double(room)}" if room else ""
    return f"""\
with best as (
    select
        min_by(struct_pack(
            {packed}
        ), {BEST_FIRST}) as layout
    from configuration as layout_run
    where
        {is_candidate(run, [problem], "    ")}
        and fits_memory is distinct from false{free}
    group by expert_parallel
)

select unnest(layout)
from best
order by layout.expert_parallel"""


def least_memory(run: TrainingRun, problems: Iterable[int]) -> str:
    """Return the query of the least memory of any layout, by GPU count."""
    return f"""\
select
    num_gpus,
    count(*) as num_layouts,
    min(memory_bytes) as least_memory_bytes,
    any_value(hbm_bytes) as hbm_bytes
from configuration
where
    {is_candidate(run, problems)}
group by num_gpus
order by num_gpus"""


def costs(run: TrainingRun, problem: int) -> str:
    """Return the query of the dollars of the fastest layout, by basis of the price."""
    given = {"given_price": run.terms.price, "given_watts": run.terms.watts}
    rate, prices, order = "usd_per_gpu_hour", "", "usd_per_gpu_hour"
    if len(run.terms.prices) > 1:  # the same run at each price
        rate, order = "price.usd_per_gpu_hour", "price.place"
        listed = ", ".join(
            f"({place}, {double(each)})" for place, each in enumerate(run.terms.prices)
        )
        prices = f"\ncross join (values {listed}) as price (place, usd_per_gpu_hour)"
    sites, of_site, electricity = "", "", ""
    if run.terms.has_sites:  # rented hours include their electricity
        sites, of_site = "\n    and (site = 0 or basis = 'owned')", ", site"
        electricity = "".join(
            f"\n    case when basis = 'owned' then site_{name} end as {name},"
            for name in ("pue", "usd_per_kwh")
        )
    return f"""\
{_best_hours(run, problem)}
select
    basis,
    year,
    num_quotes,
    quote_vendors,{electricity}
    {rate} as usd_per_gpu_hour,
    best.gpu_hours * {rate} as cost_usd,
    price_source,
    price_note
from {_macro("training_cost_for", run, problem, given)}
cross join best{prices}
where
    {of_estimator(run)}{sites}
qualify year is null or year = max(year) over (partition by basis)
order by basis = 'owned'{of_site}, {order}"""


def energies(run: TrainingRun, problem: int) -> str:
    """Return the query of the energy of the fastest layout, with its carbon by grid."""
    carbons = run.terms.carbons
    of_site = "site, " if run.terms.has_sites else ""
    given = {
        "given_kg_co2e_per_kwh": carbons[0].value if carbons else None,
        "given_watts": run.terms.watts,
    }
    replaced, grids = "", ""
    if carbons:
        replaced = (
            ",\n        carbon.grid as grid,\n        carbon.kg_co2e_per_kwh as kg_co2e_per_kwh"
        )
        listed = ", ".join(
            f"({literal(each.name or 'given')}, {double(each.value)})" for each in carbons
        )
        grids = f"\n    cross join (values {listed}) as carbon (grid, kg_co2e_per_kwh)"
    return f"""\
{_best_hours(run, problem)}
select
    power_basis,
    watts_per_gpu,
    pue,
    best.num_gpus * watts_per_gpu * pue as power_watts,
    best.gpu_hours * watts_per_gpu / 1000 * pue as energy_kwh,
    usd_per_kwh,
    energy_kwh * usd_per_kwh as electricity_usd,
    grid,
    kg_co2e_per_kwh,
    energy_kwh * kg_co2e_per_kwh as kg_co2e,
    power_source,
    power_note
from (
    select energy.* replace (
        case when power_basis = 'step' then best.slot_watts else watts_per_gpu end
            as watts_per_gpu{replaced}
    )
    from {_macro("training_energy_for", run, problem, given)} as energy
    cross join best{grids}
    where
        {of_estimator(run)}
        and is_default
)
cross join best
order by {of_site}kg_co2e_per_kwh"""


def published_runs(run: TrainingRun, problem: int) -> str:
    """Return the query of published runs of the model, with the plan's hours for their tokens."""
    return f"""\
{_best_hours(run, problem)}
select
    model,
    run_kind,
    accelerator,
    published_run.num_gpus,
    dataset_tokens,
    published_precision,
    number_recipe,
    global_batch_size,
    published_run.gpu_hours,
    best.gpu_hours * dataset_tokens / {double(run.tokens)} as planned_gpu_hours,
    planned_gpu_hours / published_run.gpu_hours as planned_share,
    source,
    note
from published_run
cross join best
where known_model = {literal(run.model)}
order by published_run.gpu_hours, model"""


PRICE_OF = """\
select usd_per_gpu_hour
from gpu_hour_rate
inner join accelerator_spelling using (accelerator)
where spelling = ? and basis = ? and usd_per_gpu_hour is not null
order by year desc
limit 1"""
"""The last price of an accelerator on a basis."""

POWER_OF = """\
select watts_per_gpu
from gpu_power
inner join accelerator_spelling using (accelerator)
where spelling = ? and is_default and watts_per_gpu is not null"""
"""The power of an accelerator with its share of the server."""

PUE = "select pue from facility_pue where facility = 'Hyperscaler (Epoch)'"
"""The site's overhead unless one is given."""


def _layout_runs(run: TrainingRun, problems: Iterable[int], indent: str = "") -> str:
    conditions = [is_candidate(run, problems, indent)]
    if run.request.headroom_bytes:
        conditions.append(f"headroom_bytes >= {double(run.request.headroom_bytes)}")
    joined = f"\n{indent}    and ".join(conditions)
    return f"""\
{_paid_runs(run, indent)} as layout_run
{indent}where
{indent}    {joined}"""


def _paid_gpus(run: TrainingRun) -> str:
    """Return the GPUs that a run pays for: all that were asked for, used or idle."""
    asked = run.request.num_gpus
    return "num_gpus" if asked is None else f"greatest(num_gpus, {asked})"


def _paid_runs(run: TrainingRun, indent: str) -> str:
    """Return the runs of all layouts, with the hours and the mean power of all GPUs asked for.

    An idle GPU draws the power of an idle board with its host; where that is not known, as much as
    a busy one.
    """
    runs = f"layout_run_for({double(run.tokens)}{_goodput(run)})"
    asked, idle = run.request.num_gpus, idle_watts(run.problem)
    if asked is None:
        return runs
    watts = "slot_watts"
    if idle is not None:
        watts = f"{double(idle)} + (slot_watts - {double(idle)}) * num_gpus / {asked}"
    return f"""\
(
{indent}    select * replace (
{indent}        {asked} * training_seconds / 3600 as gpu_hours,
{indent}        {watts} as slot_watts
{indent}    )
{indent}    from {runs}
{indent})"""


def idle_watts(problem: Mapping[str, Scalar]) -> float | None:
    """Return the power of an idle GPU with its host; None if the estimator has none."""
    if problem.get("power_limit_watts") is None:
        return None
    return sum(float(problem.get(name) or 0) for name in ("gpu_idle_watts", "host_watts"))


def is_candidate(run: TrainingRun, problems: Iterable[int], indent: str = "") -> str:
    """Return the condition of the layouts of some problems with the fixed columns."""
    joined = f"\n{indent}    and "
    listed = ", ".join(map(str, problems))
    idle = {name: each.degree for each in run.estimator.idle_choices for name in each.neutral}
    held = [
        f"({name} = {value_literal(value)} or {idle[name]} = 1)"
        if name in idle
        else f"{name} = {value_literal(value)}"
        for name, value in run.request.held.items()
    ]
    return joined.join([f"problem_id in ({listed})", of_estimator(run, joined), *held])


def of_estimator(run: TrainingRun, joined: str = " and ") -> str:
    """Return the condition of rows of the plan's estimator and variant."""
    return f"estimator = {literal(run.estimator.name)}{joined}variant = {literal(run.variant)}"


def _best_hours(run: TrainingRun, problem: int) -> str:
    """Return the beginning of a query: GPU-hours and power of the best candidate of a problem.

    The macros of costs take the fastest layout of the whole problem, without headroom or fixed
    columns.
    """
    return f"""\
with best as (
    select
        arg_min(gpu_hours, {BEST_FIRST}) as gpu_hours,
        arg_min(slot_watts, {BEST_FIRST}) as slot_watts,
        any_value({_paid_gpus(run)}) as num_gpus
    from {_layout_runs(run, [problem], indent="    ")}
)
"""


def _macro(name: str, run: TrainingRun, problem: int, given: Mapping[str, float | None]) -> str:
    """Return the rows of a macro of costs; those of each site and price of a kWh, if several."""
    calls = []
    for pue, usd_per_kwh in run.terms.sites:
        known = {"given_pue": pue, "given_usd_per_kwh": usd_per_kwh, **given}
        arguments = "".join(
            f", {key} := {double(value)}" for key, value in known.items() if value is not None
        )
        of_run = f"{double(run.tokens)}, only_id := {problem}{_goodput(run)}"
        calls.append((f"{name}({of_run}{arguments})", pue, usd_per_kwh))
    if not run.terms.has_sites:
        return calls[0][0]
    rows = "\n    union all\n".join(
        f"    select *, {site} as site, {value_literal(pue)} as site_pue, "
        f"{value_literal(usd_per_kwh)} as site_usd_per_kwh from {call}"
        for site, (call, pue, usd_per_kwh) in enumerate(calls)
    )
    return f"(\n{rows}\n)"


def _goodput(run: TrainingRun) -> str:
    goodput = run.terms.goodput
    return "" if goodput is None else f", assumed_goodput := {double(goodput)}"


def gpu_rates(run: TrainingRun, prices: Sequence[Line], powers: Sequence[Line]) -> GpuRates:
    """Return price and power of one GPU.

    Parameters
    ----------
    prices, powers
        Rows of `costs` and `energies`.
    """
    basis = "given" if run.terms.price is not None else run.terms.basis
    price = next((line["usd_per_gpu_hour"] for line in prices if line["basis"] == basis), None)
    watts = powers[0]["watts_per_gpu"] if powers else None
    if watts is None:
        return GpuRates(price)
    pue = powers[0]["pue"]
    return GpuRates(price, watts * pue, pue if run.terms.watts is None else None)
