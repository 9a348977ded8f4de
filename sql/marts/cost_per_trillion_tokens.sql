-- Dollars of 1e12 tokens by every estimator, at every published price of an hour.
-- Grain: one row per model, system, assumptions, tokens, number of GPUs, year and basis of a price
-- Key: estimator, variant, model, model_shape, seq_len, accelerator, system_changes, assumptions,
-- is_lower_bound, dataset_tokens, num_gpus, year, basis
--
-- training_cost_for(tokens) takes other tokens and prices. Multiply the costs by the trillions of
-- tokens of a run.
select * from training_cost_for(1e12)
