"""Re-pricing a fleet: what stored runs cost at your own prices, the cheapest offer first.

Joins a table of prices, prices.csv next to this script, with the stored runs, and prints the
cheapest run of each model at each price. Nothing is evaluated and nothing is written.

    python examples/repricing_a_fleet.py [DATABASE]
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from warehouse import Warehouse

PRICES = Path(__file__).with_name("prices.csv")

CHEAPEST = """
select
    runs.model, prices.offer, runs.priced_as as accelerator, runs.num_gpus,
    runs.training_seconds / 86400 as days,
    runs.gpu_hours * prices.usd_per_gpu_hour as cost_usd,
    runs.estimator, runs.best_layout
from training_run_for($tokens) as runs
inner join accelerator_spelling as named on runs.priced_as = named.accelerator
inner join prices on named.spelling = prices.accelerator
where runs.run_note is null and runs.estimator = $estimator and runs.variant = $variant
qualify row_number() over (partition by model, offer order by cost_usd, days) = 1
order by model, cost_usd
"""


def cheapest(
    warehouse: Warehouse, prices: pl.DataFrame, tokens: float, estimator: str, variant: str
) -> pl.DataFrame:
    """Return the cheapest stored run of each model at each price."""
    return warehouse.sql(
        CHEAPEST, prices=prices, tokens=tokens, estimator=estimator, variant=variant
    )


def main(warehouse: Warehouse, tokens: float = 1e12) -> None:
    """Print the offers of each model, the cheapest first."""
    found = cheapest(warehouse, pl.read_csv(PRICES), tokens, "roofline", "corrected")
    for (model,), offers in found.group_by("model", maintain_order=True):
        print(f"{model}, {tokens / 1e12:g} T tokens")
        least = offers["cost_usd"][0]
        for row in offers.iter_rows(named=True):
            print(
                f"  {row['offer']:18}{row['num_gpus']:8,.0f} {row['accelerator']:16}"
                f"{row['days']:9,.1f} days{row['cost_usd'] / 1e6:9,.3f} M USD"
                f"{row['cost_usd'] / least - 1:+8.0%}"
            )


if __name__ == "__main__":
    main(Warehouse(*sys.argv[1:2]))
