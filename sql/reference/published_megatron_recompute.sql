-- Megatron's published step times with full and selective recomputation.
-- Grain: one row per published configuration
-- Key: model, activation_recompute
select
    printed_model as model,
    hidden_size,
    num_heads,
    num_layers,
    seq_len,
    vocab_size,
    accelerator,
    num_gpus,
    tensor_parallel,
    pipeline_parallel,
    data_parallel,
    virtual_pipeline,
    global_batch_size,
    microbatch_size,
    activation_recompute,
    uses_sequence_parallel,
    published_step_seconds as step_seconds,
    mfu,
    hfu,
    source
from printed_step
where reference = 'published_megatron_recompute'
