-- Published times and memory of training steps, from ten sources, each with its layout.
-- Grain: one row per measurement
-- Key: published_row
--
-- Columns are the inputs that a source names.
select
    * exclude (
        reference, parameters, software, model_parallel, nvlink_size, peak_flops_per_second,
        achieved_flops_per_second_per_gpu, aggregate_flops_per_second, achieved_fraction_of_peak,
        mfu, hfu, half_last_digit, dataset_tokens, training_seconds, training_days_as_printed
    )
from printed_step
where reference = 'published_measurement'
