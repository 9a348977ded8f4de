-- Price of an hour of a GPU of each problem, and its power, on the usual basis.
-- Grain: one row per problem whose system is an accelerator as published
-- Key: problem_id
--
-- found_price says which price and power table stored_price has of each name.
select
    problem_group.problem_id,
    stored_price.priced_as,
    stored_price.basis,
    stored_price.year,
    stored_price.usd_per_gpu_hour,
    cast(stored_price.num_quotes as bigint) as num_quotes,
    stored_price.watts_per_gpu,
    stored_price.pue
from problem_group
inner join stored_price on problem_group.accelerator = stored_price.accelerator
where problem_group.is_published_system
