"""Types of columns in memory. Nothing else in this room imports numpy."""

from __future__ import annotations

import numpy as np

NUMPY_TYPES: dict[str, type] = {
    "TINYINT": np.int8,
    "UTINYINT": np.uint8,
    "SMALLINT": np.int16,
    "USMALLINT": np.uint16,
    "INTEGER": np.int32,
    "UINTEGER": np.uint32,
    "BIGINT": np.int64,
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
    "BOOLEAN": np.bool_,
    "VARCHAR": np.object_,
}
"""DuckDB types that a stored column may have, and their numpy types in memory."""

DTYPES: dict[str, type] = {
    "int": np.int64,
    "float": np.float64,
    "bool": np.bool_,
    "str": np.object_,
}
"""Kind of a column -> its type in arithmetic."""
