-- Runs that can be priced: budgeted ones, and the best layout of every cell of the others.
-- Grain: one row per run
-- Key: cell_id, global_batch_tokens, best_layout
--
-- Estimators of a step have no tokens: their runs have no time until training_run_for adds the
-- tokens. A system that differs from its accelerator as published has neither its price nor its
-- power: priced_as is NULL. slot_watts is the power that an estimator found; NULL of most. Runs of
-- one run_id differ only in the tokens of their data set. A budgeted run has no seq_len.
with problem_conditions as (
    select
        problem_id,
        struct_pack(*columns(* exclude (problem_id, dataset_tokens))) as conditions
    from problem
),

run as (
    select
        estimator,
        estimator_version,
        variant,
        problem_id,
        cell_id,
        accelerator,
        num_gpus,
        global_batch_tokens,
        -- of the whole run: as published, accumulation makes the run longer and not the step
        training_seconds * goodput / nullif(num_steps, 0) as step_seconds,
        dataset_tokens,
        goodput,
        training_seconds,
        -- as published, memory does not count
        case when has_mend(mends, 'C12') then fits_memory end as fits_memory,
        0 as fit_risk,
        false as is_lower_bound,
        concat_ws(
            ' ',
            'batch ' || printf('%g', global_batch_tokens),
            'mfu ' || printf('%g', mfu),
            'accumulation ' || nullif(gradient_accumulation, 1)
        ) as best_layout,
        hash(activation_recompute, global_batch_tokens, mfu, gradient_accumulation) as choices
    from stg_cluster_compute
    union all by name
    select
        best_of_cell.estimator,
        best_of_cell.estimator_version,
        best_of_cell.variant,
        best_of_cell.problem_id,
        best_of_cell.cell_id,
        problem.accelerator,
        problem.seq_len,
        coalesce(
            problem.num_gpus,
            try_cast(cast(problem.num_clusters as bigint) * problem.gpus_per_cluster as integer)
        ) as num_gpus,
        cast(problem.global_batch_size as double) * problem.seq_len as global_batch_tokens,
        best_of_cell.best.step_seconds,
        problem.dataset_tokens,
        best_of_cell.best.training_seconds,
        case when best_of_cell.best.memory_bytes is not null then true end as fits_memory,
        best_of_cell.best.fit_risk,
        best_of_cell.best.slot_watts,
        is_time_of_flops(
            problem.cluster_flops_per_second,
            problem.achieved_flops_per_second_per_gpu,
            problem.matrix_flops_per_second
        ) as is_lower_bound,
        best_of_cell.best_layout,
        hash(best_of_cell.coverage) as choices
    from best_of_cell
    inner join problem on best_of_cell.problem_id = problem.problem_id
    where best_of_cell.best.step_seconds is not null
),

described as (
    select
        run.*,
        problem_group.model,
        problem_group.model_shape,
        problem_group.is_published_system,
        problem_group.system_changes,
        problem_group.assumptions,
        hash(run.estimator, run.variant, problem_conditions.conditions, run.choices) as run_id,
        case when problem_group.is_published_system then accelerator_spelling.accelerator end
            as priced_as
    from run
    inner join problem_conditions on run.problem_id = problem_conditions.problem_id
    inner join problem_group on run.problem_id = problem_group.problem_id
    left join accelerator_spelling on run.accelerator = accelerator_spelling.spelling
)

select * exclude (choices)
from described
