-- Whether a second dimension is worth it: the best layout of each strategy side by side.
-- Grain: one row per problem, estimator, estimator_version and variant with two strategies or more
--
-- The ratio is the time of the best one-dimensional layout over that of the best of all: 1 where a
-- second dimension wins nothing, NULL where no one-dimensional layout fits. A strategy that was not
-- evaluated has no number of layouts, one of which nothing fits no time.
with by_strategy as (
    select
        problem_id,
        estimator,
        estimator_version,
        variant,
        coverage['strategy'] as strategy,
        sum(num_layouts) as num_layouts,
        min(struct_pack(best := best, best_layout := best_layout))
        filter (where best is not null) as fastest
    from best_of_cell
    where coverage['strategy'] is not null
    group by problem_id, estimator, estimator_version, variant, coverage['strategy']
),

compared as (
    select
        problem_id,
        estimator,
        estimator_version,
        variant,
        min(struct_pack(step_seconds := fastest['best']['step_seconds'], strategy := strategy))
        filter (where fastest is not null) as best,
        min(struct_pack(step_seconds := fastest['best']['step_seconds'], strategy := strategy))
        filter (where fastest is not null and strategy <> 'tensor_1d') as best_2d,
        any_value(fastest) filter (where strategy = 'tensor_1d') as tensor_1d,
        any_value(fastest) filter (where strategy = 'summa_2d') as summa_2d,
        any_value(fastest) filter (where strategy = 'context_2d') as context_2d,
        cast(any_value(num_layouts) filter (where strategy = 'tensor_1d') as bigint)
            as tensor_1d_num_layouts,
        cast(any_value(num_layouts) filter (where strategy = 'summa_2d') as bigint)
            as summa_2d_num_layouts,
        cast(any_value(num_layouts) filter (where strategy = 'context_2d') as bigint)
            as context_2d_num_layouts
    from by_strategy
    group by problem_id, estimator, estimator_version, variant
    having count(*) > 1
)

select
    compared.problem_id,
    compared.estimator,
    compared.estimator_version,
    compared.variant,

    problem_group.model,
    problem_group.model_shape,
    problem_group.accelerator,
    problem_group.system_changes,
    problem_group.nvlink_size,
    problem_group.num_gpus,
    problem_group.global_batch_size,

    compared.best.strategy as best_strategy,
    compared.best.step_seconds as best_step_seconds,
    compared.tensor_1d.best.step_seconds / compared.best.step_seconds as tensor_1d_ratio,
    case
        when compared.best is not null
            then compared.best.strategy <> 'tensor_1d'
    end as is_2d_faster,

    compared.tensor_1d.best.step_seconds as tensor_1d_step_seconds,
    compared.summa_2d.best.step_seconds as summa_2d_step_seconds,
    compared.context_2d.best.step_seconds as context_2d_step_seconds,
    compared.tensor_1d.best_layout as tensor_1d_layout,
    compared.summa_2d.best_layout as summa_2d_layout,
    compared.context_2d.best_layout as context_2d_layout,
    compared.tensor_1d.best.memory_bytes as tensor_1d_memory_bytes,
    compared.summa_2d.best.memory_bytes as summa_2d_memory_bytes,
    compared.context_2d.best.memory_bytes as context_2d_memory_bytes,
    compared.tensor_1d_num_layouts,
    compared.summa_2d_num_layouts,
    compared.context_2d_num_layouts
from compared
inner join problem_group on compared.problem_id = problem_group.problem_id
