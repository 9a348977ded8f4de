-- Mean error by program, tensor-parallel degree, pipeline-parallel degree and microbatch.
-- Grain: one row per estimator, variant, accelerator, framework, degree and its value
-- Key: estimator, variant, accelerator, framework, degree, degree_value
--
-- Covers all published steps of the programs whose constants are known; your own runs do not count.
-- A trend along a degree shows that the term that grows with the degree is wrong or missing: no
-- single constant can mend it.
-- Means are of sorted values, so that their last digits do not depend on the threads of a query.
with comparison as (
    select
        estimator,
        variant,
        accelerator,
        framework,
        relative_error,
        time_relative_error,
        unnest(['tensor_parallel', 'pipeline_parallel', 'microbatch_size']) as degree,
        unnest([tensor_parallel, pipeline_parallel, microbatch_size]) as degree_value
    from megatron_comparison
    where
        is_own_framework
        and published_step_seconds is not null
        and reference not in (select measurement.reference from measurement)
)

select
    estimator,
    variant,
    accelerator,
    framework,
    degree,
    degree_value,
    count(*) as num_rows,
    avg(relative_error order by relative_error) as bias,
    avg(abs(relative_error) order by abs(relative_error)) as mean_absolute_relative_error,
    avg(time_relative_error order by time_relative_error) as time_bias
from comparison
where degree_value is not null
group by estimator, variant, accelerator, framework, degree, degree_value
