-- Configurations that fit in memory, as far as their estimator knows, ranked by time in a problem.
-- Grain: one row per configuration that is not known to exceed the memory
--
-- What stands beside problem_id in the partition depends on the problem: it changes no rank, but
-- lets a filter on it reach the tables below the ranking. Layouts that take as long are told apart
-- as in best_of_cell; as one struct, since DuckDB 2 keeps the first of each group instead of
-- sorting all rows where there is one key and one rank.
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
        order by layout_order(configuration)
    ) as rank_by_time
from configuration
where fits_memory is distinct from false
