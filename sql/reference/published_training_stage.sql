-- Published step times and rates of stages of large runs.
-- Grain: one row per stage
-- Key: model, num_gpus
select
    printed_model as model,
    num_layers,
    hidden_size,
    ffn_hidden_size,
    uses_glu,
    num_heads,
    num_kv_heads,
    seq_len,
    vocab_size,
    ties_embedding,
    accelerator,
    num_gpus,
    tensor_parallel,
    context_parallel,
    pipeline_parallel,
    data_parallel,
    virtual_pipeline,
    global_batch_size,
    activation_recompute,
    zero_stage,
    uses_sequence_parallel,
    framework,
    is_own_framework,
    software,
    published_step_seconds as step_seconds,
    mfu,
    half_last_digit,
    dataset_tokens,
    training_seconds,
    source,
    note
from printed_step
where reference = 'published_training_stage'
