-- Leading rows that are no row of their cell: another layout, problem, time or memory.
--
-- Ranks and fronts are read from table leading_row alone.
select
    cell_id,
    problem_id,
    num_gpus,
    step_seconds,
    memory_bytes,
    layout_in_words(leading_row) as layout
from leading_row
except all
select
    configuration_flops.cell_id,
    configuration_flops.problem_id,
    configuration_flops.num_gpus,
    configuration_flops.step_seconds,
    configuration_flops.memory_bytes,
    layout_in_words(configuration_flops) as layout
from configuration_flops
semi join leading_row using (cell_id, step_seconds)
