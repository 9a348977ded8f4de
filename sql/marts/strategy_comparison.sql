-- Gain from a second dimension: the best layout of each strategy, compared.
-- Grain: one row per problem, estimator, estimator_version and variant with two strategies or more
-- Key: problem_id, estimator, estimator_version, variant
--
-- The ratio is the time of the best one-dimensional layout over that of the best of all: 1 where a
-- second dimension gains nothing, NULL where no one-dimensional layout fits. Of equally fast
-- strategies the one-dimensional comes first, as a second axis of one GPU is none. is_2d_faster is
-- NULL where nothing fits or no one-dimensional layout was evaluated. A strategy that was not
-- evaluated has no number of layouts; one without a layout that fits has no time.
-- is_..._whole_space is false where only some layouts were evaluated; is_searched_alike is false
-- where the strategies were searched with different choices.
with by_strategy as (
    select
        problem_id,
        estimator,
        estimator_version,
        variant,
        coverage['strategy'] as strategy,
        bool_or(coverage['kept'] = '{}') as is_whole_space,
        -- the searched choices other than the strategy
        list_sort(
            list(
                distinct struct_pack(
                    attention := coverage['attention'],
                    activation_recompute := coverage['activation_recompute'],
                    virtual_pipeline := coverage['virtual_pipeline']
                )
            ) filter (where coverage['kept'] = '{}')
        ) as searched_choices,
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
        min(
            struct_pack(
                fit_risk := fastest['best']['fit_risk'],
                step_seconds := fastest['best']['step_seconds'],
                is_2d := strategy <> 'tensor_1d',
                strategy := strategy
            )
        ) filter (where fastest is not null) as best,
        min(fastest['best']['step_seconds']) filter (where strategy <> 'tensor_1d')
            as best_2d_step_seconds,
        bool_and(is_whole_space) and count(distinct searched_choices) = 1 as is_searched_alike,
        any_value(fastest) filter (where strategy = 'tensor_1d') as tensor_1d,
        any_value(is_whole_space) filter (where strategy = 'tensor_1d')
            as is_tensor_1d_whole_space,
        any_value(fastest) filter (where strategy = 'summa_2d') as summa_2d,
        any_value(is_whole_space) filter (where strategy = 'summa_2d')
            as is_summa_2d_whole_space,
        any_value(fastest) filter (where strategy = 'context_2d') as context_2d,
        any_value(is_whole_space) filter (where strategy = 'context_2d')
            as is_context_2d_whole_space,
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
    problem_group.assumptions,
    problem_group.nvlink_size,
    problem_group.num_gpus,
    problem_group.global_batch_size,

    compared.best.strategy as best_strategy,
    compared.best.step_seconds as best_step_seconds,
    compared.tensor_1d.best.step_seconds / compared.best.step_seconds as tensor_1d_ratio,
    case
        when compared.tensor_1d_num_layouts > 0
            then
                coalesce(
                    compared.best_2d_step_seconds < compared.tensor_1d.best.step_seconds,
                    -- of one of the two nothing fits
                    compared.best.is_2d
                )
    end as is_2d_faster,
    compared.is_searched_alike,

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
    compared.context_2d_num_layouts,
    compared.is_tensor_1d_whole_space,
    compared.is_summa_2d_whole_space,
    compared.is_context_2d_whole_space
from compared
inner join problem_group on compared.problem_id = problem_group.problem_id
