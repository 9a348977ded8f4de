-- Megatron's published rates on up to 3,072 A100s.
-- Grain: one row per published configuration
-- Key: model
select
    printed_model as model,
    parameters,
    num_heads,
    hidden_size,
    num_layers,
    vocab_size,
    seq_len,
    tensor_parallel,
    pipeline_parallel,
    data_parallel,
    model_parallel,
    virtual_pipeline,
    nvlink_size,
    num_gpus,
    microbatch_size,
    global_batch_size,
    activation_recompute,
    accelerator,
    peak_flops_per_second,
    achieved_flops_per_second_per_gpu,
    achieved_fraction_of_peak,
    aggregate_flops_per_second,
    source
from printed_step
where reference = 'published_megatron_scaling'
