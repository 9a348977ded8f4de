-- Problems whose row in table stored_problem is missing, doubled, or not the one of found_problem.
--
-- Views name problems, and decide which of them compare, by these rows alone.
with stored as (
    select
        *,
        count(*) over (partition by problem_id) as num_rows
    from stored_problem
)

select
    coalesce(found_problem.problem_id, stored.problem_id) as problem_id,
    stored.num_rows,
    stored.model,
    found_problem.model as model_found,
    stored.system_changes,
    found_problem.system_changes as system_changes_found,
    stored.assumptions,
    found_problem.assumptions as assumptions_found
from found_problem
full join stored on found_problem.problem_id = stored.problem_id
where
    coalesce(stored.num_rows, 0) <> 1
    or found_problem.model is distinct from stored.model
    or found_problem.model_shape is distinct from stored.model_shape
    or found_problem.is_published_system is distinct from stored.is_published_system
    or found_problem.system_changes is distinct from stored.system_changes
    or found_problem.assumptions is distinct from stored.assumptions
    or found_problem.num_changed_constants is distinct from stored.num_changed_constants
    or found_problem.num_changed_step_constants is distinct from stored.num_changed_step_constants
    or found_problem.scaling_id is distinct from stored.scaling_id
    or found_problem.capacity_id is distinct from stored.capacity_id
    or found_problem.workload_id is distinct from stored.workload_id
