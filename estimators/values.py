"""The types of values: scalars, columns, spaces and mends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Scalar = str | int | float | bool | None
Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
"""Written as a text, so that code without arrays does not import numpy."""

Real: TypeAlias = "float | np.ndarray[Any, np.dtype[np.float64]]"
"""A number of a cell, or one a row of a batch; NaN where there is none."""

Flag: TypeAlias = "np.bool_ | np.ndarray[Any, np.dtype[np.bool_]]"
"""A flag of a cell, or one a row of a batch."""

Place: TypeAlias = "np.int64 | np.ndarray[Any, np.dtype[np.int64]]"
"""A place in a table of a cell, or one a row of a batch."""

Text: TypeAlias = "str | np.ndarray[Any, np.dtype[np.object_]] | None"
"""A text of a cell, or one a row of a batch."""

Columns = Mapping[str, Array]
"""Name to one-dimensional array, all of one length, dtypes as in `estimators.columns`."""

Values = Mapping[str, Any]
"""Scalars of one cell, or arrays with one element a row: kernels take either and broadcast."""

Space = Mapping[str, Sequence[Scalar]]
"""The space of a study: each name with its values. It means their cartesian product."""

Mends = frozenset[str]
"""Ids of the errata whose mended formula is used: `published` has none, `corrected` all."""

PUBLISHED: Mends = frozenset()
