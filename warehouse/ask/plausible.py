"""Numbers far from all known values: most are in a wrong unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from estimators.catalog import OWN_SYSTEM, base_of, stated_of
from warehouse.errors import InputError
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from estimators.contract import Catalog, Scalar

FAR = 10
"""Ratio to the largest or the smallest known value beyond which a number is questioned."""

_TABLES = {
    "matrix_flops_per_second": "bf16_flops_per_second",
    "hbm_bytes": "hbm_bytes",
    "hbm_bytes_per_second": "hbm_bytes_per_second",
    "nvlink_bytes_per_second": "nvlink_bytes_per_second",
    "network_bytes_per_second": "nic_bytes_per_second",
    "power_limit_watts": "tdp_watts",
}
"""Attribute of a system -> its column in the table of accelerators."""

_BOTH_WAYS = "nvlink_bytes_per_second"
"""The attribute that data sheets state as the sum of both directions."""


def questioned_attributes(
    catalog: Catalog, values: Mapping[str, Scalar], given: Iterable[str]
) -> Iterator[str]:
    """Yield a line for each attribute that was given and is far from all known accelerators.

    `values` has the problem in base units, `given` the names of the columns that the user gave.
    The attributes that a user's own system states count too.
    """
    accelerator = values.get("accelerator")
    for name in dict.fromkeys((*given, *stated_of(catalog, accelerator))):
        value = values.get(name)
        if name not in _TABLES or value is None:
            continue
        number, known = float(value), _known(catalog, name)
        largest, least = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
        said, unit = f"`{name}` {in_words(name, number)}", "the number is in base units"
        if number > FAR * known[largest]:
            times = number / known[largest]
            most = in_words(name, known[largest])
            yield f"{said} is {times:,.3g} times the largest known, {most} ({largest}): {unit}"
        elif number < known[least] / FAR:
            yield (
                f"`{name}` {number:g} is less than a tenth of the smallest known, "
                f"{in_words(name, known[least])} ({least}): {unit}"
            )
        base = base_of(catalog, str(accelerator))
        of_base = known.get(str(base))
        if name == _BOTH_WAYS and of_base is not None and abs(number / of_base - 2) < 0.01:
            yield (
                f"{said} is twice that of {base}: this column counts one "
                "direction, data sheets the sum of both"
            )


def _known(catalog: Catalog, name: str) -> dict[str, float]:
    values: dict[str, float] = {}
    own_systems = catalog.tables.get(OWN_SYSTEM, {})
    for table, column in (("accelerator", _TABLES[name]), ("system", name)):
        for accelerator, row in catalog.tables[table].items():
            if accelerator not in own_systems and (value := row.get(column)) is not None:
                values.setdefault(accelerator, float(value))
    return values


def check_terms(
    connection: DuckDBPyConnection,
    prices: Sequence[float],
    electricity_prices: Sequence[float],
    watts: float | None,
) -> None:
    """Refuse prices and a power of a GPU that are far from all published ones.

    A price may be `FAR` times the dearest published one. The power may be `FAR` times the largest
    published power of a GPU with its server, and a tenth of the least design power of an
    accelerator.
    """
    for price in prices:
        _refuse_large(
            connection,
            f"`--price` {price:g}",
            price,
            "select on_demand_usd_per_gpu_hour, hardware || ', ' || vendor from gpu_hour_price",
            "dearest published price of an hour of one GPU, {:.2f} USD",
            "give USD of one GPU, not of a server, and not in cents",
        )
    for price in electricity_prices:
        _refuse_large(
            connection,
            f"`--electricity-price` {price:g}",
            price,
            "select usd_per_kwh, region || ', ' || year from electricity_price",
            "dearest published price of a kWh, {:.3f} USD",
            "USD of a kWh: 0.07 for 70 USD/MWh or 7 cents/kWh",
        )
    if watts is None:
        return
    said, hint = (
        f"`--watts` {watts:g}",
        "watts of one GPU with its share of the server: 1200 for 1.2 kW",
    )
    query = (
        "select tdp_watts, accelerator from accelerator where tdp_watts is not null "
        "order by all limit 1"
    )
    [(least, smallest)] = connection.execute(query).fetchall()
    if watts < least / FAR:
        raise InputError(
            f"{said} is less than a tenth of the smallest published power of an accelerator, "
            f"{least:,.0f} watts ({smallest})",
            hint,
        )
    _refuse_large(
        connection,
        said,
        watts,
        "select server_watts_per_gpu, accelerator from accelerator",
        "largest published power of a GPU with its server, {:,.0f} watts",
        hint,
    )


def _refuse_large(
    connection: DuckDBPyConnection, said: str, value: float, query: str, largest: str, hint: str
) -> None:
    """Refuse a value that is more than `FAR` times the largest of a query, a value and its name."""
    rows = connection.execute(f"{query} order by 1 desc nulls last, 2 limit 1").fetchall()
    [(most, name)] = rows
    if value > FAR * most:
        raise InputError(
            f"{said} is more than {FAR} times the {largest.format(most)} ({name})", hint
        )
