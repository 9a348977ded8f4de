-- Published runs whose shape is not that of their row in the model table.
select
    published_megatron_scaling.model,
    published_megatron_scaling.num_layers,
    published_megatron_scaling.hidden_size,
    published_megatron_scaling.num_heads,
    published_megatron_scaling.seq_len,
    published_megatron_scaling.vocab_size
from published_megatron_scaling
left join model
    on
        'megatron_' || published_megatron_scaling.model = model.model
        and published_megatron_scaling.num_layers = model.num_layers
        and published_megatron_scaling.hidden_size = model.hidden_size
        and published_megatron_scaling.hidden_size * 4 = model.ffn_hidden_size
        and published_megatron_scaling.num_heads = model.num_heads
        and published_megatron_scaling.num_heads = model.num_kv_heads
        and published_megatron_scaling.seq_len = model.seq_len
        and published_megatron_scaling.vocab_size = model.vocab_size
where model.model is null
