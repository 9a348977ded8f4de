"""The size of a shard before it runs: cells, rows and seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warehouse.lake.folder import Lake
from warehouse.lake.shard import own_cells, refuse_profiles
from warehouse.sweep.estimate import Estimate, estimate
from warehouse.sweep.planned import Size

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.lake.names import Shard
    from warehouse.studies.study import Study


def estimate_shard(folder: Path, study: Study, shard: Shard) -> Estimate:
    """Return the size of a shard, and of what the lake lacks of it; writes nothing.

    If only a sample of the cells is known, this assumes that a shard has one Nth of the rows and of
    the finished cells of the lake, and that these are as large as the others.

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
    lake = Lake(folder)
    if whole.is_sampled:
        cells, rows = whole.size.cells // shard.of, whole.size.rows // shard.of
        missing_cells = max(cells - lake.num_cells() // shard.of, 0)
        missing_rows = rows * missing_cells // cells if cells else 0
        return replace(whole, size=Size(cells, rows, missing_cells, missing_rows))
    listed = whole.asked.counted
    own = {cell.id for cell in own_cells(study, listed.catalog, shard)}
    part = replace(listed, cells=tuple(sized for sized in listed.cells if sized[0].id in own))
    finished = {cell.id for cell, _ in part.cells if lake.has(cell)}
    return replace(whole, size=part.size(finished))
