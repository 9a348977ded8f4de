"""Measured runs: reading, checking and storing them."""
