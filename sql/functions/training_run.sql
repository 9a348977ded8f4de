-- A whole run of a model over so many tokens on so many GPUs: its time, dollars and energy.
-- Grain: one row per problem, estimator, estimator_version and variant that can be run
--
-- Shortest first: training_run('gpt3_1T', 20e12, 4096); every number of GPUs where it is NULL.
-- Of each problem the fastest of its runs, as training_run_for has them; at the price and power of
-- problem_price, NULL where none was published.
create or replace macro training_run(asked_model, run_tokens, asked_num_gpus) as table
    with run as (
        select *
        from training_run_for(run_tokens)
        where
            model = asked_model
            and (asked_num_gpus is null or num_gpus = asked_num_gpus)
            and run_note is null
        qualify
            row_number() over (
                partition by problem_id, estimator, estimator_version, variant
                order by training_seconds, cell_id
            ) = 1
    )

    select
        run.estimator,
        run.estimator_version,
        run.variant,
        run.model,
        run.accelerator,
        run.system_changes,
        run.assumptions,
        problem.nvlink_size,
        run.num_gpus,
        problem.global_batch_size,
        run.dataset_tokens,
        run.best_layout,
        run.step_seconds,
        run.training_seconds,
        run.gpu_hours,
        problem_price.basis,
        problem_price.year,
        problem_price.usd_per_gpu_hour,
        run.gpu_hours * problem_price.usd_per_gpu_hour as cost_usd,
        run.gpu_hours * problem_price.watts_per_gpu / 1000 * problem_price.pue as energy_kwh,
        run.is_lower_bound,
        run.problem_id,
        run.cell_id
    from run
    inner join problem on run.problem_id = problem.problem_id
    left join problem_price on run.problem_id = problem_price.problem_id
    order by run.training_seconds;
