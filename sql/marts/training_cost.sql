-- Dollars of the whole runs whose tokens are known, at every price of an hour of their accelerator.
-- Grain: one row per estimator, variant, model, system, tokens, year and basis of the price
--
-- Runs of estimators that know no tokens are in training_cost_for(tokens).
select * from training_cost_for(null)
