"""Evaluation without a search: rows of a file, one configuration, one whole space."""
