-- The same model and batch on the same number of GPUs of several systems, over 1e12 tokens.
-- Grain: one row per problem, estimator, estimator_version and variant
-- Key: problem_id, estimator, estimator_version, variant
--
-- system_comparison_for(tokens) takes other tokens, and a system to compare with.
select * exclude (ratio_to_base) from system_comparison_for(1e12)
