-- Runs that can be priced: budgeted ones, and the best layout of every cell of the others.
-- Grain: one row per run
--
-- Estimators of a step know no tokens: their runs have no time until training_run_for is told how
-- many. A model without a name is called by its layers and width, its parameters or its FLOPs.
with run as (
    select
        estimator,
        estimator_version,
        variant,
        problem_id,
        cell_id,
        coalesce(model, printf('%gB parameters', parameters / 1e9)) as model,
        accelerator,
        num_gpus,
        global_batch_tokens,
        -- of the whole run: as published, accumulation makes the run longer and not the step
        training_seconds * goodput / nullif(num_steps, 0) as step_seconds,
        dataset_tokens,
        goodput,
        training_seconds,
        concat_ws(
            ' ',
            'batch ' || printf('%g', global_batch_tokens),
            'mfu ' || printf('%g', mfu),
            'accumulation ' || nullif(gradient_accumulation, 1)
        ) as best_layout
    from stg_cluster_compute
    union all by name
    select
        best_of_cell.estimator,
        best_of_cell.estimator_version,
        best_of_cell.variant,
        best_of_cell.problem_id,
        best_of_cell.cell_id,
        coalesce(
            problem.model,
            problem.num_layers || ' x ' || problem.hidden_size,
            printf('%g FLOPs', problem.training_flops)
        ) as model,
        problem.accelerator,
        coalesce(
            problem.num_gpus, cast(problem.num_clusters as double) * problem.gpus_per_cluster
        ) as num_gpus,
        cast(problem.global_batch_size as double) * problem.seq_len as global_batch_tokens,
        best_of_cell.best.step_seconds,
        problem.dataset_tokens,
        best_of_cell.best.training_seconds,
        best_of_cell.best_layout
    from best_of_cell
    inner join problem on best_of_cell.problem_id = problem.problem_id
    where best_of_cell.best.step_seconds is not null
)

select
    run.*,
    accelerator_spelling.accelerator as priced_as
from run
left join accelerator_spelling on run.accelerator = accelerator_spelling.spelling
