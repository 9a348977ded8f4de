-- What table stored_best has of a cell as it is now, is what its layouts say.
with layouts as (
    select
        cell_id,
        count(*) as num_layouts,
        count(*) filter (where fits_memory is distinct from false) as num_fitting_layouts,
        min(step_seconds) filter (where fits_memory is distinct from false) as step_seconds
    from configuration_source
    group by cell_id
)

select
    stored_best.cell_id,
    stored_best.num_layouts,
    layouts.num_layouts as num_layouts_found,
    stored_best.step_seconds,
    layouts.step_seconds as step_seconds_found
from stored_best
inner join cell_state
    on
        stored_best.cell_id = cell_state.cell_id
        and stored_best.sibling_record = cell_state.sibling_record
left join layouts on stored_best.cell_id = layouts.cell_id
where
    stored_best.num_layouts <> coalesce(layouts.num_layouts, 0)
    or stored_best.num_fitting_layouts <> coalesce(layouts.num_fitting_layouts, 0)
    or stored_best.step_seconds is distinct from layouts.step_seconds
