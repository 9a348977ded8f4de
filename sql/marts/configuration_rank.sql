-- Configurations that fit in memory, as far as their estimator knows, ranked by time in a problem.
-- Grain: one row per configuration that is not known to exceed the memory
--
-- What stands beside problem_id in the partitions depends on the problem: it changes no rank, but
-- lets a filter on it reach the tables below the ranking.
select
    *,
    row_number() over (
        partition by
            problem_id,
            estimator,
            estimator_version,
            variant,
            model,
            accelerator,
            nvlink_size,
            num_gpus,
            global_batch_size
        order by step_seconds
    ) as rank_by_time,
    row_number() over (
        partition by
            problem_id,
            estimator,
            estimator_version,
            variant,
            model,
            accelerator,
            nvlink_size,
            num_gpus,
            global_batch_size,
            strategy
        order by step_seconds
    ) as rank_in_strategy
from configuration
where fits_memory is distinct from false
