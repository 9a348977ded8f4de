-- Published models whose printed parameters are not those of equation 2, beyond rounding.
--
-- Parameters of the A100 tables are printed in tenths of a billion: half a tenth may be lost. Two
-- models are left out because the published table itself is off: 1.7B by 2.8 %, 3.6B by 1.05 %. The
-- models of the H100 table have an output layer of their own; those above 10 billion are printed
-- in whole ones, and 1.75 billion as 1.7.
with published as (
    select
        'published_megatron_scaling' as reference,
        model,
        parameters,
        megatron_parameters(num_layers, hidden_size, vocab_size, seq_len) as expected_parameters,
        0.05e9 as lost_parameters
    from published_megatron_scaling
    where model not in ('1.7B', '3.6B')
    union all by name
    select distinct
        'published_megatron_training_time' as reference,
        cast(round(parameters / 1e9, 1) as varchar) || 'B' as model,
        parameters,
        megatron_parameters(num_layers, hidden_size, vocab_size, seq_len) as expected_parameters,
        0.05e9 as lost_parameters
    from published_megatron_training_time
    union all by name
    select
        'published_megatron_h100_scaling' as reference,
        model,
        parameters,
        megatron_parameters(num_layers, hidden_size, vocab_size, seq_len)
        + cast(vocab_size as double) * hidden_size as expected_parameters,
        case when parameters < 10e9 then 0.06e9 else 0.5e9 end as lost_parameters
    from published_megatron_h100_scaling
)

select
    reference,
    model,
    parameters,
    expected_parameters
from published
where abs(parameters - expected_parameters) > lost_parameters
