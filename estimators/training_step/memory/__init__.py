"""Memory of a training step: activations, logits, state, and what a device holds besides."""
