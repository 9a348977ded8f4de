-- Configurations that fit in memory, ranked by time within their problem and strategy.
-- Grain: one row per configuration that is not known to exceed the memory
--
-- As configuration_rank, which has the ranks among all strategies: two ranks in one view would have
-- to sort all rows with all of their columns.
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
            global_batch_size,
            strategy
        order by
            struct_pack(
                step_seconds := step_seconds,
                memory_bytes := memory_bytes,
                nvlink_data_parallel := nvlink_data_parallel,
                nvlink_tensor_parallel := nvlink_tensor_parallel,
                nvlink_pipeline_parallel := nvlink_pipeline_parallel,
                data_parallel := data_parallel,
                tensor_parallel := tensor_parallel,
                pipeline_parallel := pipeline_parallel,
                microbatch_size := microbatch_size,
                tensor_parallel_2 := tensor_parallel_2,
                context_parallel := context_parallel,
                expert_parallel := expert_parallel,
                virtual_pipeline := virtual_pipeline,
                summa_panels := summa_panels,
                uses_sequence_parallel := uses_sequence_parallel,
                zero_stage := zero_stage,
                num_microbatches := num_microbatches,
                tensor_parallel_external := tensor_parallel_external,
                sequence_parallel := sequence_parallel,
                nvlink_tensor_parallel_2 := nvlink_tensor_parallel_2,
                nvlink_context_parallel := nvlink_context_parallel
            )
    ) as rank_in_strategy
from configuration
where fits_memory is distinct from false
