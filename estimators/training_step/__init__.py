"""A physical estimate of one training step, from constants that were measured elsewhere."""
