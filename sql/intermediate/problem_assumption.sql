-- Assumptions of a problem that differ from the defaults, with their values.
-- Grain: one row per problem
-- Key: problem_id
--
-- They are the program, the profile of constants, the number format, a simulator's arithmetic and
-- constants that differ from the tables. NULL where all are defaults. An accelerator's
-- constants are its defaults, and a profile's constants are covered by its name, so that problems
-- on several systems assume the same. problem_system has the rates and sizes that differ from the
-- accelerator's. The counts are of all constants and rates that differ, a profile's included.
with own_of_profile as (
    select distinct
        profile,
        -- the key of a constant is its column, then @ and the accelerator or framework
        split_part(step_constant, '@', 1) as constant_name,
        fitted_constant_value as given_value
    from calibration
),

name_of_step_constant as (
    select distinct constant as constant_name
    from step_constant
),

constant_of_problem as (
    select
        changed_constant.problem_id,
        count(*) as num_changed_constants,
        count(name_of_step_constant.constant_name) as num_changed_step_constants,
        string_agg(
            changed_constant.constant_name
            || ' '
            || regexp_replace(cast(changed_constant.given_value as varchar), '\.0$', ''),
            ', ' order by changed_constant.constant_name
        ) filter (
            where
            own_of_profile.profile is null
            and (
                changed_constant.constant_name = 'num_sms'
                or name_of_step_constant.constant_name is not null
            )
        ) as changes
    from changed_constant
    inner join problem on changed_constant.problem_id = problem.problem_id
    left join name_of_step_constant
        on changed_constant.constant_name = name_of_step_constant.constant_name
    left join own_of_profile
        on
            problem.profile = own_of_profile.profile
            and changed_constant.constant_name = own_of_profile.constant_name
            and changed_constant.given_value = own_of_profile.given_value
    group by changed_constant.problem_id
)

select
    problem.problem_id,
    nullif(
        concat_ws(
            ', ',
            'framework ' || nullif(problem.framework, 'megatron_core'),
            'profile ' || nullif(problem.profile, 'default'),
            'precision ' || nullif(problem.precision, 'bf16'),
            'recompute_modules ' || nullif(
                problem.recompute_modules, coalesce(recipe_default.recompute_modules, 'none')
            ),
            'bytes_per_element ' || nullif(problem.bytes_per_element, 2),
            -- of the simulator of pipelines, whose rates are of 8 bits
            'precision_bits '
            || regexp_replace(cast(nullif(problem.precision_bits, 8) as varchar), '\.0$', ''),
            'source_version ' || nullif(problem.source_version, 'current'),
            'base_utilization ' || nullif(
                problem.base_utilization,
                case problem.source_version
                    when 'current' then 0.6
                    when 'readme' then 1
                    else 0.8
                end
            ),
            'internal_ratio ' || nullif(problem.internal_ratio, 5),
            'reduces_in_network ' || nullif(problem.reduces_in_network, true),
            'sequential_attention_ffn ' || nullif(problem.sequential_attention_ffn, false),
            'forward_only ' || nullif(problem.forward_only, false),
            'network_bytes_per_element ' || nullif(problem.network_bytes_per_element, 2),
            -- a rate that was given, and not the system's own peak
            'achieved_flops_per_second_per_gpu ' || printf(
                '%.17g',
                nullif(
                    problem.achieved_flops_per_second_per_gpu, problem.matrix_flops_per_second
                )
            ),
            constant_of_problem.changes
        ),
        ''
    ) as assumptions,
    coalesce(constant_of_problem.num_changed_constants, 0) as num_changed_constants,
    coalesce(constant_of_problem.num_changed_step_constants, 0) as num_changed_step_constants
from problem
left join constant_of_problem on problem.problem_id = constant_of_problem.problem_id
left join recipe_default on problem.problem_id = recipe_default.problem_id
