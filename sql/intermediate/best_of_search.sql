-- The best layout that a whole search found on a system as it is sold.
-- Grain: one row per cell that was searched whole and has a layout that fits
-- Key: cell_id
--
-- Pictures draw these rows over the number of GPUs, those of one set of assumptions: a curve
-- compares like with like. Cells that fix a part of the layout and changed systems are left out.
select
    best_of_cell.cell_id,
    best_of_cell.problem_id,
    best_of_cell.estimator,
    best_of_cell.variant,
    problem_group.model,
    problem_group.global_batch_size,
    problem_group.accelerator,
    problem_group.nvlink_size,
    problem_group.num_gpus,
    best_of_cell.coverage.strategy,
    problem_group.step_tokens,
    problem_group.hbm_bytes,
    coalesce(problem_group.assumptions, '') as assumptions,
    best_of_cell.best_layout,
    best_of_cell.best
from best_of_cell
inner join problem_group on best_of_cell.problem_id = problem_group.problem_id
where
    best_of_cell.best is not null
    and best_of_cell.coverage.kept = '{}'
    and problem_group.num_gpus is not null
    and coalesce(problem_group.system_changes, '') = ''
