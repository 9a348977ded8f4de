-- Layouts that lead their cell, with their ranks in their problem, its strategy and the cell.
-- Grain: one row per configuration that leads
-- Key: cell_id, {layout}
-- Kept: cell
--
-- Of each cell lead the twenty fastest that fit in memory, those that take up to 5 % longer than
-- the fastest where memory is modelled, and those that no other beats in both time and memory. A
-- rank beyond twenty is NULL: leading rows do not have all layouts before it. ranked_layouts has
-- these ranks. Memory excludes only layouts that are known not to fit; a layout without a time has
-- no rank.
--
-- layout_order breaks ties within a cell, strategy and cell_id those of several cells. The key is
-- one struct, so that DuckDB sorts once.
with ranked as (
    select
        *,
        coalesce(memory_bytes, 0) as compared_bytes,
        row_number() over in_problem as place,
        min(coalesce(memory_bytes, 0)) over (
            in_problem rows between unbounded preceding and 1 preceding
        ) as undercut_bytes
    from configuration_flops
    where fits_memory is distinct from false and step_seconds is not null
    window in_problem as (
        partition by problem_id, estimator, estimator_version, variant
        order by row(layout_order(configuration_flops), strategy, cell_id)
    )
),

placed as (
    select
        *,
        row_number() over (
            partition by problem_id, estimator, estimator_version, variant, strategy
            order by place
        ) as place_in_strategy,
        row_number() over in_cell as place_in_cell,
        first_value(step_seconds) over in_cell as fastest_seconds,
        min(compared_bytes) over (
            in_cell rows between unbounded preceding and 1 preceding
        ) as undercut_in_cell
    from ranked
    window in_cell as (partition by cell_id order by place)
)

select
    * exclude (
        compared_bytes,
        place,
        undercut_bytes,
        place_in_strategy,
        place_in_cell,
        fastest_seconds,
        undercut_in_cell
    ),
    case when place <= 20 then place end as rank_by_time,
    case when place_in_strategy <= 20 then place_in_strategy end as rank_in_strategy,
    case when place_in_cell <= 20 then place_in_cell end as rank_in_cell,
    -- of layouts of the same time and memory one
    undercut_bytes is null or compared_bytes < undercut_bytes as is_on_front
from placed
where
    place_in_cell <= 20
    or (memory_bytes is not null and step_seconds <= fastest_seconds * 1.05)
    or undercut_in_cell is null
    or compared_bytes < undercut_in_cell
