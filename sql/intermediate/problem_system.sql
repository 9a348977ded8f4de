-- Whether the system of a problem is its accelerator as published.
-- Grain: one row per problem
-- Key: problem_id
--
-- A rate or size is as published if table `system`, `device` or `accelerator` has it under that
-- name. Efficiencies and latencies are compared where an estimator takes all of them from table
-- `system`. The rate of a cluster may be any up to that of its accelerators. Where no table has the
-- name, or there is none, the answer is NULL, and every attribute counts as a change.
select
    problem_id,
    is_published_system,
    system_changes
from stored_problem
