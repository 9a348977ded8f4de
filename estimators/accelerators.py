"""Names of accelerators: systems of publications, and the products that they are."""

from __future__ import annotations

from estimators.contract import Catalog, Scalar


def product_of(catalog: Catalog, accelerator: Scalar) -> str | None:
    """Return the accelerator as sold behind a name: the name itself where it is no system.

    Table ``priced_as`` has the product of each system that a publication describes.
    """
    if accelerator is None:
        return None
    row = catalog.tables.get("priced_as", {}).get(str(accelerator), {})
    return str(row.get("priced_as", accelerator))


def product_behind(catalog: Catalog, accelerator: Scalar) -> str | None:
    """Return the product that a name is, or that its system is based on; None where there is none.

    A system may be based on a system: the first product on the way counts.
    """
    products, systems = catalog.tables.get("accelerator", {}), catalog.tables.get("system", {})
    seen: set[Scalar] = set()
    while accelerator is not None and accelerator not in seen:
        seen.add(accelerator)
        product = product_of(catalog, accelerator)
        if product in products:
            return product
        accelerator = systems.get(str(accelerator), {}).get("based_on")
    return None
