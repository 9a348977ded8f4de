-- Dollars of 1e12 tokens by every estimator, at every published price of an hour.
-- Grain: one row per estimator, variant, model, seq_len, system, assumptions, tokens, year, basis
--
-- training_cost_for(tokens) takes other tokens and prices. Multiply the costs by the trillions of
-- tokens of a run.
select * from training_cost_for(1e12)
