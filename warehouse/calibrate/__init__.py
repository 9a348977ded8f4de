"""Calibrated constants: fits to published steps, to a user's steps, and to timings of kernels."""

OWN, OTHER = "its own programs", "other programs, by the nearest one"
"""Groups of a table's rows: the estimator has the constants of the program, or not."""
