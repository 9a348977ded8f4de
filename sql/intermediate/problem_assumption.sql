-- Assumptions of a problem that differ from the defaults, with their values.
-- Grain: one row per problem
-- Key: problem_id
--
-- They are the program, the profile of constants, the number format, a simulator's arithmetic and
-- constants that differ from the tables. NULL where all are defaults. An accelerator's
-- constants are its defaults, and a profile's constants are covered by its name, so that problems
-- on several systems assume the same. problem_system has the rates and sizes that differ from the
-- accelerator's. The counts are of all constants and rates that differ, a profile's included.
select
    problem_id,
    assumptions,
    num_changed_constants,
    num_changed_step_constants
from stored_problem
