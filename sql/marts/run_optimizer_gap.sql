-- Gap between a greedy path and the best whole-number degrees, for each number of devices.
-- Grain: one row per run, rule for ties and number of devices that was searched
-- Key: estimator, estimator_version, accelerator, training_flops, tie_rule, num_gpus
--
-- The best is that of all searched numbers up to this one, as fewer devices may be faster. The path
-- is taken at its last step with no more devices. Its degrees are real numbers, so it may win.
with conditions as (
    select
        problem_id,
        accelerator,
        training_flops,
        struct_pack(*columns(* exclude (problem_id, num_gpus, max_num_gpus))) as conditions
    from problem
),

exact as (
    select
        conditions.conditions,
        conditions.accelerator,
        conditions.training_flops,
        stg_run_optimizer.estimator,
        stg_run_optimizer.estimator_version,
        stg_run_optimizer.num_gpus,
        count(*) as num_layouts,
        min_by(
            struct_pack(
                training_seconds := stg_run_optimizer.training_seconds,
                utilization := stg_run_optimizer.utilization,
                num_gpus := stg_run_optimizer.num_gpus,
                pipeline_parallel := stg_run_optimizer.pipeline_parallel,
                data_parallel := stg_run_optimizer.data_parallel,
                tensor_parallel := stg_run_optimizer.tensor_parallel,
                tensor_parallel_external := stg_run_optimizer.tensor_parallel_external,
                num_microbatches := stg_run_optimizer.num_microbatches
            ),
            stg_run_optimizer.training_seconds
        ) as best
    from stg_run_optimizer
    inner join conditions on stg_run_optimizer.problem_id = conditions.problem_id
    group by all
),

best_up_to as (
    select
        * exclude (best),
        -- the first field decides: the least time
        min(best) over (
            partition by conditions, estimator, estimator_version
            order by num_gpus
        ) as best
    from exact
),

path as (
    select
        stg_run_optimizer_path.*,
        conditions.conditions
    from stg_run_optimizer_path
    inner join conditions on stg_run_optimizer_path.problem_id = conditions.problem_id
),

rule as (
    select
        conditions,
        tie_rule,
        max(path_num_gpus) as end_num_gpus
    from path
    group by conditions, tie_rule
)

select
    best_up_to.estimator,
    best_up_to.estimator_version,
    best_up_to.accelerator,
    best_up_to.training_flops,
    rule.tie_rule,
    best_up_to.num_gpus,
    best_up_to.num_layouts,
    best_up_to.best.training_seconds as best_training_seconds,
    best_up_to.best.utilization as best_utilization,
    best_up_to.best.num_gpus as best_num_gpus,
    best_up_to.best.pipeline_parallel as best_pipeline_parallel,
    best_up_to.best.data_parallel as best_data_parallel,
    best_up_to.best.tensor_parallel as best_tensor_parallel,
    best_up_to.best.tensor_parallel_external as best_tensor_parallel_external,
    best_up_to.best.num_microbatches as best_num_microbatches,
    path.training_seconds as path_training_seconds,
    path.utilization as path_utilization,
    path.path_num_gpus,
    path.pipeline_parallel as path_pipeline_parallel,
    path.data_parallel as path_data_parallel,
    path.tensor_parallel as path_tensor_parallel,
    path.tensor_parallel_external as path_tensor_parallel_external,
    path.num_microbatches as path_num_microbatches,
    path.training_seconds / best_up_to.best.training_seconds as training_ratio
from best_up_to
inner join rule on best_up_to.conditions = rule.conditions
asof inner join path
    on
        best_up_to.conditions = path.conditions
        and rule.tie_rule = path.tie_rule
        and best_up_to.num_gpus >= path.path_num_gpus
where best_up_to.num_gpus <= rule.end_num_gpus
