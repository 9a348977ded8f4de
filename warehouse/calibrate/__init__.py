"""Calibration: constants fitted to measured runs, and the profiles that hold them."""
