-- Estimates by equations 2 to 4 of arXiv 2104.04473, under the shared column names.
-- Grain: one row per configuration
-- Key: cell_id
--
-- The equations have neither layout nor memory: those columns are NULL. At the peak rate the time
-- is a lower bound. A partial last step of a run takes as long as a full one.
with estimate as (
    select
        *,
        megatron_parameters(num_layers, hidden_size, vocab_size, seq_len) as parameters,
        megatron_flops(
            global_batch_size, seq_len, num_layers, hidden_size, vocab_size, activation_recompute
        ) as step_flops,
        megatron_flops(
            global_batch_size, seq_len, num_layers, hidden_size, vocab_size, 'none'
        ) as model_flops,
        cast(global_batch_size as double) * seq_len as batch_tokens
    from current_megatron_flops
)

select
    -- record
    cell_id,
    problem_id,
    estimator,
    estimator_version,
    mends,
    variant,
    is_default_variant,

    -- model
    model,
    num_layers,
    hidden_size,
    ffn_hidden_size,
    num_heads,
    num_kv_heads,
    uses_glu,
    seq_len,
    vocab_size,
    parameters,

    -- system
    accelerator,
    matrix_flops_per_second,
    achieved_flops_per_second_per_gpu,

    -- run
    num_gpus,
    global_batch_size,
    dataset_tokens,
    ceil(dataset_tokens / batch_tokens) as num_steps,
    num_steps * batch_tokens as tokens,

    -- layout
    activation_recompute,

    -- time
    step_seconds,
    num_steps * step_seconds as training_seconds,
    -- 96 / 12 = 8, and 72 / 12 = 6
    case activation_recompute when 'full' then 8 else 6 end
    * dataset_tokens
    * parameters
    / (num_gpus * achieved_flops_per_second_per_gpu) as approximate_training_seconds,
    approximate_training_seconds / training_seconds - 1 as approximation_error,

    -- arithmetic
    model_flops,
    step_flops,
    step_flops as hardware_flops,
    step_flops / (step_seconds * num_gpus * matrix_flops_per_second) as hfu,
    num_steps * step_flops as total_flops
from estimate
