-- Energy and carbon of the whole runs whose tokens are known, by basis of the power and by grid.
-- Grain: one row per model, system, assumptions, tokens, number of GPUs, basis of power and grid
-- Key: estimator, variant, model, model_shape, seq_len, accelerator, system_changes, assumptions,
-- is_lower_bound, dataset_tokens, num_gpus, power_basis, grid
--
-- Every grid of grid_carbon has a row: filter grid, or is_default. training_energy_for(tokens) also
-- has the runs of estimators without tokens.
select * from training_energy_for(null)
