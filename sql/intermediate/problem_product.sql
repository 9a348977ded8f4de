-- The product whose constants and recipes a problem of a program should have.
-- Grain: one row per problem with a framework
-- Key: problem_id
--
-- An accelerator is found by any of its names. One that no table has may be based on a product, but
-- its problems do not name it. Of the products with as many multiprocessors, it is the one from
-- whose constants the problem's differ least. NULL where the constants of all accelerators differ
-- no more.
with asked as (
    select
        problem.*,
        accelerator_spelling.accelerator as product
    from problem
    left join accelerator_spelling on problem.accelerator = accelerator_spelling.spelling
    where problem.framework is not null
),

unknown as (
    select
        problem_id,
        framework,
        num_sms,
        to_json(asked) as given
    from asked
    where
        product is null
        and accelerator is not null
),

constant_name as (
    select distinct constant as constant_name
    from step_constant
),

given as (
    select
        unknown.problem_id,
        unknown.framework,
        unknown.num_sms,
        constant_name.constant_name,
        try_cast((unknown.given -> constant_name.constant_name) as double) as given_value
    from unknown
    cross join constant_name
),

candidate as (
    select
        unknown.framework,
        unknown.num_sms,
        accelerator.accelerator as product
    from unknown
    inner join accelerator on unknown.num_sms = accelerator.num_sms
    union
    select
        framework,
        num_sms,
        null as product
    from unknown
),

wanted as (
    select
        candidate.framework,
        candidate.num_sms,
        candidate.product,
        step_constant.constant as constant_name,
        most_specific(
            step_constant.constant_value, step_constant.framework, step_constant.accelerator
        ) as expected_value
    from candidate
    inner join step_constant
        on
            coalesce(step_constant.framework, candidate.framework) = candidate.framework
            and coalesce(step_constant.accelerator, candidate.product, '')
            = coalesce(candidate.product, '')
    group by candidate.framework, candidate.num_sms, candidate.product, step_constant.constant
),

distance as (
    select
        given.problem_id,
        wanted.product,
        count(*) filter (
            where wanted.expected_value is distinct from given.given_value
        ) as num_differences
    from given
    inner join wanted
        on
            given.framework = wanted.framework
            and given.num_sms is not distinct from wanted.num_sms
            and given.constant_name = wanted.constant_name
    group by given.problem_id, wanted.product
),

nearest as (
    select
        problem_id,
        min_by(
            struct_pack(product := product),
            row(num_differences, product is not null, coalesce(product, ''))
        ).product as product
    from distance
    group by problem_id
)

select
    asked.problem_id,
    coalesce(asked.product, nearest.product) as product
from asked
left join nearest on asked.problem_id = nearest.problem_id
