-- Published steps and the intervals of their estimates.
-- Grain: one row per published measurement, estimator and variant
-- Key: reference, published_row, estimator, variant
--
-- Rows with a published time and an interval. The place of the published time is 0 at the estimate,
-- -1 at the fast end and 1 at the slow end, in logarithms. The score is the width in logarithms and
-- 20 times the miss outside (Gneiting and Raftery, JASA 102 (2007) 359, for nine in ten): less is
-- better. Rows of one model, accelerator, program and number format share their causes of error:
-- they are one cluster.
select
    reference,
    published_row,
    published_group,
    estimator,
    estimator_version,
    variant,
    concat_ws(', ', model, accelerator, framework, precision) as error_cluster,
    published_step_seconds,
    step_seconds,
    low_step_seconds,
    high_step_seconds,
    is_inside_interval,
    ln(published_step_seconds / step_seconds)
    / case
        when published_step_seconds < step_seconds
            then ln(step_seconds / low_step_seconds)
        else ln(high_step_seconds / step_seconds)
    end as interval_place,
    high_step_seconds / low_step_seconds - 1 as interval_width,
    ln(high_step_seconds / low_step_seconds)
    + 20 * greatest(
        ln(low_step_seconds / published_step_seconds),
        ln(published_step_seconds / high_step_seconds),
        0
    ) as interval_score
from published_comparison
where
    published_step_seconds is not null
    and low_step_seconds is not null
