-- Megatron's published runs beside the estimates of exactly the same configuration.
-- Grain: one row per published run, estimator and variant
--
-- Only estimates for the hardware as published take part: every system attribute that an estimator
-- knows is that of the reference table, not a point of a hardware sweep. Where several NVLink
-- placements were evaluated, the fastest is shown: the paper does not say which one it used.
with published as (
    select
        published_megatron_scaling.*,
        coalesce(accelerator_alias.accelerator, published_megatron_scaling.accelerator)
            as system_name,
        -- the published rate counts recomputation
        megatron_flops(
            published_megatron_scaling.global_batch_size,
            published_megatron_scaling.seq_len,
            published_megatron_scaling.num_layers,
            published_megatron_scaling.hidden_size,
            published_megatron_scaling.vocab_size,
            published_megatron_scaling.activation_recompute
        ) as step_flops
    from published_megatron_scaling
    left join accelerator_alias
        on published_megatron_scaling.accelerator = accelerator_alias.alias
),

estimate as (
    select
        published.model,
        published.step_flops,
        published.achieved_flops_per_second_per_gpu as published_flops_per_second_per_gpu,
        configuration.estimator,
        configuration.estimator_version,
        configuration.variant,
        configuration.problem_id,
        configuration.cell_id,
        configuration.vocab_size,
        configuration.accelerator,
        configuration.num_gpus,
        configuration.global_batch_size,
        configuration.data_parallel,
        configuration.tensor_parallel,
        configuration.pipeline_parallel,
        configuration.virtual_pipeline,
        configuration.microbatch_size,
        configuration.activation_recompute,
        configuration.nvlink_size,
        configuration.nvlink_data_parallel,
        configuration.nvlink_tensor_parallel,
        configuration.nvlink_pipeline_parallel,
        configuration.step_seconds,
        configuration.memory_bytes,
        configuration.fits_memory
    from configuration
    inner join published
        on
            configuration.num_layers = published.num_layers
            and configuration.hidden_size = published.hidden_size
            and configuration.ffn_hidden_size = 4 * published.hidden_size
            and configuration.num_heads = published.num_heads
            and configuration.seq_len = published.seq_len
            and coalesce(configuration.vocab_size, published.vocab_size) = published.vocab_size
            and configuration.accelerator = published.system_name
            and coalesce(configuration.nvlink_size, published.nvlink_size) = published.nvlink_size
            and configuration.num_gpus = published.num_gpus
            and configuration.global_batch_size = published.global_batch_size
            and configuration.microbatch_size = published.microbatch_size
            and configuration.data_parallel = published.data_parallel
            and configuration.tensor_parallel = published.tensor_parallel
            and configuration.pipeline_parallel = published.pipeline_parallel
            and configuration.virtual_pipeline = published.virtual_pipeline
            and configuration.activation_recompute = published.activation_recompute
    inner join system
        on published.system_name = system.accelerator
    where
        -- the paper splits tensors along one dimension, in half precision
        coalesce(configuration.strategy, 'tensor_1d') = 'tensor_1d'
        and coalesce(configuration.tensor_parallel_2, 1) = 1
        and coalesce(configuration.context_parallel, 1) = 1
        and coalesce(configuration.bytes_per_element, 2) = 2
        and coalesce(configuration.matrix_flops_per_second = system.matrix_flops_per_second, true)
        and coalesce(configuration.vector_flops_per_second = system.vector_flops_per_second, true)
        and coalesce(configuration.hbm_bytes_per_second = system.hbm_bytes_per_second, true)
        and coalesce(configuration.hbm_bytes = system.hbm_bytes, true)
        and coalesce(configuration.nvlink_bytes_per_second = system.nvlink_bytes_per_second, true)
        and coalesce(configuration.nvlink_efficiency = system.nvlink_efficiency, true)
        and coalesce(configuration.nvlink_latency_seconds = system.nvlink_latency_seconds, true)
        and coalesce(
            configuration.network_bytes_per_second = system.network_bytes_per_second, true
        )
        and coalesce(configuration.network_efficiency = system.network_efficiency, true)
        and coalesce(configuration.network_latency_seconds = system.network_latency_seconds, true)
        and coalesce(configuration.nics_per_gpu = system.nics_per_gpu, true)
        and coalesce(configuration.flops_efficiency = system.flops_efficiency, true)
        and coalesce(configuration.launch_seconds = system.launch_seconds, true)
),

fastest_placement as (
    select *
    from estimate
    qualify
        row_number() over (
            partition by model, estimator, variant
            order by
                step_seconds asc,
                vocab_size asc nulls last,
                nvlink_tensor_parallel desc,
                nvlink_data_parallel desc,
                nvlink_pipeline_parallel desc,
                problem_id asc
        ) = 1
)

select
    model,
    estimator,
    estimator_version,
    variant,
    problem_id,
    cell_id,

    accelerator,
    num_gpus,
    global_batch_size,
    data_parallel,
    tensor_parallel,
    pipeline_parallel,
    virtual_pipeline,
    microbatch_size,
    activation_recompute,
    nvlink_size,
    nvlink_data_parallel,
    nvlink_tensor_parallel,
    nvlink_pipeline_parallel,

    published_flops_per_second_per_gpu,
    step_flops / (step_seconds * num_gpus) as predicted_flops_per_second_per_gpu,
    step_flops / (published_flops_per_second_per_gpu * num_gpus) as published_step_seconds,
    step_seconds,
    predicted_flops_per_second_per_gpu / published_flops_per_second_per_gpu - 1 as relative_error,
    abs(relative_error) as absolute_relative_error,
    memory_bytes,
    fits_memory
from fastest_placement
