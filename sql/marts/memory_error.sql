-- How far the memory of estimates is from that of a team's own runs, by the published constants.
-- Grain: one row per estimator, variant and name of the runs
-- Key: estimator, variant, reference
--
-- Means are of sorted values, so that their last digits do not depend on the threads of a query.
select
    estimator,
    variant,
    reference,
    count(*) as num_rows,
    avg(abs(memory_relative_error) order by abs(memory_relative_error))
        as memory_mean_absolute_relative_error,
    max(abs(memory_relative_error)) as memory_max_absolute_relative_error,
    avg(memory_relative_error order by memory_relative_error) as memory_bias
from measurement_comparison
where coalesce(profile, 'default') = 'default' and memory_relative_error is not null
group by estimator, variant, reference
