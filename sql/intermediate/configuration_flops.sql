-- Every evaluated configuration with the tokens and the model FLOPs of its step.
-- Grain: one row per configuration
-- Key: cell_id, {layout}
--
-- An estimator's own count of model FLOPs is kept; for others macro model_flops counts them.
select
    * exclude (model_flops),
    coalesce(
        model_flops,
        model_flops(
            global_batch_size,
            seq_len,
            num_layers,
            hidden_size,
            ffn_hidden_size,
            num_heads,
            num_kv_heads,
            vocab_size
        )
    ) as model_flops,
    cast(global_batch_size as bigint) * seq_len as step_tokens
from configuration_source
