-- Dollars of the whole runs whose tokens are known, at every price of an hour of their accelerator.
-- Grain: one row per estimator, variant, model, system, assumptions, tokens, year and price basis
--
-- Runs of estimators that know no tokens are in training_cost_for(tokens).
select * from training_cost_for(null)
