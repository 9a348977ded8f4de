-- The best layout of every problem, with the time, price and energy of 1e12 tokens.
-- Grain: one row per problem, estimator, estimator_version and variant
-- Key: problem_id, estimator, estimator_version, variant
--
-- Multiply training_days, gpu_hours, cost_usd and energy_kwh by the trillions of tokens of a run. A
-- part of a step counts as that part. The price and the power come from problem_price; the
-- energy has the overhead of a hyperscaler's site. NULL where no layout fits, or no price or power
-- was published. Dollars compare between prices of the same basis and of several vendors
-- (num_quotes). An estimate that is_lower_bound is faster than any run. known_model and priced_as
-- are keys of tables model and accelerator.
select
    best_of_problem.estimator,
    best_of_problem.estimator_version,
    best_of_problem.variant,
    problem_group.model,
    problem.model as known_model,
    problem_group.model_shape,
    problem_group.seq_len,
    problem_group.accelerator,
    problem_price.priced_as,
    problem_group.system_changes,
    problem_group.assumptions,
    problem_group.nvlink_size,
    problem_group.num_gpus,
    problem_group.global_batch_size,

    best_of_problem.best_layout,
    best_of_problem.best.strategy,
    best_of_problem.best.activation_recompute,
    best_of_problem.best.data_parallel,
    best_of_problem.best.tensor_parallel,
    best_of_problem.best.tensor_parallel_2,
    best_of_problem.best.context_parallel,
    best_of_problem.best.expert_parallel,
    best_of_problem.best.pipeline_parallel,
    best_of_problem.best.virtual_pipeline,
    best_of_problem.best.microbatch_size,
    best_of_problem.best.zero_stage,
    best_of_problem.best.step_seconds as best_step_seconds,
    best_of_problem.best.memory_bytes as best_memory_bytes,
    problem_group.step_tokens / best_step_seconds as tokens_per_second,
    best_of_problem.num_layouts,
    best_of_problem.num_fitting_layouts,
    best_of_problem.is_whole_space,
    best_of_problem.searched,
    is_time_of_flops(
        problem.cluster_flops_per_second,
        problem.achieved_flops_per_second_per_gpu,
        problem.matrix_flops_per_second
    ) as is_lower_bound,

    1e12 as dataset_tokens,
    1e12 / tokens_per_second as training_seconds,
    training_seconds / 86400 as training_days,
    problem_group.num_gpus * training_seconds / 3600 as gpu_hours,
    problem_price.basis,
    problem_price.year,
    problem_price.usd_per_gpu_hour,
    problem_price.num_quotes,
    gpu_hours * problem_price.usd_per_gpu_hour as cost_usd,
    coalesce(best_of_problem.best.slot_watts, problem_price.watts_per_gpu) as watts_per_gpu,
    facility_pue.pue,
    gpu_hours
    * coalesce(best_of_problem.best.slot_watts, problem_price.watts_per_gpu)
    / 1000
    * facility_pue.pue as energy_kwh,
    best_of_problem.problem_id,
    best_of_problem.cell_id
from best_of_problem
inner join problem on best_of_problem.problem_id = problem.problem_id
inner join problem_group on best_of_problem.problem_id = problem_group.problem_id
left join problem_price on best_of_problem.problem_id = problem_price.problem_id
left join facility_pue on facility_pue.facility = 'Hyperscaler (Epoch)'
