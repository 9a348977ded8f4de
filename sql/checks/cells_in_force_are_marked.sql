-- Cells whose stored place among siblings is not the one that follows from all cells.
--
-- Views show the cells that have a place: a wrong one would hide rows, or show them twice.
select
    cell.cell_id,
    cell.is_superseded,
    cell.sibling,
    cell.num_siblings,
    cell.first_sibling,
    cell.sibling_record,
    cell_order.is_superseded as is_superseded_found,
    cell_order.sibling as sibling_found,
    cell_order.num_siblings as num_siblings_found,
    cell_order.first_sibling as first_sibling_found,
    cell_order.sibling_record as sibling_record_found
from cell
inner join cell_order on cell.cell_id = cell_order.cell_id
where
    cell.is_superseded is distinct from cell_order.is_superseded
    or cell.sibling is distinct from cell_order.sibling
    or cell.num_siblings is distinct from cell_order.num_siblings
    or cell.first_sibling is distinct from cell_order.first_sibling
    or cell.sibling_record is distinct from cell_order.sibling_record
