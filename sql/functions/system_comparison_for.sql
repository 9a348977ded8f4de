-- The same model and batch on the same number of GPUs of several systems, over asked_tokens.
-- Grain: one row per problem, estimator, estimator_version and variant
-- Key: problem_id, estimator, estimator_version, variant
--
-- Problems of one workload_id that were searched as widely are compared by the best layout of each.
-- ratio_to_fastest is 1 for the fastest system. ratio_to_base is above 1 where a system is slower
-- than the base: the fastest system of base_accelerator (any of its names) and base_nvlink_size, or
-- of any where they are NULL. A partial last step takes as long as a full one. NULL where no layout
-- fits; dollars and energy are NULL where no price or power was published. Dollars compare only
-- between prices of the same basis and of several vendors (num_quotes). Ratios are of time alone.
-- View system_comparison is this for 1e12.
-- Example: select model, accelerator, nvlink_size, num_gpus, training_seconds from
-- system_comparison_for(1e12) order by all limit 5
create or replace macro system_comparison_for(
    asked_tokens, base_accelerator := null, base_nvlink_size := null
) as table
    with argument as materialized (
        select
            case
                when cast(asked_tokens as double) between 1e-30 and 1e30
                    then cast(asked_tokens as double)
                else error(
                    '`asked_tokens` ' || coalesce(cast(asked_tokens as varchar), 'NULL')
                    || ': must be a number above 0'
                )
            end as dataset_tokens,
            (
                select known_name
                from name_asked('base_accelerator', base_accelerator, ['accelerator'])
                where base_accelerator is not null
            ) as base_name
    ),

    system_run as (
        select
            best_of_problem.problem_id,
            problem_group.workload_id,
            best_of_problem.estimator,
            best_of_problem.estimator_version,
            best_of_problem.variant,
            best_of_problem.is_whole_space,
            best_of_problem.searched,

            problem_group.model,
            problem_group.model_shape,
            problem_group.global_batch_size,
            problem_group.num_gpus,
            problem_group.accelerator,
            problem_group.system_changes,
            problem_group.assumptions,
            problem_group.nvlink_size,

            best_of_problem.num_layouts,
            best_of_problem.num_fitting_layouts,
            best_of_problem.best_layout,
            best_of_problem.best.step_seconds as best_step_seconds,
            best_of_problem.best.memory_bytes as best_memory_bytes,
            problem_group.step_tokens / best_step_seconds as tokens_per_second,

            argument.base_name,
            argument.dataset_tokens,
            ceil(argument.dataset_tokens / problem_group.step_tokens) * best_step_seconds
                as training_seconds,
            problem_group.num_gpus * training_seconds / 3600 as gpu_hours,
            problem_price.priced_as,
            problem_price.basis,
            problem_price.year,
            problem_price.usd_per_gpu_hour,
            problem_price.num_quotes,
            gpu_hours * problem_price.usd_per_gpu_hour as cost_usd,
            coalesce(best_of_problem.best.slot_watts, problem_price.watts_per_gpu)
                as watts_per_gpu,
            facility_pue.pue,
            gpu_hours
            * coalesce(best_of_problem.best.slot_watts, problem_price.watts_per_gpu)
            / 1000
            * facility_pue.pue as energy_kwh
        from best_of_problem
        inner join problem_group on best_of_problem.problem_id = problem_group.problem_id
        left join problem_price on best_of_problem.problem_id = problem_price.problem_id
        left join facility_pue on facility_pue.facility = 'Hyperscaler (Epoch)'
        cross join argument
    )

    select
        * exclude (base_name),
        best_step_seconds / min(best_step_seconds) over same_work as ratio_to_fastest,
        best_step_seconds / min(
            case
                when
                    (base_name is null or base_name in (accelerator, priced_as))
                    and (base_nvlink_size is null or base_nvlink_size = nvlink_size)
                    then best_step_seconds
            end
        ) over same_work as ratio_to_base
    from system_run
    window same_work as (
        partition by workload_id, estimator, estimator_version, variant, searched
    );
