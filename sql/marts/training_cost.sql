-- Dollars of the whole runs whose tokens are known, at every price of an hour of their accelerator.
-- Grain: one row per model, system, assumptions, tokens, number of GPUs, year and basis of a price
-- Key: estimator, variant, model, model_shape, seq_len, accelerator, system_changes, assumptions,
-- is_lower_bound, dataset_tokens, num_gpus, year, basis
--
-- training_cost_for(tokens) also has the runs of estimators without tokens.
select * from training_cost_for(null)
