-- What the layouts that a cell in force shows depend on: its record, and siblings before it.
-- Grain: one row per cell
--
-- A cell that is evaluated again has another time; a layout that an earlier sibling has is not
-- shown again.
select
    cell_id,
    string_agg(cell_id || ' ' || epoch_us(evaluated_at), ', ') over (
        partition by first_sibling
        order by sibling
        rows between unbounded preceding and current row
    ) as sibling_record
from current_cell
