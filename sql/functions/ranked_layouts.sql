-- The fastest layouts of each problem that fit in memory, ranked by time, up to last_rank.
-- Grain: one row per configuration that is not known to exceed the memory
--
-- The rows of configuration_rank where rank_by_time <= last_rank, with the columns of
-- configuration_flops, the throughput and mfu. of_problem is the id of a problem, NULL of all. A
-- condition problem_id = ... gives the same rows, but beyond twenty it reads the times of all
-- layouts. A further condition on the rank makes DuckDB sort.
--
-- Beyond twenty the shortest times of each problem are found first, in few columns. Only layouts
-- with such a time have all their columns read and are ranked. DuckDB passes the times to the scan
-- of the layouts if nothing else is equal in the join, so the other columns are compared in a list.
-- Conditions on the result reach the times, as the result has its columns of the problem from
-- there.
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
            -- a range has no condition where no problem is asked for
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
        -- without a time: the last of their problem
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
