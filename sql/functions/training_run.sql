-- A whole run of a model over a number of tokens and GPUs: its time, dollars and energy.
-- Grain: one row per problem, estimator, estimator_version and variant that can be run
-- Key: problem_id, estimator, estimator_version, variant
--
-- Shortest first: training_run('gpt3_1T', 20e12, 4096). NULL GPUs: every number. The model may have
-- any of its names; there is no row where no run of it is stored. Each problem has its best run,
-- as in training_run_for, at the price of problem_price, and at the power of its own steps or else
-- that of problem_price; NULL where none is known. View run_per_trillion_tokens has the
-- runs of every model for 1e12 tokens.
-- Example: select estimator, accelerator, num_gpus, days(training_seconds) as days, cost_usd from
-- training_run('gpt3_1T', 20e12, 4096) limit 5
create or replace macro training_run(asked_model, asked_tokens, asked_num_gpus) as table
    with argument as materialized (
        select
            known_name as model,
            -- an aggregate: from a constant DuckDB would learn that nothing has this number of
            -- GPUs, and would not look at the name
            any_value(
                argument_within('asked_num_gpus', asked_num_gpus, 1, 1e9, 'must be at least 1')
            ) as num_gpus
        from name_asked('asked_model', asked_model, ['model'])
        group by known_name
    ),

    run as (
        select found.*
        from training_run_for(asked_tokens) as found
        inner join argument
            on
                found.model = argument.model
                and (argument.num_gpus is null or found.num_gpus = argument.num_gpus)
        where run_note is null
        qualify
            row_number() over (
                partition by problem_id, estimator, estimator_version, variant
                order by fit_risk, training_seconds, cell_id
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
        problem_price.num_quotes,
        run.gpu_hours * problem_price.usd_per_gpu_hour as cost_usd,
        run.gpu_hours
        * coalesce(run.slot_watts, problem_price.watts_per_gpu)
        / 1000
        * facility_pue.pue as energy_kwh,
        run.is_lower_bound,
        run.problem_id,
        run.cell_id
    from run
    inner join problem on run.problem_id = problem.problem_id
    left join problem_price on run.problem_id = problem_price.problem_id
    left join facility_pue on facility_pue.facility = 'Hyperscaler (Epoch)'
    order by run.training_seconds;
