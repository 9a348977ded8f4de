-- Energy and carbon of the whole runs whose tokens are known, by basis of the power and by grid.
-- Grain: one row per estimator, variant, model, seq_len, system, assumptions, tokens, power, grid
--
-- training_energy_for(tokens) also has the runs of estimators without tokens.
select * from training_energy_for(null)
