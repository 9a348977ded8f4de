"""Columns of the pipeline estimator only."""

from __future__ import annotations

from estimators.columns.column import Column

PIPELINE: tuple[Column, ...] = ()
