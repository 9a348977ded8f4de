"""Which degrees train a compute-optimal model fastest: davidsj/ml_par_sim run_optimizer2."""
