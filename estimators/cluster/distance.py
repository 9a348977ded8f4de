"""Least latency between two sites: light on a great circle, one way, once per exchange.

Source: xrsrke/hf-notebooks diloco/utils.py @dfaef07.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.cluster.budget import budget, ceil_divide
from estimators.cluster.exchange import idle
from estimators.contract import Columns, Mends, Values
from estimators.transformer import number

EARTH_RADIUS_KM = 6371.009
"""Mean radius: (2 a + b) / 3 of the WGS-84 ellipsoid."""

LIGHT_METRES_PER_SECOND = 299_792_458
FIBRE_SPEED = 2 / 3
"""Speed of light in fibre over that in vacuum: a refractive index of 1.5."""


def latency(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return distance in km, latency in seconds, and the waiting of a run with its rent.

    Latency is distance over the speed of light in the medium, one way, once an exchange.
    """
    run = budget(values, layouts, mends)
    interval = number(layouts, "sync_interval_steps")
    exchanges = run["num_steps"] / interval
    if "C15" in mends:
        exchanges = ceil_divide(run["num_steps"], interval)
    distance = great_circle_km(
        *(number(values, f"{place}_{end}") for end in "ab" for place in ("latitude", "longitude"))
    )
    fibre = np.equal(np.asarray(values.get("medium"), dtype=object), "fibre")
    metres = distance * (1000 if "C5" in mends else 1)  # as published, kilometres over metres
    one_way = metres / (LIGHT_METRES_PER_SECOND * np.where(fibre, FIBRE_SPEED, 1.0))
    total = one_way * exchanges
    return {
        **run,
        "num_exchanges": exchanges,
        "distance_km": distance,
        "latency_seconds": one_way,
        "total_latency_seconds": total,
        **idle(total, run["num_gpus"], values),
    }


def great_circle_km(latitude_a: Any, longitude_a: Any, latitude_b: Any, longitude_b: Any) -> Any:
    """Return the distance on a sphere; the arc tangent form is exact for all distances."""
    a, b = np.radians(latitude_a), np.radians(latitude_b)
    turn = np.radians(longitude_b) - np.radians(longitude_a)
    across = np.cos(b) * np.sin(turn)
    along = np.cos(a) * np.sin(b) - np.sin(a) * np.cos(b) * np.cos(turn)
    towards = np.sin(a) * np.sin(b) + np.cos(a) * np.cos(b) * np.cos(turn)
    return EARTH_RADIUS_KM * np.arctan2(np.hypot(across, along), towards)
