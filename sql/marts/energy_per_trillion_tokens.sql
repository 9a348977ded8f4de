-- Energy and carbon of 1e12 tokens by every estimator, by basis of the power and by grid.
-- Grain: one row per estimator, variant, model, seq_len, system, assumptions, tokens, power, grid
--
-- training_energy_for(tokens) takes other tokens, powers and sites. Multiply energy, its price and
-- carbon by the trillions of tokens of a run.
select * from training_energy_for(1e12)
