-- The fastest layout of every cell in force that table stored_best does not have as it is now.
-- Grain: one row per cell that has layouts
--
-- A cell is what it was as long as its record, and those of the siblings before it, whose layouts
-- it does not show again, are the same. Usually no cell is left: then no row is read.
with unstored as (
    select
        cell_state.cell_id,
        cell_state.sibling_record
    from cell_state
    anti join stored_best
        on
            cell_state.cell_id = stored_best.cell_id
            and cell_state.sibling_record = stored_best.sibling_record
),

layouts as (
    select
        configuration_source.cell_id,
        count(*) as num_layouts,
        count(*) filter (where configuration_source.fits_memory is distinct from false)
            as num_fitting_layouts,
        min_by(
            struct_pack(
                step_seconds := configuration_source.step_seconds,
                training_seconds := configuration_source.training_seconds,
                memory_bytes := configuration_source.memory_bytes,
                strategy := configuration_source.strategy,
                attention := configuration_source.attention,
                activation_recompute := configuration_source.activation_recompute,
                data_parallel := configuration_source.data_parallel,
                tensor_parallel := configuration_source.tensor_parallel,
                tensor_parallel_2 := configuration_source.tensor_parallel_2,
                tensor_parallel_external := configuration_source.tensor_parallel_external,
                context_parallel := configuration_source.context_parallel,
                sequence_parallel := configuration_source.sequence_parallel,
                expert_parallel := configuration_source.expert_parallel,
                pipeline_parallel := configuration_source.pipeline_parallel,
                virtual_pipeline := configuration_source.virtual_pipeline,
                uses_sequence_parallel := configuration_source.uses_sequence_parallel,
                zero_stage := configuration_source.zero_stage,
                microbatch_size := configuration_source.microbatch_size,
                num_microbatches := configuration_source.num_microbatches,
                summa_panels := configuration_source.summa_panels,
                nvlink_data_parallel := configuration_source.nvlink_data_parallel,
                nvlink_tensor_parallel := configuration_source.nvlink_tensor_parallel,
                nvlink_tensor_parallel_2 := configuration_source.nvlink_tensor_parallel_2,
                nvlink_context_parallel := configuration_source.nvlink_context_parallel,
                nvlink_pipeline_parallel := configuration_source.nvlink_pipeline_parallel,
                compute_seconds := configuration_source.compute_seconds,
                memory_seconds := configuration_source.memory_seconds,
                tensor_comm_seconds := configuration_source.tensor_comm_seconds,
                pipeline_comm_seconds := configuration_source.pipeline_comm_seconds,
                bubble_seconds := configuration_source.bubble_seconds,
                data_comm_seconds := configuration_source.data_comm_seconds
            ),
            -- as many as tell layouts apart: the same one is chosen every time
            struct_pack(
                step_seconds := configuration_source.step_seconds,
                memory_bytes := configuration_source.memory_bytes,
                nvlink_data_parallel := configuration_source.nvlink_data_parallel,
                nvlink_tensor_parallel := configuration_source.nvlink_tensor_parallel,
                nvlink_pipeline_parallel := configuration_source.nvlink_pipeline_parallel,
                data_parallel := configuration_source.data_parallel,
                tensor_parallel := configuration_source.tensor_parallel,
                pipeline_parallel := configuration_source.pipeline_parallel,
                microbatch_size := configuration_source.microbatch_size,
                tensor_parallel_2 := configuration_source.tensor_parallel_2,
                context_parallel := configuration_source.context_parallel,
                expert_parallel := configuration_source.expert_parallel,
                virtual_pipeline := configuration_source.virtual_pipeline,
                summa_panels := configuration_source.summa_panels,
                uses_sequence_parallel := configuration_source.uses_sequence_parallel,
                zero_stage := configuration_source.zero_stage,
                num_microbatches := configuration_source.num_microbatches,
                tensor_parallel_external := configuration_source.tensor_parallel_external,
                sequence_parallel := configuration_source.sequence_parallel,
                nvlink_tensor_parallel_2 := configuration_source.nvlink_tensor_parallel_2,
                nvlink_context_parallel := configuration_source.nvlink_context_parallel
            )
        ) filter (where configuration_source.fits_memory is distinct from false) as best
    from configuration_source
    semi join unstored on configuration_source.cell_id = unstored.cell_id
    -- always true: DuckDB 2 would read all rows once for this and for another use of them in the
    -- same query, although here none is wanted
    where abs(configuration_source.cell_id) >= 0
    group by configuration_source.cell_id
)

select
    layouts.cell_id,
    unstored.sibling_record,
    layouts.num_layouts,
    layouts.num_fitting_layouts,
    layouts.best.step_seconds,
    layouts.best.training_seconds,
    layouts.best.memory_bytes,
    layouts.best.strategy,
    layouts.best.attention,
    layouts.best.activation_recompute,
    layouts.best.data_parallel,
    layouts.best.tensor_parallel,
    layouts.best.tensor_parallel_2,
    layouts.best.tensor_parallel_external,
    layouts.best.context_parallel,
    layouts.best.sequence_parallel,
    layouts.best.expert_parallel,
    layouts.best.pipeline_parallel,
    layouts.best.virtual_pipeline,
    layouts.best.uses_sequence_parallel,
    layouts.best.zero_stage,
    layouts.best.microbatch_size,
    layouts.best.num_microbatches,
    layouts.best.summa_panels,
    layouts.best.nvlink_data_parallel,
    layouts.best.nvlink_tensor_parallel,
    layouts.best.nvlink_tensor_parallel_2,
    layouts.best.nvlink_context_parallel,
    layouts.best.nvlink_pipeline_parallel,
    layouts.best.compute_seconds,
    layouts.best.memory_seconds,
    layouts.best.tensor_comm_seconds,
    layouts.best.pipeline_comm_seconds,
    layouts.best.bubble_seconds,
    layouts.best.data_comm_seconds
from layouts
inner join unstored on layouts.cell_id = unstored.cell_id
