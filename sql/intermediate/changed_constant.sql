-- Constants and rates of a problem that differ from the reference tables.
-- Grain: one row per problem and constant
-- Key: problem_id, constant_name
--
-- Table step_constant holds constants for an accelerator and a framework, for a framework, for an
-- accelerator, or for all: a problem should have the first of these. Table recipe_constant has
-- those that a recipe of number formats sets, recipe_default those that the recipe of a model sets.
-- Dense models capture no graphs unless such a recipe does. An accelerator's rates and sizes are
-- found by any of its names. Problems without a framework have no constants.
with change as (
    select
        problem_id,
        unnest(changed_constants) as both_values
    from stored_problem
)

select
    problem_id,
    struct_extract(both_values, 'constant_name') as constant_name,
    struct_extract(both_values, 'expected_value') as expected_value,
    struct_extract(both_values, 'given_value') as given_value
from change
