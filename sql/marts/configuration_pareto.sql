-- Layouts that no other beats in step time, memory per GPU and cost of a token at once.
-- Grain: one row per configuration that is not dominated; of equals one
-- Key: cell_id, {layout}
--
-- Layouts of one scaling_id compete: same estimator, version, variant, model, system and batch,
-- over all evaluated numbers of GPUs and strategies. On one system the cost of a token is
-- proportional to GPU-seconds, so GPU-seconds decide; dollars are NULL where no price is known. An
-- estimator without a model of memory is compared by time and cost. A problem whose model has no
-- name is 'unnamed'.
--
-- Rivals are listed once for each group that competes, so that a filter on a problem leaves few
-- layouts to compare. The layout is a column before it is unnested: DuckDB would otherwise copy the
-- whole macro for each of its columns, a fifth of the time to plan this view.
with front as (
    select
        problem_front.*,
        problem_group.accelerator,
        problem_group.nvlink_size,
        problem_group.global_batch_size,
        problem_group.model_shape,
        problem_group.system_changes,
        problem_group.assumptions,
        problem_group.num_gpus,
        problem_group.step_tokens,
        problem_group.scaling_id,
        problem_front.step_seconds * coalesce(problem_group.num_gpus, 1) as gpu_seconds,
        coalesce(problem_front.memory_bytes, 0) as compared_bytes
    from problem_front
    inner join problem_group on problem_front.problem_id = problem_group.problem_id
),

rivalry as (
    select
        model,
        scaling_id,
        estimator,
        estimator_version,
        variant,
        list(
            struct_pack(
                step_seconds := step_seconds,
                compared_bytes := compared_bytes,
                gpu_seconds := gpu_seconds,
                problem_id := problem_id
            )
        ) as rivals
    from front
    group by model, scaling_id, estimator, estimator_version, variant
),

rivalled as (
    select
        front.*,
        rivalry.rivals
    from front
    inner join rivalry using (model, scaling_id, estimator, estimator_version, variant)
),

shown as (
    select
        *,
        layout_of(rivalled) as layout
    from rivalled
    where
        len(
            list_filter(
                rivals,
                lambda rival:
                rival['step_seconds'] <= step_seconds
                and rival['compared_bytes'] <= compared_bytes
                and rival['gpu_seconds'] <= gpu_seconds
                and (
                    rival['step_seconds'] < step_seconds
                    or rival['compared_bytes'] < compared_bytes
                    or rival['gpu_seconds'] < gpu_seconds
                    -- of equals one
                    or rival['problem_id'] < problem_id
                )
            )
        ) = 0
)

select
    shown.cell_id,
    shown.problem_id,
    shown.scaling_id,
    shown.estimator,
    shown.estimator_version,
    shown.variant,

    shown.model,
    shown.model_shape,
    shown.accelerator,
    shown.system_changes,
    shown.assumptions,
    shown.nvlink_size,
    shown.global_batch_size,
    shown.num_gpus,

    unnest(shown.layout) as layout,

    shown.step_seconds,
    shown.memory_bytes,
    case when shown.num_gpus is not null then shown.gpu_seconds / shown.step_tokens end
        as gpu_seconds_per_token,
    problem_price.usd_per_gpu_hour,
    gpu_seconds_per_token / 3600 * problem_price.usd_per_gpu_hour as usd_per_token
from shown
left join problem_price on shown.problem_id = problem_price.problem_id
