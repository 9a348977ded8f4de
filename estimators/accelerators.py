"""Names of accelerators: systems of publications and of users, and the products that they are."""

from __future__ import annotations

from collections.abc import Mapping

from estimators.contract import Catalog, Scalar

OWN_SYSTEM = "own_system"
"""Table of the systems that a user defines: what each states itself, and `based_on`. Table `system`
has the same systems with every attribute."""

PRODUCT_COLUMNS: Mapping[str, str] = {
    "matrix_flops_per_second": "bf16_flops_per_second",
    "fp8_flops_per_second": "fp8_flops_per_second",
    "fp4_flops_per_second": "fp4_flops_per_second",
    "hbm_bytes_per_second": "hbm_bytes_per_second",
    "hbm_bytes": "hbm_bytes",
    "nvlink_bytes_per_second": "nvlink_bytes_per_second",
    "network_bytes_per_second": "nic_bytes_per_second",
}
"""Attribute of a system -> its column in the table of accelerators."""

NARROW_RATES = ("fp8_flops_per_second", "fp4_flops_per_second")
"""Rates that table `system` does not have; a user's system may state them."""


def product_of(catalog: Catalog, accelerator: Scalar) -> str | None:
    """Return the accelerator as sold behind a name: the name itself where it is no product.

    A system that a user bases on a product has the constants, the kernels and the measured errors
    of that product. `product_behind` returns None where there is no product.
    """
    if accelerator is None:
        return None
    return product_behind(catalog, accelerator) or _published(catalog, accelerator)


def product_behind(catalog: Catalog, accelerator: Scalar) -> str | None:
    """Return the product of a name, or the product that its system is based on; None without one.

    A system may be based on another system: the first product on the way counts.
    """
    products, systems = catalog.tables.get("accelerator", {}), catalog.tables.get("system", {})
    seen: set[Scalar] = set()
    while accelerator is not None and accelerator not in seen:
        seen.add(accelerator)
        product = _published(catalog, accelerator)
        if product in products:
            return product
        accelerator = systems.get(str(accelerator), {}).get("based_on")
    return None


def base_of(catalog: Catalog, accelerator: str) -> str | None:
    """Return the published name that a user's system is based on; other names are their own base.

    None if the system has no base.
    """
    own = catalog.tables.get(OWN_SYSTEM, {})
    base = accelerator
    while base in own:
        stated = own[base].get("based_on")
        if stated is None:
            return None
        base = str(stated)
    return base


def stated_of(catalog: Catalog, accelerator: Scalar) -> dict[str, Scalar]:
    """Return the attributes that a user's system and those that it is based on state."""
    own = catalog.tables.get(OWN_SYSTEM, {}).get(str(accelerator))
    return {} if own is None else {**stated_of(catalog, own.get("based_on")), **own}


def _published(catalog: Catalog, accelerator: Scalar) -> str:
    """Return the product of a system that a publication describes (table ``priced_as``)."""
    row = catalog.tables.get("priced_as", {}).get(str(accelerator), {})
    return str(row.get("priced_as", accelerator))
