"""Columns of the dataflow estimator only."""

from __future__ import annotations

from estimators.columns.column import Column

DATAFLOW: tuple[Column, ...] = ()
