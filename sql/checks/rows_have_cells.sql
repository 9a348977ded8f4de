-- Stored rows of no recorded cell or of another problem, and cells with another number of rows.
select
    coalesce(fact_count.relation, cell.relation) as relation,
    coalesce(fact_count.cell_id, cell.cell_id) as cell_id,
    coalesce(fact_count.problem_id, cell.problem_id) as problem_id,
    cell.num_rows as num_rows_recorded,
    coalesce(fact_count.num_rows, 0) as num_rows_stored
from fact_count
full join cell using (relation, cell_id, problem_id)
where cell.num_rows is distinct from coalesce(fact_count.num_rows, 0)
