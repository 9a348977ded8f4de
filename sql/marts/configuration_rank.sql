-- Configurations that fit in memory, as far as their estimator knows, ranked by time in a problem.
-- Grain: one row per configuration that is not known to exceed the memory
--
-- What stands beside problem_id in the partition depends on the problem: it changes no rank, but
-- lets a filter on it reach the tables below the ranking. Layouts that take as long are told apart
-- as in best_of_cell; as one struct, since DuckDB 2 keeps the first of each group instead of
-- sorting all rows where there is one key and one rank.
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
            global_batch_size
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
    ) as rank_by_time
from configuration
where fits_memory is distinct from false
