-- The best layouts of each problem that fit in memory, ranked as in leading_row, up to last_rank.
-- Grain: one row per configuration that is not known to exceed the memory
-- Key: cell_id, {layout}
--
-- configuration_rank has the first twenty, too. The rows have the columns of
-- configuration_flops, the throughput and mfu. of_problem is the id of one problem; NULL means all
-- problems. A condition problem_id = ... gives the same rows, but for more than twenty ranks it
-- reads the times of all layouts.
--
-- For more than twenty ranks, the macro finds the times of the best of each problem from few
-- columns, then reads and ranks only the layouts with these times. DuckDB filters the scan of the
-- layouts by the times only if the join has no other equality, so the macro compares the other
-- columns in a list. The result takes the columns of the problem from the times, so that
-- conditions on them filter the times as well.
-- Example: select num_gpus, rank_by_time, step_seconds from ranked_layouts(30)
-- order by num_gpus, rank_by_time limit 5
create or replace macro ranked_layouts(last_rank, of_problem := null) as table
    with shortest as (
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
            unnest(
                list_distinct(
                    list_transform(
                        min(
                            struct_pack(
                                fit_risk := fit_risk(configuration_source),
                                step_seconds := step_seconds
                            ),
                            cast(
                                argument_within(
                                    'last_rank', last_rank, 1, 1e6, 'must be from 1 to 1000000'
                                ) as bigint
                            )
                        ),
                        lambda best: best['step_seconds']
                    )
                )
            ) as step_seconds
        from configuration_source
        where
            fits_memory is distinct from false
            -- without of_problem the range holds all ids
            and problem_id >= coalesce(cast(of_problem as bigint), 0)
            and problem_id <= coalesce(cast(of_problem as bigint), 9223372036854775807)
        group by
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
    ),

    -- last_rank decides between the two parts: DuckDB does not read the other
    ranked as (
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
        where last_rank > 20
        union all by name
        select * exclude (rank_in_strategy, rank_in_cell, is_on_front)
        from leading_row
        where
            last_rank <= 20
            and rank_by_time is not null
            and problem_id >= coalesce(cast(of_problem as bigint), 0)
            and problem_id <= coalesce(cast(of_problem as bigint), 9223372036854775807)
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
    from ranked
    where
        rank_by_time <= cast(
            argument_within('last_rank', last_rank, 1, 1e6, 'must be from 1 to 1000000') as bigint
        );
