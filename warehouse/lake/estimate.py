"""The size of a shard before it runs: cells, rows and seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warehouse.lake.folder import Lake
from warehouse.lake.shard import refuse_profiles
from warehouse.sweep.estimate import Estimate, estimate
from warehouse.sweep.planned import Size

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.lake.names import Shard
    from warehouse.studies.study import Study


def estimate_shard(folder: Path, study: Study, shard: Shard) -> Estimate:
    """Return the size of a shard, and of what the lake lacks of it; writes nothing.

    Content ids divide the cells evenly. If only a sample of the cells is known, this assumes that a
    shard has one Nth of the rows and that its finished cells are as large as the others.

    Parameters
    ----------
    folder
        The lake; it may be missing.

    Raises
    ------
    InputError
        If the study is refused, or takes a stored profile.
    """
    refuse_profiles(study)
    Lake(folder).refuse_long_name(study)
    whole = estimate(study, folder / "lake.json", force=True)  # a shard reads no database
    own = {cell for cell in Lake(folder).cells() if shard.has(cell)}
    if whole.is_sampled:
        cells, rows = whole.size.cells // shard.of, whole.size.rows // shard.of
        missing_cells = max(cells - len(own), 0)
        missing_rows = rows * missing_cells // cells if cells else 0
        return replace(whole, size=Size(cells, rows, missing_cells, missing_rows))
    listed = whole.asked.counted
    cells_of_shard = tuple(sized for sized in listed.cells if shard.has(sized[0].id))
    return replace(whole, size=replace(listed, cells=cells_of_shard).size(own))
