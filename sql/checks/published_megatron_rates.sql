-- Published runs whose total rate or share of the peak is not that of one GPU, beyond rounding.
--
-- Of the A100 table the rate of a GPU is printed in whole TFLOP/s, of the H100 table in tenths; the
-- totals in tenths of PFLOP/s, the shares in whole percent: half a unit of each may be lost. The
-- shares of the H100 table are of 989 TFLOP/s, the peak without its fraction.
with published as (
    select
        'published_megatron_scaling' as reference,
        model,
        num_gpus,
        achieved_flops_per_second_per_gpu,
        0.5e12 as lost_flops_per_second,
        aggregate_flops_per_second,
        achieved_fraction_of_peak,
        peak_flops_per_second
    from published_megatron_scaling
    union all by name
    select
        'published_megatron_h100_scaling' as reference,
        h100_run.model,
        h100_run.num_gpus,
        h100_run.achieved_flops_per_second_per_gpu,
        0.05e12 as lost_flops_per_second,
        h100_run.aggregate_flops_per_second,
        h100_run.mfu as achieved_fraction_of_peak,
        floor(accelerator.bf16_flops_per_second / 1e12) * 1e12 as peak_flops_per_second
    from published_megatron_h100_scaling as h100_run
    left join accelerator on h100_run.accelerator = accelerator.accelerator
)

select
    reference,
    model,
    num_gpus,
    achieved_flops_per_second_per_gpu,
    aggregate_flops_per_second,
    achieved_flops_per_second_per_gpu * num_gpus as expected_aggregate_flops_per_second,
    achieved_fraction_of_peak,
    achieved_flops_per_second_per_gpu / peak_flops_per_second as expected_fraction_of_peak
from published
where
    coalesce(
        abs(aggregate_flops_per_second - achieved_flops_per_second_per_gpu * num_gpus)
        > lost_flops_per_second * num_gpus + 0.05e15
        or abs(
            achieved_fraction_of_peak - achieved_flops_per_second_per_gpu / peak_flops_per_second
        )
        > 0.005 + lost_flops_per_second / peak_flops_per_second,
        true
    )
