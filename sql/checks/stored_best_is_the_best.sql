-- Rows of table stored_best that contradict the layouts of their cell, and cells without a row.
--
-- Every column is compared: a row of another layout, of no layout, or a second row is a fault like
-- a wrong time. So is a row from before the last evaluation of the cell, which no view reads.
with in_force as (
    select stored_best.*
    from stored_best
    semi join current_cell
        on
            stored_best.cell_id = current_cell.cell_id
            and stored_best.sibling_record = current_cell.sibling_record
),

layouts as (
    select
        cell_id,
        count(*) as num_layouts,
        count(*) filter (where fits_memory is distinct from false) as num_fitting_layouts,
        min(step_seconds) filter (where fits_memory is distinct from false) as step_seconds
    from configuration_source
    group by cell_id
),

-- of the rows of a layout, those that no layout of the cell accounts for
astray as (
    select
        cell_id,
        evaluated_layout(in_force) as best
    from in_force
    where num_fitting_layouts > 0
    except all
    select
        configuration_source.cell_id,
        evaluated_layout(configuration_source) as best
    from configuration_source
    semi join in_force
        on
            configuration_source.cell_id = in_force.cell_id
            and configuration_source.step_seconds = in_force.step_seconds
    where
        configuration_source.fits_memory is distinct from false
        -- always true: keeps this scan apart from that of `layouts`, which reads few columns
        and abs(configuration_source.cell_id) >= 0
)

select
    in_force.cell_id,
    in_force.num_layouts,
    layouts.num_layouts as num_layouts_found,
    in_force.step_seconds,
    layouts.step_seconds as step_seconds_found,
    astray.cell_id is not null as is_no_layout
from in_force
left join layouts on in_force.cell_id = layouts.cell_id
left join astray on in_force.cell_id = astray.cell_id
where
    in_force.num_layouts <> coalesce(layouts.num_layouts, 0)
    or in_force.num_fitting_layouts <> coalesce(layouts.num_fitting_layouts, 0)
    or in_force.step_seconds is distinct from layouts.step_seconds
    or astray.cell_id is not null
qualify row_number() over (partition by in_force.cell_id order by in_force.step_seconds) = 1
union all
select
    layouts.cell_id,
    null as num_layouts,
    layouts.num_layouts as num_layouts_found,
    null as step_seconds,
    layouts.step_seconds as step_seconds_found,
    false as is_no_layout
from layouts
anti join in_force on layouts.cell_id = in_force.cell_id
union all
-- a cell without layouts that fit, twice
select
    cell_id,
    any_value(num_layouts) as num_layouts,
    null as num_layouts_found,
    null as step_seconds,
    null as step_seconds_found,
    true as is_no_layout
from in_force
where num_fitting_layouts = 0
group by cell_id
having count(*) > 1
