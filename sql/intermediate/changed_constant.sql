-- Constants and rates of a problem that are not those of the reference tables.
-- Grain: one row per problem and constant
--
-- A constant holds for an accelerator and a framework, for a framework, for an accelerator, or for
-- all: the first of these that table step_constant has is the one a problem should have. Of the
-- accelerator its rates and sizes. Problems without a framework have no constants.
with attribute_of_problem as (
    select
        problem.problem_id,
        unnest([
            'num_sms',
            'nvlink_size',
            'matrix_flops_per_second',
            'hbm_bytes_per_second',
            'hbm_bytes',
            'nvlink_bytes_per_second',
            'network_bytes_per_second'
        ]) as constant_name,
        unnest([
            cast(accelerator.num_sms as double),
            cast(accelerator.gpus_per_node as double),
            cast(accelerator.bf16_flops_per_second as double),
            cast(accelerator.hbm_bytes_per_second as double),
            cast(accelerator.hbm_bytes as double),
            cast(accelerator.nvlink_bytes_per_second as double),
            cast(accelerator.nic_bytes_per_second as double)
        ]) as expected_value
    from problem
    inner join accelerator on problem.accelerator = accelerator.accelerator
    where problem.framework is not null
),

wanted as (
    select
        problem.problem_id,
        step_constant.constant as constant_name,
        arg_max(
            step_constant.constant_value,
            case when step_constant.framework is null then 0 else 2 end
            + case when step_constant.accelerator is null then 0 else 1 end
        ) as expected_value
    from problem
    inner join step_constant
        on
            coalesce(step_constant.framework, problem.framework) = problem.framework
            and coalesce(step_constant.accelerator, problem.accelerator) = problem.accelerator
    group by problem.problem_id, step_constant.constant
    union all
    select *
    from attribute_of_problem
),

-- every column of a problem by its name, whichever constants there are
described as (
    select
        problem_id,
        to_json(problem) as description
    from problem
),

given as (
    select
        wanted.*,
        json_extract_string(described.description, '$.' || wanted.constant_name) as given_text
    from wanted
    inner join described on wanted.problem_id = described.problem_id
)

select
    problem_id,
    constant_name,
    expected_value,
    case given_text when 'true' then 1 when 'false' then 0 else cast(given_text as double) end
        as given_value
from given
where given_value is distinct from expected_value
