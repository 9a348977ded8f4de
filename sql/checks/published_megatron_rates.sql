-- Published runs whose total rate or share of the peak is not that of one GPU, beyond rounding.
--
-- Of the A100 table the rate of a GPU is printed in whole TFLOP/s, of the H100 table in tenths; the
-- totals in tenths of PFLOP/s, the shares in whole percent: half a unit of each may be lost. The
-- shares of the H100 table are of 989 TFLOP/s, the peak without its fraction.
with published as (
    select
        printed_step.reference,
        printed_step.printed_model as model,
        printed_step.num_gpus,
        printed_step.achieved_flops_per_second_per_gpu,
        printed_step.half_last_digit as lost_flops_per_second,
        printed_step.aggregate_flops_per_second,
        coalesce(printed_step.achieved_fraction_of_peak, printed_step.mfu)
            as achieved_fraction_of_peak,
        coalesce(
            printed_step.peak_flops_per_second,
            floor(accelerator.bf16_flops_per_second / 1e12) * 1e12
        ) as peak_flops_per_second
    from printed_step
    left join accelerator on printed_step.accelerator = accelerator.accelerator
    where
        printed_step.reference in (
            'published_megatron_scaling', 'published_megatron_h100_scaling'
        )
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
