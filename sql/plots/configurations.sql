-- The fastest layout at each number of pipeline stages, with the other degrees of the best layout.
-- Grain: one row per problem, estimator, variant and number of stages
with chosen as (
    select
        configuration.*,
        coalesce(problem_group.assumptions, '') as assumptions,
        problem.hbm_bytes as capacity_bytes,
        row_number() over (
            partition by
                configuration.problem_id,
                configuration.estimator,
                configuration.variant,
                configuration.tensor_parallel,
                configuration.pipeline_parallel
            order by configuration.fits_memory desc, configuration.step_seconds asc
        ) as place,
        first(configuration.tensor_parallel) over (
            partition by
                configuration.problem_id, configuration.estimator, configuration.variant
            order by configuration.fits_memory desc, configuration.step_seconds asc
        ) as best_tensor_parallel
    from configuration
    inner join problem on configuration.problem_id = problem.problem_id
    inner join problem_group on configuration.problem_id = problem_group.problem_id
    where
        configuration.step_seconds is not null
        and coalesce(problem_group.system_changes, '') = ''
        and coalesce(problem_group.assumptions, '') = $assumptions
        and configuration.pipeline_parallel is not null
        and configuration.strategy = $strategy
        and configuration.estimator = $estimator
        and configuration.variant = $variant
        and configuration.model = $model
        and configuration.accelerator = $accelerator
        and configuration.nvlink_size = $nvlink_size
        and configuration.num_gpus = $num_gpus
        and configuration.global_batch_size = $global_batch_size
)

select
    problem_id,
    assumptions,
    estimator,
    variant,
    model,
    global_batch_size,
    accelerator,
    nvlink_size,
    num_gpus,
    strategy,
    data_parallel,
    tensor_parallel * coalesce(tensor_parallel_2, 1) * coalesce(context_parallel, 1)
        as tensor_parallel,
    pipeline_parallel,
    global_batch_size // (data_parallel * microbatch_size) as num_microbatches,
    step_seconds,
    memory_bytes,
    capacity_bytes as hbm_bytes,
    fits_memory,
    compute_seconds,
    memory_seconds,
    tensor_comm_seconds,
    pipeline_comm_seconds,
    data_comm_seconds,
    bubble_seconds
from chosen
where
    place = 1
    and tensor_parallel = best_tensor_parallel
order by pipeline_parallel
