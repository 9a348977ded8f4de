"""Why there is no plan: nothing fits, or nothing keeps within the limits; and what would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warehouse import plan_queries as queries
from warehouse.errors import InputError
from warehouse.ranking import records
from warehouse.whole_space import cells_of_problem, evaluated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.plan import Run
    from warehouse.plan_queries import Terms
    from warehouse.plan_sweep import Wanted

_LARGEST = 65_536
"""GPUs up to which a count that fits is looked for."""


def nothing_fits(
    run: Run, connection: DuckDBPyConnection, asked: Wanted, fitting: Sequence[Mapping[str, Any]]
) -> InputError:
    """Return the error of counts without a layout that fits: the least memory, and what fits."""
    counts = sorted(asked.problems)
    wants = run.asked.num_gpus or counts[-1]
    if not asked.has_layouts(wants):
        others = [f"{count:,}" for count in counts if asked.has_layouts(count)]
        near = f"ask for {' or '.join(others)}, or for another --batch"
        return InputError(
            f"`--gpus` {wants:,}: there is no layout of {run.asked.model} on so many with batches "
            f"of {run.batch:,}: degrees must multiply to it and divide heads, layers and batch",
            near,
        )
    memory = records(connection, queries.least_memory(run, asked.problems.values()))
    least = next(line for line in memory if line["num_gpus"] == wants)
    enough = next((line["num_gpus"] for line in fitting if line["num_gpus"] > wants), None)
    enough = enough or smallest_that_fits(run, counts[-1] * 2)
    said = (
        f"`--gpus` {wants:,}: none of {least['num_layouts']:,} layouts of {run.asked.model} fits: "
        f"the least takes {least['least_memory_bytes'] / 1e9:,.1f} GB of "
        f"{least['hbm_bytes'] / 1e9:,.1f} GB"
    )
    if run.asked.num_gpus is None:
        said = said.replace(f"`--gpus` {wants:,}", f"up to {wants:,} GPUs")
    hint = f"{enough:,} GPUs hold it" if enough else "ask for an accelerator with more memory"
    return InputError(said, f"{hint}, or a smaller --batch or --seq-len" if enough else hint)


def smallest_that_fits(run: Run, first: int) -> int | None:
    """Return the first of `first`, twice that ... GPUs that a layout fits on; stores nothing."""
    relation = run.estimator.relations[0]
    count = first
    while count <= _LARGEST:
        values = {**run.facts.problem, "num_gpus": count, "global_batch_size": run.batch}
        cells = cells_of_problem(run.estimator, relation, values, run.mends)
        if evaluated(run.estimator, relation, cells, ["fits_memory"])["fits_memory"].any():
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
