-- Energy and carbon of 1e12 tokens by every estimator, by basis of the power and by grid.
-- Grain: one row per model, system, assumptions, tokens, number of GPUs, basis of power and grid
-- Key: estimator, variant, model, model_shape, seq_len, accelerator, system_changes, assumptions,
-- is_lower_bound, dataset_tokens, num_gpus, power_basis, grid
--
-- training_energy_for(tokens) takes other tokens, powers and sites. Multiply energy, its price and
-- carbon by the trillions of tokens of a run.
select * from training_energy_for(1e12)
