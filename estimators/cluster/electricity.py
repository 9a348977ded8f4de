"""Power and energy of a run's GPUs with their servers, the site's overhead, and its carbon.

Source: xrsrke/hf-notebooks diloco/03_diloco.ipynb @dfaef07, cell 27.
"""

from __future__ import annotations

from typing import Any

from estimators.cluster.budget import budget
from estimators.contract import Columns, Mends, Values
from estimators.transformer import number

JOULES_PER_KWH = 3.6e6


def electricity(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return power in watts, energy in joules and kWh, its price in USD and its carbon in kg.

    The facility takes `pue` times the energy of the GPUs with their servers; price and carbon are
    those of the facility.
    """
    run = budget(values, layouts, mends)
    power = number(values, "watts_per_gpu") * run["num_gpus"]
    energy = power * run["training_seconds"]
    facility = energy / JOULES_PER_KWH * number(values, "pue")
    return {
        **run,
        "power_watts": power,
        "energy_joules": energy,
        "energy_kwh": energy / JOULES_PER_KWH,
        "step_energy_kwh": power * run["step_seconds"] / JOULES_PER_KWH,
        "facility_energy_kwh": facility,
        "electricity_usd": facility * number(values, "usd_per_kwh"),
        "kg_co2e": facility * number(values, "kg_co2e_per_kwh"),
    }
