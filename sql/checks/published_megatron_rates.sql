-- Published runs whose total rate or share of the peak is not that of one GPU, beyond rounding.
--
-- Printed are the rate of a GPU in whole TFLOP/s, the total in tenths of PFLOP/s, and the share
-- in whole percent: half a unit of each may be lost.
select
    model,
    num_gpus,
    achieved_flops_per_second_per_gpu,
    aggregate_flops_per_second,
    achieved_flops_per_second_per_gpu * num_gpus as expected_aggregate_flops_per_second,
    achieved_fraction_of_peak,
    achieved_flops_per_second_per_gpu / peak_flops_per_second as expected_fraction_of_peak
from published_megatron_scaling
where
    abs(aggregate_flops_per_second - achieved_flops_per_second_per_gpu * num_gpus)
    > 0.5e12 * num_gpus + 0.05e15
    or abs(achieved_fraction_of_peak - achieved_flops_per_second_per_gpu / peak_flops_per_second)
    > 0.005 + 0.5e12 / peak_flops_per_second
