-- Constants and rates of a problem that differ from the reference tables.
-- Grain: one row per problem and constant
-- Key: problem_id, constant_name
--
-- Table step_constant holds constants for an accelerator and a framework, for a framework, for an
-- accelerator, or for all: a problem should have the first of these. Table recipe_constant has
-- those that a recipe of number formats sets, recipe_default those that the recipe of a model sets.
-- Dense models capture no graphs unless such a recipe does. An accelerator's rates and sizes are
-- found by any of its names. Problems without a framework have no constants.
with asked as (
    select
        problem.problem_id,
        problem.framework,
        problem.number_recipe,
        problem.num_experts,
        coalesce(problem_product.product, problem.accelerator) as accelerator
    from problem
    inner join problem_product on problem.problem_id = problem_product.problem_id
),

-- each pair once: there are few of them, and many problems
place as (
    select distinct
        framework,
        accelerator
    from asked
),

wanted as (
    select
        place.framework,
        place.accelerator,
        step_constant.constant as constant_name,
        most_specific(
            step_constant.constant_value, step_constant.framework, step_constant.accelerator
        ) as expected_value
    from place
    inner join step_constant
        on
            coalesce(step_constant.framework, place.framework) = place.framework
            and coalesce(step_constant.accelerator, place.accelerator, '')
            = coalesce(place.accelerator, '')
    group by place.framework, place.accelerator, step_constant.constant
    union all
    select
        place.framework,
        place.accelerator,
        unnest([
            'num_sms',
            'power_limit_watts',
            'nvlink_size',
            'matrix_flops_per_second',
            'hbm_bytes_per_second',
            'hbm_bytes',
            'nvlink_bytes_per_second',
            'network_bytes_per_second'
        ]) as constant_name,
        unnest([
            cast(accelerator.num_sms as double),
            cast(accelerator.tdp_watts as double),
            cast(accelerator.gpus_per_node as double),
            cast(accelerator.bf16_flops_per_second as double),
            cast(accelerator.hbm_bytes_per_second as double),
            cast(coalesce(accelerator.device_bytes, accelerator.hbm_bytes) as double),
            cast(accelerator.nvlink_bytes_per_second as double),
            cast(accelerator.nic_bytes_per_second as double)
        ]) as expected_value
    from place
    inner join accelerator on place.accelerator = accelerator.accelerator
),

-- every column of a problem that is a number, by its name: whichever constants there are
number_of_problem as (
    select
        problem_id,
        try_cast(columns(* exclude (problem_id)) as double)
    from problem
    where framework is not null
),

given as (
    select
        problem_id,
        constant_name,
        given_value
    from number_of_problem
    unpivot (given_value for constant_name in (columns(* exclude (problem_id))))
),

number_of_recipe as (
    select
        problem_id,
        cast(columns(* exclude (problem_id, expert_default, recompute_modules)) as double)
    from recipe_default
),

of_recipe as (
    select
        problem_id,
        constant_name,
        recipe_value
    from number_of_recipe
    unpivot (recipe_value for constant_name in (columns(* exclude (problem_id))))
),

compared as (
    select
        asked.problem_id,
        wanted.constant_name,
        coalesce(
            of_recipe.recipe_value,
            case
                when wanted.constant_name = 'uses_cuda_graphs' and asked.num_experts <= 1 then 0
            end,
            recipe_constant.constant_value,
            wanted.expected_value
        ) as expected_value,
        given.given_value
    from asked
    inner join wanted
        on
            asked.framework = wanted.framework
            and asked.accelerator is not distinct from wanted.accelerator
    left join given
        on asked.problem_id = given.problem_id and wanted.constant_name = given.constant_name
    left join recipe_constant
        on
            asked.framework = recipe_constant.framework
            and asked.number_recipe = recipe_constant.number_recipe
            and wanted.constant_name = recipe_constant.constant
    left join of_recipe
        on
            asked.problem_id = of_recipe.problem_id
            and wanted.constant_name = of_recipe.constant_name
)

select *
from compared
where expected_value is distinct from given_value
