"""Why there is no plan: nothing fits, or nothing keeps within the limits; and what would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warehouse.database.connection import rows_as_dicts
from warehouse.errors import InputError
from warehouse.evaluate.space import cells_of_problem, evaluated
from warehouse.plan import queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.plan.queries import Terms
    from warehouse.plan.question import Run
    from warehouse.plan_sweep import Wanted

_LARGEST = 65_536
"""GPUs up to which a count that fits is looked for."""


def nothing_fits(
    run: Run, connection: DuckDBPyConnection, asked: Wanted, fitting: Sequence[Mapping[str, Any]]
) -> InputError:
    """Return the error of counts without a layout that fits: the least memory, and what fits."""
    counts = sorted(asked.problems)
    wants = run.asked.num_gpus or counts[-1]
    memory = rows_as_dicts(connection, queries.least_memory(run, asked.problems.values()))
    # of several counts, the largest that has a layout at all
    least = next((line for line in memory if line["num_gpus"] == wants), memory[-1])
    enough = next((line["num_gpus"] for line in fitting if line["num_gpus"] > wants), None)
    enough = enough or smallest_that_fits(run, counts[-1] * 2)
    said = (
        f"`--gpus` {wants:,}: none of {least['num_layouts']:,} layouts of {run.model} fits: "
        f"the least takes {least['least_memory_bytes'] / 1e9:,.1f} GB of "
        f"{least['hbm_bytes'] / 1e9:,.1f} GB"
    )
    if run.asked.headroom_bytes:
        said += f", of which --headroom-gb {run.asked.headroom_bytes / 1e9:g} are to be left"
    if run.asked.num_gpus is None:
        said = said.replace(f"`--gpus` {wants:,}", f"up to {wants:,} GPUs")
    hint = f"{enough:,} GPUs hold it" if enough else "ask for an accelerator with more memory"
    smaller = ["--headroom-gb"] if run.asked.headroom_bytes else []
    smaller += ["--batch", "--seq-len"] if enough else []
    return InputError(said, f"{hint}, or a smaller {' or '.join(smaller)}" if smaller else hint)


def smallest_that_fits(run: Run, first: int) -> int | None:
    """Return the first of `first`, twice that ... GPUs that a layout fits on; stores nothing."""
    relation = run.estimator.relations[0]
    count = first
    while count <= _LARGEST:
        values = {**run.facts.problem, "num_gpus": count, "global_batch_size": run.batch}
        cells = cells_of_problem(run.estimator, relation, values, run.mends, run.asked.held)
        memory = evaluated(run.estimator, relation, cells, ["memory_bytes"])["memory_bytes"]
        if (memory <= float(values["hbm_bytes"] or 0) - run.asked.headroom_bytes).any():
            return count
        count *= 2
    return None


def nothing_within(run: Run, lines: Sequence[Mapping[str, Any]], terms: Terms) -> InputError:
    """Return the error of limits that no count keeps: how near each comes by itself."""
    limits = run.asked.limits
    if limits.budget_usd is not None and terms.usd_per_gpu_hour is None:
        return InputError(
            f"`--budget-usd` {limits.budget_usd:,.0f}: there is no price on the basis "
            f"{run.asked.basis}",
            "give the price of an hour of one GPU: --price",
        )
    told = []
    if limits.days is not None:
        fastest = min(lines, key=lambda line: line["training_seconds"])
        days = fastest["training_seconds"] / 86400
        told.append(
            f"`--days` {limits.days:g}: the fastest takes {days:,.1f} days, on "
            f"{fastest['num_gpus']:,} GPUs"
        )
    if limits.budget_usd is not None:
        cheapest = min(lines, key=lambda line: line["cost_usd"])
        told.append(
            f"`--budget-usd` {limits.budget_usd:,.0f}: the cheapest costs "
            f"{cheapest['cost_usd']:,.0f} USD at {terms.usd_per_gpu_hour:.2f} USD/GPU-hour, on "
            f"{cheapest['num_gpus']:,} GPUs in {cheapest['training_seconds'] / 86400:,.1f} days"
        )
    if limits.max_mw is not None:
        least = min(lines, key=lambda line: line["power_watts"])
        told.append(
            f"`--max-mw` {limits.max_mw:g}: the least is {least['power_watts'] / 1e6:,.3f} MW, on "
            f"{least['num_gpus']:,} GPUs in {least['training_seconds'] / 86400:,.1f} days"
        )
    tried = ", ".join(f"{line['num_gpus']:,}" for line in lines)
    hint = f"raise a limit, or ask for fewer --tokens; tried on {tried} GPUs, others may do"
    return InputError("no run that was tried keeps within the limits\n" + "\n".join(told), hint)


def refuse_without_terms(run: Run, connection: DuckDBPyConnection) -> float | None:
    """Return the power of one GPU; raise where a limit needs a price or power that is not known.

    A budget that no layout could keep, even at the peak rate, is refused here as well.
    """
    asked = run.asked
    name = str(run.facts.problem["accelerator"])

    def first(query: str, *values: Any) -> float | None:
        row = connection.execute(query, list(values)).fetchone()
        return None if row is None else row[0]

    watts = asked.watts or first(queries.POWER_OF, name)
    pue = asked.pue or first(queries.PUE)
    price = asked.price or first(queries.PRICE_OF, name, asked.basis)
    if asked.limits.max_mw is not None and watts is None:
        raise InputError(
            f"`--max-mw` {asked.limits.max_mw:g}: no power of a server with {name} was published",
            "give the power of one GPU with its server, in watts: --watts",
        )
    if asked.limits.budget_usd is not None:
        is_computed = asked.basis == "owned" and asked.watts is not None
        if price is None and not is_computed:
            option = " or --watts" if asked.basis == "owned" else ""
            raise InputError(
                f"`--budget-usd` {asked.limits.budget_usd:,.0f}: no price of an hour of {name} was "
                f"published on the basis {asked.basis}",
                f"give the price of an hour of one GPU: --price{option}; or another --basis",
            )
        least = run.least_seconds_of_one_gpu / 3600 * (price or 0.0)
        if price is not None and asked.basis != "owned" and least > asked.limits.budget_usd:
            raise InputError(
                f"`--budget-usd` {asked.limits.budget_usd:,.0f}: {asked.tokens:.4g} tokens of "
                f"{run.model} cost at least {least:,.0f} USD at {price:.2f} USD/GPU-hour, even "
                f"at the peak rate of {name}",
                "raise it, ask for fewer --tokens, or give another --basis or --price",
            )
    return None if watts is None or pue is None else watts * pue
