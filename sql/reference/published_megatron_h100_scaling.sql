-- Megatron-Core's published rates on H100s.
-- Grain: one row per published configuration
-- Key: model, num_gpus
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
    num_gpus,
    global_batch_size,
    accelerator,
    achieved_flops_per_second_per_gpu,
    mfu,
    aggregate_flops_per_second,
    software,
    source
from printed_step
where reference = 'published_megatron_h100_scaling'
