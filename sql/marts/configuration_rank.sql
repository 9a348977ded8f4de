-- Configurations that fit in memory, ranked by time within their problem.
-- Grain: one row per configuration that is not known to exceed the memory
-- Key: cell_id, {layout}
--
-- Memory excludes only layouts that are known not to fit. The partition names columns that follow
-- from problem_id: they change no rank, but a filter on them reaches the tables below the ranking.
-- layout_order breaks ties within a cell, as in best_of_cell; strategy and cell_id those of several
-- cells, as in best_of_problem. The key is one struct, so that DuckDB finds the first rows without
-- sorting.
--
-- The first twenty are among the leading rows of their cells. With a condition on the rank, DuckDB
-- reads only one of the two parts.
-- ranked_layouts has the ranks up to a larger number, found in less memory.
with leading_rank as (
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
            order by row(layout_order(leading_configuration), strategy, cell_id)
        ) as rank_by_time
    from leading_configuration
    where fits_memory is distinct from false
),

full_rank as (
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
            order by row(layout_order(configuration), strategy, cell_id)
        ) as rank_by_time
    from configuration
    where fits_memory is distinct from false
)

select *
from leading_rank
where rank_by_time <= 20
union all
select *
from full_rank
where rank_by_time > 20
