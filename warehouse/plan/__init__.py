"""Plans: the best layout, GPU count and cost of one training run."""
