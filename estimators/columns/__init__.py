"""The data dictionary: every column of the project once, with type, unit, meaning and source.

`columns.csv` has a line a column. DDL, column comments, the column reference in docs and the
validation of studies and batch files are all made from it. Units are base units; a name ends with
its unit.
"""

from __future__ import annotations

from estimators.columns.columns import (
    COLUMNS,
    GROUPS,
    LAYOUT_COLUMNS,
    NUMBERS,
    Column,
    Kind,
    names_in,
)
from estimators.columns.forms import Form

__all__ = ["COLUMNS", "GROUPS", "LAYOUT_COLUMNS", "NUMBERS", "Column", "Form", "Kind", "names_in"]
