-- Cells whose problem is not stored.
select
    cell.cell_id,
    cell.problem_id,
    cell.estimator,
    cell.relation
from cell
left join problem on cell.problem_id = problem.problem_id
where problem.problem_id is null
