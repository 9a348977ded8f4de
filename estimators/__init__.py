"""Analytic models of large-transformer training: numpy in, numpy out; no files, no database."""

from estimators.registry import ESTIMATORS, all_estimators, get

__all__ = ["ESTIMATORS", "all_estimators", "get"]
