"""The types of values: scalars, columns, spaces and mends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Scalar = str | int | float | bool | None
Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
"""A text: what reads no array imports no numpy."""

Columns = Mapping[str, Array]
"""Name to one-dimensional array, all of one length, dtypes as in `estimators.columns`."""

Values = Mapping[str, Any]
"""Scalars of one cell, or arrays with one element a row: kernels take either and broadcast."""

Space = Mapping[str, Sequence[Scalar]]
"""The space of a study: each name with its values. It means their cartesian product."""

Mends = frozenset[str]
"""Erratum ids whose mended formula is used: none is `published`, all is `corrected`."""

PUBLISHED: Mends = frozenset()
