-- Published times of whole runs, Megatron and ZeRO-3.
-- Grain: one row per published configuration
-- Key: scheme, parameters, num_gpus, microbatch_size
select
    published_group as scheme,
    parameters,
    model_parallel,
    hidden_size,
    num_layers,
    vocab_size,
    seq_len,
    global_batch_size,
    microbatch_size,
    num_gpus,
    accelerator,
    dataset_tokens,
    achieved_flops_per_second_per_gpu,
    training_seconds,
    training_days_as_printed,
    note,
    source
from printed_step
where reference = 'published_megatron_training_time'
