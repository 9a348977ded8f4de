"""Memory of a training step: activations, logits, state, and the rest on a device."""
