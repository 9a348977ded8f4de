"""The queries that a plan's figures come from: each can be run as it stands in the shell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from warehouse.ask.rank import LAYOUT
from warehouse.database.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from estimators.contract import Scalar
    from warehouse.plan.question import Run


@dataclass(frozen=True)
class Terms:
    """What an hour of a GPU costs and draws, as far as it is known.

    Attributes
    ----------
    usd_per_gpu_hour
        At the basis that the budget is held against.
    facility_watts
        Power of one GPU with its share of the server and of the site.
    """

    usd_per_gpu_hour: float | None = None
    facility_watts: float | None = None


SHARES = (
    *("compute_seconds", "memory_seconds", "tensor_comm_seconds", "pipeline_comm_seconds"),
    *("bubble_seconds", "data_comm_seconds"),
)
"""Parts that the step of every estimator is made of."""

_PLACEMENT = tuple(name for name in LAYOUT if name.startswith("nvlink_"))
_TOLD = (*LAYOUT, "zero_stage", "uses_sequence_parallel")
_DISTINCT = tuple(
    name for name in _TOLD if name not in (*_PLACEMENT, "activation_recompute", "num_microbatches")
)


KIND = (
    *("data_parallel", "tensor_parallel", "tensor_parallel_2", "context_parallel"),
    *("expert_parallel", "pipeline_parallel", "activation_recompute", "zero_stage"),
)
"""What layouts of one kind have in common: degrees, recomputation, ZeRO stage. Those of one kind
differ in chunks, microbatches, panels or placements."""


def _double(value: float) -> str:
    """Return a number that SQL takes for a DOUBLE, not for a DECIMAL."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def _value(value: Scalar) -> str:
    """Return what a layout is held to as SQL."""
    return literal(value) if isinstance(value, str) else str(value).lower()


def _runs(run: Run, problems: Iterable[int], spare_fraction: float = 0.0) -> str:
    """Return the beginning of a query: the layouts that fit, as runs over the tokens.

    Parameters
    ----------
    spare_fraction
        Of the memory, what they leave at least, beside the headroom that is asked for.
    """
    spare = ""
    if run.asked.headroom_bytes:
        spare = f"\n        and hbm_bytes - memory_bytes >= {_double(run.asked.headroom_bytes)}"
    if spare_fraction:
        spare += f"\n        and hbm_bytes - memory_bytes >= {spare_fraction!r} * hbm_bytes"
    goodput = 1.0 if run.asked.goodput is None else run.asked.goodput
    return f"""\
with run as (
    select
        * exclude (training_seconds),
        ceil({_double(run.asked.tokens)} / (cast(global_batch_size as double) * seq_len))
        * step_seconds / {_double(goodput)} as training_seconds
    from configuration
    where
        {_kept(run, problems, "        ")}
        and fits_memory is distinct from false{spare}
        and step_seconds is not null
)
"""


def _made_by(run: Run, joined: str = " and ") -> str:
    """Return the condition of the estimates that the plan is made of."""
    return f"estimator = {literal(run.estimator.name)}{joined}variant = {literal(run.variant)}"


def _kept(run: Run, problems: Iterable[int], indent: str = "    ") -> str:
    listed = ", ".join(map(str, problems))
    joined = f"\n{indent}and "
    held = [f"{name} = {_value(value)}" for name, value in run.asked.held.items()]
    return joined.join([f"problem_id in ({listed})", _made_by(run, joined), *held])


def layouts(
    run: Run,
    problem: int,
    top: int,
    spare_fraction: float = 0.0,
    unlike: Mapping[str, Scalar] | None = None,
) -> str:
    """Return the query of the best layouts of one problem that fit in memory.

    Layouts that differ in what changes nothing (recomputing what was never kept, a placement that
    takes as long) are one.

    Parameters
    ----------
    spare_fraction
        Of the memory, what a layout leaves at least.
    unlike
        A layout: only those of another kind, that differ from it in one of `KIND`.
    """
    ties = ", ".join(("step_seconds", "memory_bytes", *_DISTINCT))
    others = ""
    if unlike is not None:
        same = " and ".join(
            f"{name} = {_value(unlike[name])}" for name in KIND if unlike[name] is not None
        )
        others = f"\n    and not ({same})"
    return f"""\
{_runs(run, [problem], spare_fraction)}
select
    {", ".join(_TOLD)},
    step_seconds,
    training_seconds,
    num_gpus * training_seconds / 3600 as gpu_hours,
    mfu,
    tokens_per_second,
    memory_bytes,
    hbm_bytes,
    hbm_bytes - memory_bytes as headroom_bytes,
    {", ".join(SHARES)}
from run
qualify
    row_number() over (
        partition by {ties}
        order by activation_recompute = 'none' desc, activation_recompute
    ) = 1{others}
order by step_seconds, memory_bytes, data_parallel, tensor_parallel
limit {top}"""


def counts(run: Run, problems: Iterable[int], terms: Terms) -> str:
    """Return the query of the best layout on every number of GPUs that was tried."""
    rate, watts = (
        "cast(null as double)" if value is None else _double(value)
        for value in (terms.usd_per_gpu_hour, terms.facility_watts)
    )
    return f"""\
{_runs(run, problems)}
select
    num_gpus,
    problem_id,
    step_seconds,
    training_seconds,
    num_gpus * training_seconds / 3600 as gpu_hours,
    mfu,
    memory_bytes,
    gpu_hours * {rate} as cost_usd,
    gpu_hours * {watts} / 1000 as energy_kwh,
    num_gpus * {watts} as power_watts
from run
qualify row_number() over (partition by problem_id order by step_seconds, memory_bytes) = 1
order by num_gpus"""


def least_memory(run: Run, problems: Iterable[int]) -> str:
    """Return the query of the least memory that any layout takes, by number of GPUs."""
    return f"""\
select
    num_gpus,
    count(*) as num_layouts,
    min(memory_bytes) as least_memory_bytes,
    any_value(hbm_bytes) as hbm_bytes
from configuration
where
    {_kept(run, problems)}
group by num_gpus
order by num_gpus"""


def _macro(name: str, run: Run, problem: int, given: dict[str, float | None]) -> str:
    asked = run.asked
    named = {"assumed_goodput": asked.goodput, **given}
    arguments = "".join(
        f", {key} := {_double(value)}" for key, value in named.items() if value is not None
    )
    return f"{name}({_double(asked.tokens)}, only_id := {problem}{arguments})"


def _best(run: Run, problem: int) -> str:
    """Return the beginning of a query: the GPU-hours of the best candidate of one problem.

    Not those of the macros, which know neither a headroom nor what layouts are held to.
    """
    return f"""\
{_runs(run, [problem]).rstrip()},

best as (
    select min(num_gpus * training_seconds / 3600) as gpu_hours
    from run
)
"""


def costs(run: Run, problem: int) -> str:
    """Return the query of the dollars of the best layout, by basis of the price."""
    asked = run.asked
    given = {
        "given_price": asked.price,
        "given_pue": asked.pue,
        "given_usd_per_kwh": asked.usd_per_kwh,
        "given_watts": asked.watts,
    }
    return f"""\
{_best(run, problem)}
select
    basis,
    year,
    num_quotes,
    usd_per_gpu_hour,
    best.gpu_hours * usd_per_gpu_hour as cost_usd,
    price_source,
    price_note
from {_macro("training_cost_for", run, problem, given)}
cross join best
where {_made_by(run)}
qualify year is null or year = max(year) over (partition by basis)
order by basis = 'owned', usd_per_gpu_hour"""


def energies(run: Run, problem: int) -> str:
    """Return the query of the energy of the best layout, with its carbon by grid."""
    asked = run.asked
    given = {
        "given_pue": asked.pue,
        "given_usd_per_kwh": asked.usd_per_kwh,
        "given_kg_co2e_per_kwh": asked.kg_co2e_per_kwh,
        "given_watts": asked.watts,
    }
    return f"""\
{_best(run, problem)}
select
    power_basis,
    watts_per_gpu,
    pue,
    power_watts,
    best.gpu_hours * watts_per_gpu / 1000 * pue as energy_kwh,
    usd_per_kwh,
    energy_kwh * usd_per_kwh as electricity_usd,
    grid,
    kg_co2e_per_kwh,
    energy_kwh * kg_co2e_per_kwh as kg_co2e,
    power_source,
    power_note
from {_macro("training_energy_for", run, problem, given)}
cross join best
where
    {_made_by(run)}
    and is_default is distinct from false
order by kg_co2e_per_kwh"""


PRICE_OF = """\
select usd_per_gpu_hour
from gpu_hour_rate
inner join accelerator_spelling using (accelerator)
where spelling = ? and basis = ? and usd_per_gpu_hour is not null
order by year desc
limit 1"""
"""An accelerator's last price of a basis: tried before anything is swept for a budget."""

POWER_OF = """\
select watts_per_gpu
from gpu_power
inner join accelerator_spelling using (accelerator)
where spelling = ? and is_default and watts_per_gpu is not null"""
"""An accelerator's power with its share of the server, where one was published."""

PUE = "select pue from facility_pue where facility = 'Hyperscaler (Epoch)'"
"""The site's overhead unless one is given."""
