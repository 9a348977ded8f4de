-- The fastest layout of every cell in force that table stored_best lacks or has out of date.
-- Grain: one row per cell that has layouts
-- Key: cell_id
--
-- A cell is up to date while its record and those of its earlier siblings are the same: a cell does
-- not show layouts of earlier siblings. Commands that store cells fill the table from here, so that
-- usually no cell is left.
with unstored as (
    select
        current_cell.cell_id,
        current_cell.sibling_record
    from current_cell
    anti join stored_best
        on
            current_cell.cell_id = stored_best.cell_id
            and current_cell.sibling_record = stored_best.sibling_record
),

layouts as (
    select
        configuration_source.cell_id,
        count(*) as num_layouts,
        count(*) filter (where configuration_source.fits_memory is distinct from false)
            as num_fitting_layouts,
        min_by(evaluated_layout(configuration_source), layout_order(configuration_source))
        filter (where configuration_source.fits_memory is distinct from false) as best
    from configuration_source
    semi join unstored on configuration_source.cell_id = unstored.cell_id
    -- always true: DuckDB 2 would read all rows once for this and for another use of them in the
    -- same query, although here none is wanted
    where abs(configuration_source.cell_id) >= 0
    group by configuration_source.cell_id
)

select
    layouts.cell_id,
    unstored.sibling_record,
    layouts.num_layouts,
    layouts.num_fitting_layouts,
    unnest(layouts.best) as best
from layouts
inner join unstored on layouts.cell_id = unstored.cell_id
