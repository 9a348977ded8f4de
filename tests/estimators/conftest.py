"""What the tests of estimators share: the packaged catalog and a way to evaluate a cell."""

from __future__ import annotations

import pytest

from estimators.contract import Catalog
from warehouse.catalog import packaged_catalog


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The reference tables that the package ships."""
    return packaged_catalog()
