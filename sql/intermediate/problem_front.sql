-- Layouts of a problem that no other of it beats in both step time and memory per GPU.
-- Grain: one row per configuration of the front; of layouts of the same time and memory one
--
-- At one number of GPUs the slower step is the dearer token, so cost adds nothing. An estimator
-- without a model of memory has only its fastest layout. Times are cut into bands, 16 from one
-- multiple of the best time to the next. A layout that needs more memory than some faster band is
-- out before anything is sorted.
with searched as materialized (
    select
        cell_id,
        problem_id,
        estimator,
        estimator_version,
        variant,
        -- what all layouts of a cell share
        best['strategy'] as strategy,
        best['attention'] as attention,
        best['activation_recompute'] as activation_recompute,
        min(best['step_seconds']) over (
            partition by problem_id, estimator, estimator_version, variant
        ) as best_step_seconds
    from best_of_cell
    where best is not null
),

fitting as (
    select
        configuration_source.cell_id,
        configuration_source.step_seconds,
        configuration_source.memory_bytes,
        configuration_source.data_parallel,
        configuration_source.tensor_parallel,
        configuration_source.tensor_parallel_2,
        configuration_source.tensor_parallel_external,
        configuration_source.context_parallel,
        configuration_source.sequence_parallel,
        configuration_source.expert_parallel,
        configuration_source.expert_tensor_parallel,
        configuration_source.pipeline_parallel,
        configuration_source.virtual_pipeline,
        configuration_source.uses_sequence_parallel,
        configuration_source.zero_stage,
        configuration_source.microbatch_size,
        configuration_source.num_microbatches,
        configuration_source.summa_panels,
        configuration_source.nvlink_data_parallel,
        configuration_source.nvlink_tensor_parallel,
        configuration_source.nvlink_tensor_parallel_2,
        configuration_source.nvlink_context_parallel,
        configuration_source.nvlink_pipeline_parallel,
        searched.problem_id,
        searched.estimator,
        searched.estimator_version,
        searched.variant,
        searched.strategy,
        searched.attention,
        searched.activation_recompute,
        coalesce(configuration_source.model, 'unnamed') as model,
        coalesce(configuration_source.memory_bytes, 0) as compared_bytes,
        cast(
            least(16 * configuration_source.step_seconds / searched.best_step_seconds, 400)
            as smallint
        ) as band
    from configuration_source
    inner join searched on configuration_source.cell_id = searched.cell_id
    where configuration_source.fits_memory is distinct from false
),

-- a scan of its own, of few columns: with a condition of its own DuckDB does not share the other
band_memory as (
    select
        configuration_source.cell_id,
        coalesce(configuration_source.model, 'unnamed') as model,
        cast(
            least(16 * configuration_source.step_seconds / searched.best_step_seconds, 400)
            as smallint
        ) as band,
        min(coalesce(configuration_source.memory_bytes, 0)) as lowest_bytes
    from configuration_source
    inner join searched on configuration_source.cell_id = searched.cell_id
    where
        configuration_source.fits_memory is distinct from false
        and configuration_source.step_seconds > 0
    group by configuration_source.cell_id, configuration_source.model, band
),

faster_band as (
    select
        band_memory.cell_id,
        band_memory.model,
        band_memory.band,
        coalesce(
            min(band_memory.lowest_bytes) over (
                partition by
                    searched.problem_id,
                    searched.estimator,
                    searched.estimator_version,
                    searched.variant,
                    band_memory.model
                order by band_memory.band
                groups between unbounded preceding and 1 preceding
            ),
            'inf'
        ) as undercut_bytes
    from band_memory
    inner join searched on band_memory.cell_id = searched.cell_id
),

candidate as (
    select
        fitting.*,
        min(fitting.compared_bytes) over (
            partition by
                fitting.problem_id,
                fitting.estimator,
                fitting.estimator_version,
                fitting.variant,
                fitting.model
            order by
                fitting.step_seconds,
                fitting.compared_bytes,
                -- of equals always the same one
                fitting.strategy,
                fitting.activation_recompute,
                fitting.tensor_parallel,
                fitting.pipeline_parallel,
                fitting.data_parallel,
                fitting.microbatch_size,
                fitting.nvlink_tensor_parallel,
                fitting.nvlink_pipeline_parallel,
                fitting.nvlink_data_parallel,
                fitting.tensor_parallel_2,
                fitting.tensor_parallel_external,
                fitting.context_parallel,
                fitting.sequence_parallel,
                fitting.expert_parallel,
                fitting.expert_tensor_parallel,
                fitting.virtual_pipeline,
                fitting.uses_sequence_parallel,
                fitting.zero_stage,
                fitting.num_microbatches,
                fitting.summa_panels,
                fitting.nvlink_tensor_parallel_2,
                fitting.nvlink_context_parallel,
                fitting.attention,
                fitting.cell_id
            rows between unbounded preceding and 1 preceding
        ) as undercut_bytes
    from fitting
    inner join faster_band
        on
            fitting.cell_id = faster_band.cell_id
            -- lets a filter on it reach both scans
            and fitting.model = faster_band.model
            and fitting.band = faster_band.band
            and fitting.compared_bytes < faster_band.undercut_bytes
)

select
    cell_id,
    problem_id,
    estimator,
    estimator_version,
    variant,
    model,

    unnest(layout_of(candidate)) as layout,

    step_seconds,
    memory_bytes
from candidate
where undercut_bytes is null or compared_bytes < undercut_bytes
