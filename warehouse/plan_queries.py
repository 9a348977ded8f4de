"""The queries that a plan's figures come from: each can be run as it stands in the shell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from warehouse.naming import literal
from warehouse.ranking import LAYOUT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warehouse.plan import Run


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


def _double(value: float) -> str:
    """Return a number that SQL takes for a DOUBLE, not for a DECIMAL."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def _runs(run: Run, problems: Iterable[int]) -> str:
    """Return the beginning of a query: the layouts that fit, as runs over the tokens."""
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
        and fits_memory is distinct from false
        and step_seconds is not null
)
"""


def _made_by(run: Run, joined: str = " and ") -> str:
    """Return the condition of the estimates that the plan is made of."""
    variant = "corrected" if run.mends else "published"
    return f"estimator = {literal(run.estimator.name)}{joined}variant = {literal(variant)}"


def _kept(run: Run, problems: Iterable[int], indent: str = "    ") -> str:
    listed = ", ".join(map(str, problems))
    joined = f"\n{indent}and "
    return f"problem_id in ({listed}){joined}{_made_by(run, joined)}"


def layouts(run: Run, problem: int, top: int) -> str:
    """Return the query of the best layouts of one problem that fit in memory.

    Layouts that differ in what changes nothing (recomputing what was never kept, a placement that
    takes as long) are one.
    """
    ties = ", ".join(("step_seconds", "memory_bytes", *_DISTINCT))
    return f"""\
{_runs(run, [problem])}
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
    ) = 1
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
select
    basis,
    year,
    num_quotes,
    usd_per_gpu_hour,
    lowest_gpu_hours * usd_per_gpu_hour as cost_usd,
    price_source,
    price_note
from {_macro("training_cost_for", run, problem, given)}
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
select
    power_basis,
    watts_per_gpu,
    pue,
    power_watts,
    lowest_energy_kwh as energy_kwh,
    usd_per_kwh,
    lowest_electricity_usd as electricity_usd,
    grid,
    kg_co2e_per_kwh,
    lowest_kg_co2e as kg_co2e,
    power_source,
    power_note
from {_macro("training_energy_for", run, problem, given)}
where
    {_made_by(run)}
    and is_default is distinct from false
order by kg_co2e_per_kwh"""


def accuracy(run: Run) -> str:
    """Return the query of the estimator's error on published steps, as far as they are stored."""
    return f"""\
select
    reference,
    published_group,
    num_rows,
    time_mean_absolute_relative_error,
    time_max_absolute_relative_error,
    time_bias
from estimator_accuracy
where {_made_by(run)}
order by reference, published_group"""


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
