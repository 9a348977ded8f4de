-- Dollars of the whole runs whose tokens are known, at every price of an hour of their accelerator.
-- Grain: one row per estimator, variant, model, seq_len, system, assumptions, tokens, year, basis
--
-- training_cost_for(tokens) also has the runs of estimators without tokens.
select * from training_cost_for(null)
