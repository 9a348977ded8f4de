"""Where the two sites of a run are."""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Array, Catalog, Mends, RefusedError
from estimators.inputs import Inputs


def resolve_sites(inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
    """Fill the coordinates of the two sites from their names, unless the coordinates are given."""
    for end, default in (("a", "JEAN_ZAY"), ("b", "JOLIOT_CURIE")):
        place = (f"latitude_{end}", f"longitude_{end}")
        nowhere = inputs.missing(place[0]) & inputs.missing(place[1])
        for name, other in (place, place[::-1]):
            alone = inputs.missing(name) & ~inputs.missing(other)
            inputs.refuse(
                name, alone, f"is missing, but `{other}` is given", "give both coordinates"
            )
        inputs.default(f"site_{end}", text_where(nowhere, default))
        for name in dict.fromkeys(inputs[f"site_{end}"].tolist()):
            if name is not None:
                _place(inputs, catalog, mends, end, name)
        inputs.require(place, "name a site, or give both coordinates")


def _place(inputs: Inputs, catalog: Catalog, mends: Mends, end: str, name: str) -> None:
    """Fill the coordinates of one end from the name of its site, and refuse contradictions."""
    column = f"site_{end}"
    rows = np.equal(inputs[column], name)
    known = ~(inputs.missing(f"latitude_{end}") | inputs.missing(f"longitude_{end}"))
    try:
        site = catalog.find("site", name)
        if "C10" in mends and site.get("true_site"):
            site = catalog.find("site", str(site["true_site"]))
    except RefusedError as error:
        [refusal] = error.refusals
        # An unknown place may be named with its coordinates.
        inputs.refuse(column, rows & ~known, refusal.reason, refusal.hint)
        return
    for place in ("latitude", "longitude"):
        degrees: Any = site[place]
        # A stored row has the coordinates of its site.
        other = rows & known & (inputs[f"{place}_{end}"] != degrees)
        reason = f"is not that of `{column}` {name}"
        inputs.refuse(f"{place}_{end}", other, reason, "leave the coordinates or the name out")
        inputs.default(f"{place}_{end}", np.where(rows, degrees, np.nan))


def text_where(rows: Array, text: str) -> Array:
    """Return a column with a text in some rows and None in the others."""
    found = np.full(len(rows), None, dtype=object)
    found[rows] = text
    return found
