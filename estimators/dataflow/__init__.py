"""FLOPs and traffic between clusters of a transformer run: davidsj/ml_par_sim."""
