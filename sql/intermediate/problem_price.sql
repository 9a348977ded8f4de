-- Price of an hour of a GPU of each problem, and its power, on the usual basis.
-- Grain: one row per problem whose system is an accelerator as published
-- Key: problem_id
select
    problem_group.problem_id,
    accelerator_price.priced_as,
    accelerator_price.basis,
    accelerator_price.year,
    accelerator_price.usd_per_gpu_hour,
    cast(accelerator_price.num_quotes as bigint) as num_quotes,
    accelerator_price.watts_per_gpu,
    accelerator_price.pue
from problem_group
inner join accelerator_price on problem_group.accelerator = accelerator_price.accelerator
where problem_group.is_published_system
