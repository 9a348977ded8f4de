-- Cells with other leading rows or other numbers of layouts than their rows give.
--
-- Ranks, fronts and near-optimal layouts are read from table leading_row alone. It has the twenty
-- fastest layouts of a cell that fit, the twenty fastest that are likely to, the smallest one and,
-- where memory is modelled, all that take up to 5 % longer than the best and fit as surely. A
-- layout of an earlier sibling leads no other cell: ranks would count it twice.
with leader as (
    select
        cell_id,
        min(step_seconds, 20) as fastest_seconds,
        min(step_seconds, 20) filter (where is_likely_to_fit(leading_row)) as likely_seconds,
        min(memory_bytes) as lowest_memory_bytes,
        min(
            struct_pack(fit_risk := fit_risk(leading_row), step_seconds := step_seconds)
        ) as best
    from leading_row
    group by cell_id
),

leading_near as (
    select
        leading_row.cell_id,
        count(*) as num_near_layouts
    from leading_row
    inner join leader on leading_row.cell_id = leader.cell_id
    where
        leading_row.fits_memory
        and fit_risk(leading_row) <= leader.best.fit_risk
        and leading_row.step_seconds <= leader.best.step_seconds * 1.05
    group by leading_row.cell_id
),

stored as (
    select
        current_cell.cell_id,
        coalesce(current_cell.num_layouts, 0) as num_layouts,
        coalesce(current_cell.num_fitting_layouts, 0) as num_fitting_layouts,
        leader.fastest_seconds,
        leader.likely_seconds,
        leader.lowest_memory_bytes,
        coalesce(leading_near.num_near_layouts, 0) as num_near_layouts
    from current_cell
    left join leader on current_cell.cell_id = leader.cell_id
    left join leading_near on current_cell.cell_id = leading_near.cell_id
),

found as (
    select
        configuration_source.cell_id,
        count(*) as num_layouts,
        count(*) filter (where configuration_source.fits_memory is distinct from false)
            as num_fitting_layouts,
        min(configuration_source.step_seconds, 20)
        filter (where configuration_source.fits_memory is distinct from false)
            as fastest_seconds,
        min(configuration_source.step_seconds, 20)
        filter (where is_likely_to_fit(configuration_source))
            as likely_seconds,
        min(configuration_source.memory_bytes)
        filter (where configuration_source.fits_memory is distinct from false)
            as lowest_memory_bytes,
        count(*) filter (
            where
            configuration_source.fits_memory
            and fit_risk(configuration_source) <= leader.best.fit_risk
            and configuration_source.step_seconds <= leader.best.step_seconds * 1.05
        ) as num_near_layouts
    from configuration_source
    left join leader on configuration_source.cell_id = leader.cell_id
    group by configuration_source.cell_id
)

select
    stored.cell_id,
    stored.num_layouts,
    coalesce(found.num_layouts, 0) as num_layouts_found,
    stored.num_fitting_layouts,
    coalesce(found.num_fitting_layouts, 0) as num_fitting_layouts_found,
    stored.fastest_seconds,
    found.fastest_seconds as fastest_seconds_found,
    stored.likely_seconds,
    found.likely_seconds as likely_seconds_found,
    stored.lowest_memory_bytes,
    found.lowest_memory_bytes as lowest_memory_bytes_found,
    stored.num_near_layouts,
    coalesce(found.num_near_layouts, 0) as num_near_layouts_found
from stored
left join found on stored.cell_id = found.cell_id
where
    stored.num_layouts <> coalesce(found.num_layouts, 0)
    or stored.num_fitting_layouts <> coalesce(found.num_fitting_layouts, 0)
    or stored.fastest_seconds is distinct from found.fastest_seconds
    or stored.likely_seconds is distinct from found.likely_seconds
    or stored.lowest_memory_bytes is distinct from found.lowest_memory_bytes
    or stored.num_near_layouts <> coalesce(found.num_near_layouts, 0)
