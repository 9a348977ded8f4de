-- Configurations that fit in memory, ranked by time within their problem and strategy.
-- Grain: one row per configuration that is not known to exceed the memory
-- Key: cell_id, {layout}
--
-- configuration_rank has the ranks over all strategies. Two ranks in one view would make DuckDB
-- sort all rows with all of their columns.
--
-- The first twenty are among the leading rows of their cells. With a condition on the rank, DuckDB
-- reads only one of the two parts.
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
                global_batch_size,
                strategy
            order by row(layout_order(leading_configuration), cell_id)
        ) as rank_in_strategy
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
                global_batch_size,
                strategy
            order by row(layout_order(configuration), cell_id)
        ) as rank_in_strategy
    from configuration
    where fits_memory is distinct from false
)

select *
from leading_rank
where rank_in_strategy <= 20
union all
select *
from full_rank
where rank_in_strategy > 20
