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
    comparison.reference,
    comparison.published_row,
    comparison.published_group,
    comparison.estimator,
    comparison.estimator_version,
    comparison.variant,
    concat_ws(
        ', ',
        coalesce(comparison.model, problem.num_layers || ' layers of ' || problem.hidden_size),
        comparison.accelerator,
        comparison.framework,
        comparison.precision
    ) as error_cluster,
    comparison.published_step_seconds,
    comparison.step_seconds,
    comparison.low_step_seconds,
    comparison.high_step_seconds,
    comparison.is_inside_interval,
    ln(comparison.published_step_seconds / comparison.step_seconds)
    / case
        when comparison.published_step_seconds < comparison.step_seconds
            then ln(comparison.step_seconds / comparison.low_step_seconds)
        else ln(comparison.high_step_seconds / comparison.step_seconds)
    end as interval_place,
    comparison.high_step_seconds / comparison.low_step_seconds - 1 as interval_width,
    ln(comparison.high_step_seconds / comparison.low_step_seconds)
    + 20 * greatest(
        ln(comparison.low_step_seconds / comparison.published_step_seconds),
        ln(comparison.published_step_seconds / comparison.high_step_seconds),
        0
    ) as interval_score
from megatron_comparison as comparison
inner join problem on comparison.problem_id = problem.problem_id
where
    comparison.published_step_seconds is not null
    and comparison.low_step_seconds is not null
