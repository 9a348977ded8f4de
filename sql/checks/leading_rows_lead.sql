-- Cells whose leading rows lack one of the ten fastest layouts that fit, or the smallest of them.
--
-- Ranks and fronts are read from the leading rows alone.
with leading_cell as (
    select
        cell_id,
        min(step_seconds, 10) as fastest_seconds,
        min(memory_bytes) as lowest_memory_bytes
    from leading_configuration_source
    where fits_memory is distinct from false
    group by cell_id
),

found as (
    select
        cell_id,
        min(step_seconds, 10) as fastest_seconds,
        min(memory_bytes) as lowest_memory_bytes
    from configuration_source
    where fits_memory is distinct from false
    group by cell_id
)

select
    found.cell_id,
    leading_cell.fastest_seconds,
    found.fastest_seconds as fastest_seconds_found,
    leading_cell.lowest_memory_bytes,
    found.lowest_memory_bytes as lowest_memory_bytes_found
from found
left join leading_cell on found.cell_id = leading_cell.cell_id
where
    leading_cell.fastest_seconds is distinct from found.fastest_seconds
    or leading_cell.lowest_memory_bytes is distinct from found.lowest_memory_bytes
