-- Dollars of the whole runs whose tokens are known, at every price of an hour of their accelerator.
-- Grain: one row per estimator, variant, model, system, assumptions, tokens, year and price basis
--
-- training_cost_for(tokens) also has the runs of estimators without tokens.
select * from training_cost_for(null)
