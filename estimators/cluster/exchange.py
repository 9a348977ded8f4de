"""Gradients exchanged between sites, every step or every few (DiLoCo, arXiv 2311.08105).

Source: xrsrke/hf-notebooks diloco/03_diloco.ipynb @dfaef07, cell 18.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.cluster.budget import budget, ceil_divide
from estimators.contract import Columns, Mends, Values
from estimators.transformer import number


def exchange(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return bytes and seconds of the exchange of gradients, of one interval and of the run.

    With `overlaps_exchange` an exchange hides behind the steps of its interval, and the run waits
    for the excess: ``max(exchange - interval x step, 0)`` each time.
    """
    run = budget(values, layouts, mends)
    interval = number(layouts, "sync_interval_steps")
    volume = gradient_volume(values, layouts, mends)
    busiest = volume * link_copies(
        number(layouts, "num_sites"), values.get("site_links"), values.get("exchange")
    )
    one = busiest / number(layouts, "site_bytes_per_second")
    exchanges = run["num_steps"] / interval
    if "C15" in mends:
        exchanges = ceil_divide(run["num_steps"], interval)
    overlaps = np.equal(np.asarray(values.get("overlaps_exchange"), dtype=object), True)
    waiting = np.where(overlaps, np.maximum(one - interval * run["step_seconds"], 0), one)
    waited = waiting * exchanges
    with np.errstate(all="ignore"):
        share = np.where(waited > 0, waited / (run["training_seconds"] + waited), 0.0)
        steps = np.where(run["step_seconds"] > 0, run["step_seconds"], np.nan)
        hiding = np.ceil(one / steps)
    return {
        **run,
        "gradient_bytes": volume,
        "exchange_bytes": busiest,
        "num_exchanges": exchanges,
        "exchange_seconds": one,
        "sync_seconds": waited,
        "sync_fraction": share,
        "hiding_interval_steps": np.maximum(hiding, 1),
        **idle(waited, run["num_gpus"], values, by_price="C2" in mends),
    }


def gradient_volume(values: Values, layouts: Columns, mends: Mends) -> Any:
    """Return the bytes of one copy of the gradients.

    As published, bf16 gradients count as fp8 gradients if exchanges are rarer than steps (C1).
    """
    width = number(layouts, "gradient_bytes_per_parameter")
    if "C1" not in mends:
        halved = np.greater(layouts["sync_interval_steps"], 1) & np.equal(width, 2)
        width = np.where(halved, 1.0, width)
    return width * number(values, "parameters")


def link_copies(sites: Any, links: Any, way: Any) -> Any:
    """Return how many copies of the gradients pass the busiest link, one way.

    ================  ==================  =====================
    exchange          one shared link     a link for each site
    ================  ==================  =====================
    gather            W (as published)    W - 1
    ring              2 (W - 1)           2 (W - 1) / W
    parameter_server  2 (W - 1)           2 (W - 1)
    ================  ==================  =====================

    W is the number of sites. In a gather each site sends its copy to all others. A ring all-reduce
    moves 2 (W - 1) / W copies out of each site (Patarasuk and Yuan, 2009). A parameter server at
    one of the sites receives the copies of all others, then sends them the sum.
    """
    shared = np.equal(np.asarray(links, dtype=object), "shared")
    way = np.asarray(way, dtype=object)
    others = sites - 1
    gather = np.where(shared, sites, others)
    ring = np.where(shared, 2 * others, 2 * others / sites)
    return np.where(
        np.equal(way, "gather"), gather, np.where(np.equal(way, "ring"), ring, 2 * others)
    )


def idle(seconds: Any, gpus: Any, values: Values, *, by_price: bool = True) -> dict[str, Any]:
    """Return the GPU-seconds of waiting and their rent, GPU-hours x price.

    As published the rent is GPU-hours / price (C2). `idle_num_gpus` GPUs wait; without it, those of
    the run (C3).
    """
    given = number(values, "idle_num_gpus")
    waited = seconds * np.where(np.isnan(given), gpus, given)
    price = number(values, "usd_per_gpu_hour")
    with np.errstate(all="ignore"):
        cost = waited / 3600 * price if by_price else waited / 3600 / price
    return {"idle_gpu_seconds": waited, "idle_cost_usd": cost}
