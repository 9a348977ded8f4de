-- Cells whose leading rows lack a fast layout that fits, a near-optimal one, or the smallest one.
--
-- Ranks, fronts and near-optimal layouts are read from the leading rows alone. Estimators without a
-- model of memory have no near-optimal ones there. A layout of an earlier sibling does not lead a
-- cell: ranks would count it twice.
with leading_cell as (
    select
        cell_id,
        min(step_seconds, 20) as fastest_seconds,
        min(memory_bytes) as lowest_memory_bytes
    from leading_configuration_source
    where fits_memory is distinct from false
    group by cell_id
),

leading_near as (
    select
        leading_configuration_source.cell_id,
        count(*) as num_near_layouts
    from leading_configuration_source
    inner join leading_cell on leading_configuration_source.cell_id = leading_cell.cell_id
    where
        leading_configuration_source.fits_memory
        and leading_configuration_source.step_seconds <= leading_cell.fastest_seconds[1] * 1.05
    group by leading_configuration_source.cell_id
),

found as (
    select
        configuration_source.cell_id,
        min(configuration_source.step_seconds, 20) as fastest_seconds,
        min(configuration_source.memory_bytes) as lowest_memory_bytes,
        count(*) filter (
            where
            configuration_source.fits_memory
            and configuration_source.step_seconds <= leading_cell.fastest_seconds[1] * 1.05
        ) as num_near_layouts
    from configuration_source
    left join leading_cell on configuration_source.cell_id = leading_cell.cell_id
    where configuration_source.fits_memory is distinct from false
    group by configuration_source.cell_id
)

select
    coalesce(found.cell_id, leading_cell.cell_id) as cell_id,
    leading_cell.fastest_seconds,
    found.fastest_seconds as fastest_seconds_found,
    leading_cell.lowest_memory_bytes,
    found.lowest_memory_bytes as lowest_memory_bytes_found,
    coalesce(leading_near.num_near_layouts, 0) as num_near_layouts,
    coalesce(found.num_near_layouts, 0) as num_near_layouts_found
from found
full join leading_cell on found.cell_id = leading_cell.cell_id
left join leading_near on leading_cell.cell_id = leading_near.cell_id
where
    leading_cell.fastest_seconds is distinct from found.fastest_seconds
    or leading_cell.lowest_memory_bytes is distinct from found.lowest_memory_bytes
    or coalesce(leading_near.num_near_layouts, 0) <> coalesce(found.num_near_layouts, 0)
