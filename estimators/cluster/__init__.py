"""The budget of a training run: GPUs, time, cost, sites, electricity, memory."""
