-- The fastest layouts of each problem that fit in memory, ranked by time, up to last_rank.
-- Grain: one row per configuration that is not known to exceed the memory
-- Key: cell_id, {layout}
--
-- These are the rows of configuration_rank with rank_by_time <= last_rank. They have the columns of
-- configuration_flops, the throughput and mfu. of_problem is the id of one problem; NULL means all
-- problems. A condition problem_id = ... gives the same rows, but for more than twenty ranks it
-- reads the times of all layouts. A further condition on the rank makes DuckDB sort.
--
-- The twenty fastest are stored. For more ranks, the macro finds the shortest times of each problem
-- from few columns, then reads and ranks only the layouts with these times. DuckDB filters the scan
-- of the layouts by the times only if the join has no other equality, so the macro compares the
-- other columns in a list. The result takes the columns of the problem from the times, so that
-- conditions on them filter the times as well.
-- Example: select num_gpus, rank_by_time, step_seconds from ranked_layouts(30)
-- order by num_gpus, rank_by_time limit 5
create or replace macro ranked_layouts(last_rank, of_problem := null) as table
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
        where
            fits_memory is distinct from false
            -- without of_problem the range holds all ids
            and problem_id >= coalesce(cast(of_problem as bigint), 0)
            and problem_id <= coalesce(cast(of_problem as bigint), 9223372036854775807)
    ),

    timed as (
        select
            problem_id,
            estimator,
            estimator_version,
            variant,
            model,
            accelerator,
            nvlink_size,
            num_gpus,
            global_batch_size,
            step_seconds,
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
                order by step_seconds
            ) as place
        from configuration_source
        where
            fits_memory is distinct from false
            and problem_id >= coalesce(cast(of_problem as bigint), 0)
            and problem_id <= coalesce(cast(of_problem as bigint), 9223372036854775807)
    ),

    shortest as (
        select distinct * exclude (place)
        from timed
        where
            place <= cast(
                argument_within(
                    'last_rank', last_rank, 1, 1e6, 'must be from 1 to 1000000'
                ) as bigint
            )
    ),

    candidate as (
        select
            configuration_flops.* exclude (
                problem_id,
                estimator,
                estimator_version,
                variant,
                model,
                accelerator,
                nvlink_size,
                num_gpus,
                global_batch_size
            ),
            shortest.* exclude (step_seconds)
        from configuration_flops
        inner join shortest
            on
                configuration_flops.step_seconds = shortest.step_seconds
                and list_contains(
                    [
                        row(
                            shortest.problem_id,
                            shortest.estimator,
                            shortest.estimator_version,
                            shortest.variant
                        )
                    ],
                    row(
                        configuration_flops.problem_id,
                        configuration_flops.estimator,
                        configuration_flops.estimator_version,
                        configuration_flops.variant
                    )
                )
        where
            configuration_flops.fits_memory is distinct from false
            and configuration_flops.problem_id >= coalesce(cast(of_problem as bigint), 0)
            and configuration_flops.problem_id
            <= coalesce(cast(of_problem as bigint), 9223372036854775807)
        union all by name
        -- layouts without a time rank last in their problem
        select *
        from configuration_flops
        where
            step_seconds is null
            and fits_memory is distinct from false
            and problem_id >= coalesce(cast(of_problem as bigint), 0)
            and problem_id <= coalesce(cast(of_problem as bigint), 9223372036854775807)
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
                order by row(layout_order(candidate), strategy, cell_id)
            ) as rank_by_time
        from candidate
    ),

    ranked as (
        -- last_rank decides between the two parts: DuckDB does not read the other
        select *
        from leading_rank
        where
            last_rank <= 20
            and rank_by_time <= cast(
                argument_within(
                    'last_rank', last_rank, 1, 1e6, 'must be from 1 to 1000000'
                ) as bigint
            )
        union all by name
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
