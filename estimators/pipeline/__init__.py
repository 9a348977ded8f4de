"""Step time of a mixture-of-experts transformer on a pipeline: davidsj/ml_par_sim."""
