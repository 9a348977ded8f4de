-- State that the layouts of a cell in force depend on: its record, and its earlier siblings.
-- Grain: one row per cell
--
-- A cell that is evaluated again gets another time. A layout of an earlier sibling is not shown
-- again.
select
    cell_id,
    string_agg(cell_id || ' ' || epoch_us(evaluated_at), ', ') over (
        partition by first_sibling
        order by sibling
        rows between unbounded preceding and current row
    ) as sibling_record
from current_cell
