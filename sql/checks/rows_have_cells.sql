-- Stored rows whose cell is not recorded, and cells that hold another number of rows than recorded.
select
    coalesce(fact_count.relation, cell.relation) as relation,
    coalesce(fact_count.cell_id, cell.cell_id) as cell_id,
    cell.num_rows as num_rows_recorded,
    coalesce(fact_count.num_rows, 0) as num_rows_stored
from fact_count
full join cell
    on
        fact_count.relation = cell.relation
        and fact_count.cell_id = cell.cell_id
where cell.num_rows is distinct from coalesce(fact_count.num_rows, 0)
