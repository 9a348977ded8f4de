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
