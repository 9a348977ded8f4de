"""Columns of linear_layer and run_optimizer only."""

from __future__ import annotations

from estimators.columns.column import Column

OPTIMIZER: tuple[Column, ...] = ()
