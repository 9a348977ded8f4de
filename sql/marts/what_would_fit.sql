-- The smallest number of GPUs whose memory holds a model, and the fastest layout there.
-- Grain: one row per estimator, estimator_version, variant, model, accelerator and batch
--
-- Of the evaluated numbers of GPUs, over all sizes of the NVLink domain that were evaluated; what
-- differs in any other attribute of the problem stands in a row of its own (capacity_id). Without a
-- number fit_note says why; with the smallest that was evaluated, that fewer may do as well.
with place as (
    select
        best_of_problem.*,
        problem_group.capacity_id,
        problem_group.model,
        problem_group.model_shape,
        problem_group.accelerator,
        problem_group.system_changes,
        problem_group.global_batch_size,
        problem_group.nvlink_size,
        problem_group.num_gpus,
        problem_group.hbm_bytes
    from best_of_problem
    inner join problem_group on best_of_problem.problem_id = problem_group.problem_id
),

smallest as (
    select
        capacity_id,
        estimator,
        estimator_version,
        variant,
        any_value(model) as model,
        model_shape,
        accelerator,
        any_value(system_changes) as system_changes,
        any_value(hbm_bytes) as hbm_bytes,
        global_batch_size,
        cast(sum(num_layouts) as bigint) as num_layouts,
        min(num_gpus) filter (where num_layouts > 0) as lowest_num_gpus,
        max(num_gpus) filter (where num_layouts > 0) as highest_num_gpus,
        bool_or(best['memory_bytes'] is null and best['step_seconds'] is not null)
            as is_without_memory,
        -- the first field decides, then the time
        min(
            struct_pack(
                num_gpus := num_gpus,
                step_seconds := best['step_seconds'],
                nvlink_size := nvlink_size,
                memory_bytes := best['memory_bytes'],
                best_layout := best_layout,
                problem_id := problem_id,
                num_fitting_layouts := num_fitting_layouts
            )
        ) filter (where best['memory_bytes'] is not null and num_gpus is not null) as fit
    from place
    group by
        capacity_id,
        estimator,
        estimator_version,
        variant,
        model_shape,
        accelerator,
        global_batch_size
)

select
    estimator,
    estimator_version,
    variant,
    model,
    model_shape,
    accelerator,
    system_changes,
    hbm_bytes,
    global_batch_size,
    capacity_id,

    fit['num_gpus'] as smallest_num_gpus,
    fit['nvlink_size'] as nvlink_size,
    fit['best_layout'] as best_layout,
    fit['step_seconds'] as best_step_seconds,
    fit['memory_bytes'] as best_memory_bytes,
    fit['memory_bytes'] / hbm_bytes as memory_use_fraction,
    fit['num_fitting_layouts'] as num_fitting_layouts,
    fit['problem_id'] as problem_id,

    lowest_num_gpus,
    highest_num_gpus,
    num_layouts,
    case
        when fit['num_gpus'] = lowest_num_gpus
            then 'the smallest number that was evaluated: fewer may do'
        when fit is not null then null
        when is_without_memory then 'the estimator has no model of memory'
        when num_layouts = 0 then 'no layout was evaluated'
        when lowest_num_gpus = highest_num_gpus
            then 'no layout fits on ' || lowest_num_gpus || ' GPUs'
        else 'no layout fits on ' || lowest_num_gpus || ' to ' || highest_num_gpus || ' GPUs'
    end as fit_note
from smallest
