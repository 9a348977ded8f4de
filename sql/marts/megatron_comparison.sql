-- deprecated: use published_comparison. Errors are of the rate: positive where too fast.
-- Grain: one row per published measurement or own run, estimator and variant
-- Key: reference, published_row, estimator, variant
select
    * exclude (
        is_own_run, time_error_beyond_rounding, context_comm_seconds, expert_comm_seconds
    ),
    predicted_flops_per_second_per_gpu / published_flops_per_second_per_gpu - 1 as relative_error,
    abs(relative_error) as absolute_relative_error,
    case when abs(relative_error) <= published_rounding then 0 else relative_error end
        as error_beyond_rounding
from published_comparison
