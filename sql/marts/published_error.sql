-- How far estimates are from published steps, by whose program was measured.
-- Grain: one row per estimator, variant, reference table and group of its rows
-- Key: estimator, variant, reference, published_group
--
-- One group are the steps of programs whose constants the estimator has, the other those that it
-- estimates with the constants of the nearest one. Errors of the rate are positive where the
-- estimate is too fast; errors of the time have their own columns. A team's own runs are no
-- published steps: measurement_comparison has them. Means are of sorted values, so that their last
-- digits do not depend on the threads of a query.
select
    estimator,
    variant,
    reference,
    case when is_own_framework then 'its own programs' else 'other programs, by the nearest one' end
        as published_group,
    count(*) as num_rows,
    avg(absolute_relative_error order by absolute_relative_error) as mean_absolute_relative_error,
    max(absolute_relative_error) as max_absolute_relative_error,
    avg(relative_error order by relative_error) as bias,
    avg(abs(time_relative_error) order by abs(time_relative_error))
        as time_mean_absolute_relative_error,
    max(abs(time_relative_error)) as time_max_absolute_relative_error,
    avg(time_relative_error order by time_relative_error) as time_bias
from megatron_comparison
where reference not in (select measurement.reference from measurement)
group by estimator, variant, reference, is_own_framework
