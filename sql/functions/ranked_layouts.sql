-- The fastest layouts of each problem that fit in memory, ranked by time, up to last_rank.
-- Grain: one row per configuration that is not known to exceed the memory
--
-- The rows of configuration_rank where rank_by_time <= last_rank, with the columns of
-- configuration_flops, the throughput and mfu. Beyond twenty the view has two conditions on the
-- rank, and DuckDB sorts all layouts. With one it keeps the first of each problem, in less memory.
-- A further condition on the rank makes it sort again.
-- Example: select num_gpus, rank_by_time, step_seconds from ranked_layouts(30)
-- order by num_gpus, rank_by_time limit 5
create or replace macro ranked_layouts(last_rank) as table
    with leading_rank as (
        select
            *,
            row_number() over (
                partition by
                    problem_id,
                    estimator,
                    estimator_version,
                    variant,
                    model,
                    accelerator,
                    nvlink_size,
                    num_gpus,
                    global_batch_size
                order by row(layout_order(leading_configuration_flops), strategy, cell_id)
            ) as rank_by_time
        from leading_configuration_flops
        where fits_memory is distinct from false
    ),

    full_rank as (
        select
            *,
            row_number() over (
                partition by
                    problem_id,
                    estimator,
                    estimator_version,
                    variant,
                    model,
                    accelerator,
                    nvlink_size,
                    num_gpus,
                    global_batch_size
                order by row(layout_order(configuration_flops), strategy, cell_id)
            ) as rank_by_time
        from configuration_flops
        where fits_memory is distinct from false
    ),

    ranked as (
        -- one of both: DuckDB does not read the other
        select *
        from leading_rank
        where
            last_rank <= 20
            and rank_by_time <= cast(
                argument_within(
                    'last_rank', last_rank, 1, 1e6, 'must be from 1 to 1000000'
                ) as bigint
            )
        union all
        select *
        from full_rank
        where
            last_rank > 20
            and rank_by_time <= cast(
                argument_within(
                    'last_rank', last_rank, 1, 1e6, 'must be from 1 to 1000000'
                ) as bigint
            )
    )

    select
        *,
        step_tokens / step_seconds as tokens_per_second,
        mfu(
            model_flops,
            step_seconds,
            num_gpus,
            coalesce(peak_flops_per_second, matrix_flops_per_second)
        ) as mfu
    from ranked;
