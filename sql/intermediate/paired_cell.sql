-- Cells of the problems that two estimators were asked.
-- Grain: one row per cell
-- Key: cell_id
--
-- Views read the rows of these cells only, because DuckDB passes a join's cells, but not its
-- problems, to the scan of the rows.
select cell_id
from current_cell
where
    problem_id in (
        select problem_pair.problem_id
        from problem_pair
        union all
        select problem_pair.other_problem_id
        from problem_pair
    )
