-- Layouts that lead their cell, with their ranks in their problem, its strategy and the cell.
-- Grain: one row per configuration that leads
-- Key: cell_id, {layout}
-- Kept: cell
--
-- Ranks follow layout_order: by time those that are at least 90 % likely to fit in memory, then the
-- others, the likeliest first. Of each cell lead the first twenty, the twenty fastest that fit by
-- the estimate, those that no other beats in both time and memory, and, where memory is modelled,
-- those that take up to 5 % longer than the first and fit as surely. A rank beyond twenty is NULL:
-- leading rows do not have all layouts before it. ranked_layouts has these ranks. Memory excludes
-- only layouts that are known not to fit; a layout without a time has no rank.
--
-- strategy and cell_id break ties of several cells. A window carries all columns of its input, so
-- few columns are ranked, and joined with the others later.
with numbered as materialized (
    select
        *,
        row_number() over () as row_id
    from configuration_flops
    where fits_memory is distinct from false and step_seconds is not null
),

ranked as (
    select
        row_id,
        problem_id,
        estimator,
        estimator_version,
        variant,
        strategy,
        cell_id,
        step_seconds,
        memory_bytes,
        coalesce(memory_bytes, 0) as compared_bytes,
        fit_risk(numbered) as risk,
        row_number() over (
            partition by problem_id, estimator, estimator_version, variant
            order by row(layout_order(numbered), strategy, cell_id)
        ) as place,
        row_number() over by_time as place_by_time,
        min(coalesce(memory_bytes, 0)) over (
            by_time rows between unbounded preceding and 1 preceding
        ) as undercut_bytes
    from numbered
    window by_time as (
        partition by problem_id, estimator, estimator_version, variant
        order by row(time_order(numbered), strategy, cell_id)
    )
),

placed as (
    select
        row_id,
        step_seconds,
        memory_bytes,
        compared_bytes,
        risk,
        place,
        undercut_bytes,
        row_number() over (
            partition by problem_id, estimator, estimator_version, variant, strategy
            order by place
        ) as place_in_strategy,
        row_number() over in_cell as place_in_cell,
        first_value(step_seconds) over in_cell as best_seconds,
        first_value(risk) over in_cell as least_risk,
        row_number() over in_cell_by_time as time_place_in_cell,
        min(compared_bytes) over (
            in_cell_by_time rows between unbounded preceding and 1 preceding
        ) as undercut_in_cell
    from ranked
    window
        in_cell as (partition by cell_id order by place),
        in_cell_by_time as (partition by cell_id order by place_by_time)
)

select
    numbered.* exclude (numbered.row_id),
    case when placed.place <= 20 then placed.place end as rank_by_time,
    case when placed.place_in_strategy <= 20 then placed.place_in_strategy end as rank_in_strategy,
    case when placed.place_in_cell <= 20 then placed.place_in_cell end as rank_in_cell,
    -- of layouts of the same time and memory one
    placed.undercut_bytes is null or placed.compared_bytes < placed.undercut_bytes as is_on_front
from numbered
inner join placed on numbered.row_id = placed.row_id
where
    placed.place_in_cell <= 20
    or placed.time_place_in_cell <= 20
    or (
        placed.memory_bytes is not null
        and placed.risk <= placed.least_risk
        and placed.step_seconds <= placed.best_seconds * 1.05
    )
    or placed.undercut_in_cell is null
    or placed.compared_bytes < placed.undercut_in_cell
