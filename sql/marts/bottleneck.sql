-- Shares of the step of each problem's best layout, and the largest: its bottleneck.
-- Grain: one row per problem, estimator, estimator_version and variant
-- Key: problem_id, estimator, estimator_version, variant
--
-- Shares are of exposed time: work that overlaps with longer work takes no time. Of equal shares
-- the first in the order of the columns binds. A share that an estimator does not model is NULL.
-- Nothing binds where no layout fits, or where the estimator has no parts.
with share as (
    select
        *,
        best['compute_seconds'] / best['step_seconds'] as compute_fraction,
        best['memory_seconds'] / best['step_seconds'] as memory_fraction,
        best['tensor_comm_seconds'] / best['step_seconds'] as tensor_comm_fraction,
        best['pipeline_comm_seconds'] / best['step_seconds'] as pipeline_comm_fraction,
        best['bubble_seconds'] / best['step_seconds'] as bubble_fraction,
        best['data_comm_seconds'] / best['step_seconds'] as data_comm_fraction
    from best_of_problem
),

ordered as (
    select
        *,
        list_sort(
            list_filter(
                [
                    struct_pack(size := -compute_fraction, place := 1, resource := 'compute'),
                    struct_pack(size := -memory_fraction, place := 2, resource := 'memory'),
                    struct_pack(
                        size := -tensor_comm_fraction, place := 3, resource := 'tensor_comm'
                    ),
                    struct_pack(
                        size := -pipeline_comm_fraction, place := 4, resource := 'pipeline_comm'
                    ),
                    struct_pack(size := -bubble_fraction, place := 5, resource := 'bubble'),
                    struct_pack(size := -data_comm_fraction, place := 6, resource := 'data_comm')
                ],
                lambda part: part['size'] is not null
            )
        ) as parts
    from share
)

select
    ordered.problem_id,
    ordered.estimator,
    ordered.estimator_version,
    ordered.variant,
    ordered.is_whole_space,

    problem_group.model,
    problem_group.model_shape,
    problem_group.accelerator,
    problem_group.system_changes,
    problem_group.assumptions,
    problem_group.nvlink_size,
    problem_group.num_gpus,
    problem_group.global_batch_size,

    ordered.best_layout,
    ordered.best.step_seconds as best_step_seconds,
    ordered.parts[1].resource as binding_resource,
    -ordered.parts[1].size as binding_fraction,
    ordered.parts[2].resource as runner_up_resource,
    -ordered.parts[2].size as runner_up_fraction,

    ordered.compute_fraction,
    ordered.memory_fraction,
    ordered.tensor_comm_fraction,
    ordered.pipeline_comm_fraction,
    ordered.bubble_fraction,
    ordered.data_comm_fraction
from ordered
inner join problem_group on ordered.problem_id = problem_group.problem_id
