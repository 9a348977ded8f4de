-- Choices that the recipe of its program makes for a problem where nothing else is asked.
-- Grain: one row per problem whose program has recipes
-- Key: problem_id
--
-- Table expert_default has choices for a framework, for its accelerator, for a model there, and for
-- that under a recipe of number formats: the last of these counts. A row with a release counts for
-- earlier releases; of several, the one with the earliest release counts. NULL where the row keeps
-- the general default. Parts that cannot be recomputed are not chosen: projections of latents where
-- there are none, and norms and activations under delayed scales.
select
    stored_problem.problem_id,
    expert_default.expert_default,
    expert_default.overlapped_expert_fraction,
    expert_default.uses_cuda_graphs,
    expert_default.captures_attention,
    expert_default.captures_whole_steps,
    expert_default.quantizes_output_layer,
    stored_problem.recompute_modules
from stored_problem
inner join expert_default on stored_problem.expert_default = expert_default.expert_default
