-- Memory of one GPU by part, and one layer's activations by part.
-- Grain: one row per model, sequences held at once and way to shard its state
-- Key: cell_id, {cluster_memory}
select
    -- record
    cell_id,
    problem_id,
    estimator,
    estimator_version,
    mends,
    variant,

    -- model
    model,
    num_layers,
    hidden_size,
    ffn_hidden_size,
    uses_glu,
    num_heads,
    num_kv_heads,
    seq_len,
    vocab_size,
    parameters,

    -- system
    accelerator,
    hbm_bytes,

    -- layout
    batch_sequences,
    zero_stage,
    data_parallel,
    tensor_parallel,
    pipeline_parallel,
    uses_sequence_parallel,
    activation_recompute,

    -- memory
    weights_bytes,
    gradients_bytes,
    optimizer_bytes,
    activations_bytes,
    weights_bytes + gradients_bytes + optimizer_bytes + activations_bytes as memory_bytes,
    memory_bytes <= hbm_bytes as fits_memory,
    kv_cache_bytes,
    case
        when has_mend(mends, 'C17') then 2 * parameters / (tensor_parallel * pipeline_parallel)
        else weights_bytes
    end + kv_cache_bytes as inference_bytes,

    -- activations of one layer
    layer_linear_proj_input_bytes,
    layer_attn_qkv_matmul_bytes,
    layer_attn_qk_scores_bytes,
    layer_attn_softmax_bytes,
    layer_attn_dropout_bytes,
    layer_attn_v_bytes,
    layer_attn_drop_mask_bytes,
    layer_mlp_bytes,
    layer_ln_bytes
from current_cluster_memory
