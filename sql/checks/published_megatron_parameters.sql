-- Published models whose printed parameters are not those of equation 2, beyond rounding.
--
-- Parameters of the A100 tables are printed in tenths of a billion: half a tenth may be lost. Two
-- models are left out because the published table itself is off: 1.7B by 2.8 %, 3.6B by 1.05 %. The
-- models of the H100 table have an output layer of their own; those above 10 billion are printed
-- in whole ones, and 1.75 billion as 1.7.
with published as (
    select distinct
        reference,
        parameters,
        case
            when reference = 'published_megatron_training_time'
                then cast(round(parameters / 1e9, 1) as varchar) || 'B'
            else printed_model
        end as model,
        reference = 'published_megatron_h100_scaling' as has_output_layer,
        megatron_parameters(num_layers, hidden_size, vocab_size, seq_len)
        + case when has_output_layer then cast(vocab_size as double) * hidden_size else 0 end
            as expected_parameters,
        case
            when not has_output_layer then 0.05e9
            when parameters < 10e9 then 0.06e9
            else 0.5e9
        end as lost_parameters
    from printed_step
    where reference <> 'published_megatron_scaling' or printed_model not in ('1.7B', '3.6B')
)

select
    reference,
    model,
    parameters,
    expected_parameters
from published
where abs(parameters - expected_parameters) > lost_parameters
