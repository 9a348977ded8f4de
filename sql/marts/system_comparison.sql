-- The same model and batch on as many GPUs of several systems: what a trillion tokens take there.
-- Grain: one row per problem, estimator, estimator_version and variant
--
-- Other tokens, and a system to compare with, are in system_comparison_for(tokens).
select * exclude (ratio_to_base) from system_comparison_for(1e12)
