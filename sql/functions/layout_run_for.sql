-- A run over asked_tokens tokens by every layout that fits in memory: its time and GPU-hours.
-- Grain: one row per configuration
-- Key: cell_id, {layout}
--
-- training_run_for has the fastest layout of each cell; this has all of them, to filter by layout,
-- problem or headroom_bytes. A partial last step takes as long as a full one. The time of the run
-- is that of its steps over assumed_goodput, or over 1. A layout without a step time is left out.
-- Without a model of memory, every layout fits and headroom_bytes is NULL. View configuration has
-- the same layouts with the time and the tokens of a step.
-- Example: select num_gpus, data_parallel, tensor_parallel, gpu_hours from layout_run_for(1e12)
-- where headroom_bytes > 8e9 order by gpu_hours limit 5
create or replace macro layout_run_for(asked_tokens, assumed_goodput := null) as table
    with argument as (
        select
            argument_within('asked_tokens', asked_tokens, 1e-30, 1e30, 'must be a number above 0')
                as tokens,
            coalesce(
                argument_within(
                    'assumed_goodput', assumed_goodput, 1e-30, 1, 'must be above 0 and at most 1'
                ),
                1
            ) as goodput
    ),

    timed as (
        select
            configuration_flops.* exclude (training_seconds),
            ceil(argument.tokens / configuration_flops.step_tokens)
            * configuration_flops.step_seconds
            / argument.goodput as training_seconds
        from configuration_flops
        cross join argument
        where
            configuration_flops.fits_memory is distinct from false
            and configuration_flops.step_seconds is not null
    )

    select
        *,
        step_tokens / step_seconds as tokens_per_second,
        mfu(
            model_flops,
            step_seconds,
            num_gpus,
            coalesce(peak_flops_per_second, matrix_flops_per_second)
        ) as mfu,
        num_gpus * training_seconds / 3600 as gpu_hours,
        hbm_bytes - memory_bytes as headroom_bytes
    from timed;
