-- The best layout of each problem of a study, among the cells that the study asks for.
-- Grain: one row per study, problem, estimator, estimator_version and variant
-- Key: study, problem_id, estimator, estimator_version, variant
--
-- Points of one study are a family where they differ only in attributes of the system: they share
-- all other columns of their problem, and the searched choices.
with asked as (
    -- siblings share their rows: a layout is shown with one of them only
    select distinct
        study_cell.study,
        current_cell.first_sibling
    from study_cell
    inner join current_cell on study_cell.cell_id = current_cell.cell_id
),

-- where the whole space is stored, its siblings widen nothing
question as (
    select
        asked.study,
        best_of_cell.problem_id,
        best_of_cell.estimator,
        best_of_cell.estimator_version,
        best_of_cell.variant,
        coalesce(
            list(best_of_cell.coverage) filter (where best_of_cell.coverage.kept = '{}'),
            list_sort(list(best_of_cell.coverage))
        ) as coverage,
        sum(best_of_cell.num_layouts) as num_layouts,
        sum(best_of_cell.num_fitting_layouts) as num_fitting_layouts,
        min(best_of_cell.best) as best
    from asked
    inner join best_of_cell on asked.first_sibling = best_of_cell.first_sibling
    group by
        asked.study,
        asked.first_sibling,
        best_of_cell.problem_id,
        best_of_cell.estimator,
        best_of_cell.estimator_version,
        best_of_cell.variant
),

searched as (
    select
        study,
        problem_id,
        estimator,
        estimator_version,
        variant,
        list_sort(list(coverage)) as coverage,
        cast(sum(num_layouts) as bigint) as num_layouts,
        cast(sum(num_fitting_layouts) as bigint) as num_fitting_layouts,
        min(best) as best
    from question
    group by study, problem_id, estimator, estimator_version, variant
),

-- every other column of the problem, whatever an estimator may add
problem_conditions as (
    select
        problem_id,
        struct_pack(
            *columns(
                * exclude (
                    problem_id,
                    nvlink_size,
                    matrix_flops_per_second,
                    vector_flops_per_second,
                    hbm_bytes_per_second,
                    hbm_bytes,
                    nvlink_bytes_per_second,
                    nvlink_efficiency,
                    nvlink_latency_seconds,
                    network_bytes_per_second,
                    network_efficiency,
                    network_latency_seconds,
                    nics_per_gpu,
                    flops_efficiency,
                    launch_seconds
                )
            )
        ) as conditions
    from problem
)

select
    searched.study,
    searched.problem_id,
    searched.estimator,
    searched.estimator_version,
    searched.variant,
    searched.num_layouts,
    searched.num_fitting_layouts,
    searched.best,
    dense_rank() over (
        order by
            searched.study,
            searched.estimator,
            searched.estimator_version,
            searched.variant,
            searched.coverage,
            problem_conditions.conditions
    ) as family_id
from searched
inner join problem_conditions on searched.problem_id = problem_conditions.problem_id
