"""Queries of sql/plots with the rows that they must give."""
