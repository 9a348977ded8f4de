-- The fastest layout at each number of pipeline stages, with the other degrees of the best layout.
-- Grain: one row per problem, estimator, variant and number of stages
with candidate as (
    select
        *,
        -- those that fit come first, those of unknown memory last; then as in every ranking
        row(
            case when fits_memory then 0 when fits_memory is null then 2 else 1 end,
            layout_order(configuration),
            strategy,
            cell_id
        ) as place
    from configuration
    where
        step_seconds is not null
        and pipeline_parallel is not null
        and strategy = $strategy
        and estimator = $estimator
        and variant = $variant
        and model = $model
        and accelerator = $accelerator
        and nvlink_size = $nvlink_size
        and num_gpus = $num_gpus
        and global_batch_size = $global_batch_size
),

-- an aggregate keeps one row of each group, a window would sort all of them
fastest as (
    select
        problem_id,
        estimator,
        variant,
        tensor_parallel,
        pipeline_parallel,
        arg_min(
            struct_pack(
                place := place,
                model := model,
                global_batch_size := global_batch_size,
                accelerator := accelerator,
                nvlink_size := nvlink_size,
                num_gpus := num_gpus,
                strategy := strategy,
                data_parallel := data_parallel,
                tensor_parallel_2 := tensor_parallel_2,
                context_parallel := context_parallel,
                microbatch_size := microbatch_size,
                step_seconds := step_seconds,
                memory_bytes := memory_bytes,
                fits_memory := fits_memory,
                compute_seconds := compute_seconds,
                memory_seconds := memory_seconds,
                tensor_comm_seconds := tensor_comm_seconds,
                pipeline_comm_seconds := pipeline_comm_seconds,
                data_comm_seconds := data_comm_seconds,
                bubble_seconds := bubble_seconds
            ),
            place
        ) as layout
    from candidate
    group by problem_id, estimator, variant, tensor_parallel, pipeline_parallel
),

chosen as (
    select
        *,
        first(tensor_parallel) over (
            partition by problem_id, estimator, variant
            order by layout['place']
        ) as best_tensor_parallel
    from fastest
)

select
    chosen.problem_id,
    coalesce(problem_group.assumptions, '') as assumptions,
    chosen.estimator,
    chosen.variant,
    chosen.layout['model'] as model,
    chosen.layout['global_batch_size'] as global_batch_size,
    chosen.layout['accelerator'] as accelerator,
    chosen.layout['nvlink_size'] as nvlink_size,
    chosen.layout['num_gpus'] as num_gpus,
    chosen.layout['strategy'] as strategy,
    chosen.layout['data_parallel'] as data_parallel,
    chosen.tensor_parallel
    * coalesce(chosen.layout['tensor_parallel_2'], 1)
    * coalesce(chosen.layout['context_parallel'], 1) as tensor_parallel,
    chosen.pipeline_parallel,
    chosen.layout['global_batch_size']
    // (chosen.layout['data_parallel'] * chosen.layout['microbatch_size']) as num_microbatches,
    chosen.layout['step_seconds'] as step_seconds,
    chosen.layout['memory_bytes'] as memory_bytes,
    problem.hbm_bytes,
    chosen.layout['fits_memory'] as fits_memory,
    chosen.layout['compute_seconds'] as compute_seconds,
    chosen.layout['memory_seconds'] as memory_seconds,
    chosen.layout['tensor_comm_seconds'] as tensor_comm_seconds,
    chosen.layout['pipeline_comm_seconds'] as pipeline_comm_seconds,
    chosen.layout['data_comm_seconds'] as data_comm_seconds,
    chosen.layout['bubble_seconds'] as bubble_seconds
from chosen
inner join problem on chosen.problem_id = problem.problem_id
inner join problem_group on chosen.problem_id = problem_group.problem_id
where
    chosen.tensor_parallel = chosen.best_tensor_parallel
    and coalesce(problem_group.system_changes, '') = ''
    and coalesce(problem_group.assumptions, '') = $assumptions
order by chosen.pipeline_parallel, chosen.problem_id, chosen.estimator, chosen.variant
