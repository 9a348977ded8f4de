-- The best step at each number of GPUs: speed-up, efficiency and cost of the last GPUs.
-- Grain: one row per problem, estimator, estimator_version and variant
-- Key: problem_id, estimator, estimator_version, variant
--
-- Problems of one scaling_id that were searched as widely are compared: they differ only in the
-- number of GPUs. The base is the smallest number at which a layout fits. Efficiency is the
-- speed-up over the ratio of GPUs: 1 where twice the GPUs take half the time. The marginal cost of
-- a token is that of the last doubling: the GPUs added to exactly half as many, over the tokens a
-- second that they add. It equals the cost of a token where scaling is perfect. It is NULL where
-- half as many GPUs were not evaluated or fit nothing, and where twice as many are no faster.
-- Dollars are NULL without a published price, tokens where an estimator has no sequences; times are
-- NULL where nothing fits.
with point as (
    select
        best_of_problem.problem_id,
        best_of_problem.estimator,
        best_of_problem.estimator_version,
        best_of_problem.variant,
        best_of_problem.is_whole_space,
        best_of_problem.searched,
        best_of_problem.num_layouts,
        best_of_problem.num_fitting_layouts,
        best_of_problem.best,
        best_of_problem.best_layout,
        problem_group.scaling_id,
        problem_group.model,
        problem_group.model_shape,
        problem_group.accelerator,
        problem_group.system_changes,
        problem_group.assumptions,
        problem_group.nvlink_size,
        problem_group.global_batch_size,
        problem_group.num_gpus,
        problem_group.step_tokens,
        problem_price.usd_per_gpu_hour,
        best_of_problem.best.step_seconds as best_step_seconds,
        problem_group.step_tokens / best_step_seconds as tokens_per_second,
        problem_group.num_gpus * best_step_seconds / problem_group.step_tokens
            as gpu_seconds_per_token,
        gpu_seconds_per_token / 3600 * problem_price.usd_per_gpu_hour as usd_per_token
    from best_of_problem
    inner join problem_group on best_of_problem.problem_id = problem_group.problem_id
    left join problem_price on best_of_problem.problem_id = problem_price.problem_id
),

half as (
    select
        scaling_id,
        estimator,
        estimator_version,
        variant,
        searched,
        2 * num_gpus as num_gpus,
        max(tokens_per_second) as tokens_per_second
    from point
    group by scaling_id, estimator, estimator_version, variant, searched, num_gpus
),

placed as (
    select
        point.*,
        min(struct_pack(num_gpus := point.num_gpus, step_seconds := point.best_step_seconds))
        filter (where point.best_step_seconds is not null) over (
            partition by
                point.scaling_id,
                point.estimator,
                point.estimator_version,
                point.variant,
                point.searched
        ) as base,
        point.tokens_per_second - half.tokens_per_second as added_tokens_per_second
    from point
    left join half using (scaling_id, estimator, estimator_version, variant, searched, num_gpus)
)

select
    problem_id,
    scaling_id,
    estimator,
    estimator_version,
    variant,
    is_whole_space,
    searched,

    model,
    model_shape,
    accelerator,
    system_changes,
    assumptions,
    nvlink_size,
    global_batch_size,
    num_gpus,

    num_layouts,
    num_fitting_layouts,
    best_layout,
    best_step_seconds,
    best['memory_bytes'] as best_memory_bytes,
    tokens_per_second,

    base['num_gpus'] as base_num_gpus,
    base['step_seconds'] / best_step_seconds as speedup,
    speedup * base['num_gpus'] / num_gpus as scaling_efficiency,

    gpu_seconds_per_token,
    usd_per_gpu_hour,
    usd_per_token,
    case when added_tokens_per_second > 0 then num_gpus / 2 / added_tokens_per_second end
        as marginal_gpu_seconds_per_token,
    marginal_gpu_seconds_per_token / 3600 * usd_per_gpu_hour as marginal_usd_per_token
from placed
