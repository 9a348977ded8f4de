"""Sweeps: every configuration of a study, evaluated and stored."""
