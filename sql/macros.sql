-- Functions that the views share: one statement each, what it gives and its source above it.

-- Seconds in days, for people.
create or replace macro in_days(seconds) as
seconds / 86400;

-- Bytes in GB (1e9 bytes), for people.
create or replace macro in_gb(bytes) as
bytes / 1e9;

-- FLOP/s in TFLOP/s, for people.
create or replace macro in_tflops(flops_per_second) as
flops_per_second / 1e12;

-- A fraction in percent, for people.
create or replace macro in_percent(fraction) as
100 * fraction;

-- Parameters of a GPT with learned positions and a tied output layer. A vocabulary that is not
-- known (NULL) leaves its term out. Source: arXiv 2104.04473, equation 2.
create or replace macro megatron_parameters(num_layers, hidden_size, vocab_size, seq_len) as
12 * cast(num_layers as double) * hidden_size * hidden_size
* (
    1
    + 13 / (12 * cast(hidden_size as double))
    + (cast(coalesce(vocab_size, 0) as double) + seq_len)
    / (12 * cast(num_layers as double) * hidden_size)
);

-- FLOPs of one step of a GPT whose feed-forward layer is four times as wide as the model, as
-- Megatron counts them: 96 B s l h^2 with full recomputation, 72 without it. The logits are never
-- recomputed: 6 B s h V in both. In double from the first factor, as 64-bit integers overflow. NULL
-- with selective recomputation, which the equation does not cover.
-- Source: arXiv 2104.04473, equation 3, and the appendix that derives it.
create or replace macro megatron_flops(
    global_batch_size, seq_len, num_layers, hidden_size, vocab_size, activation_recompute
) as
cast(global_batch_size as double) * seq_len * hidden_size
* (
    case
        when activation_recompute = 'full' then 96
        when activation_recompute = 'none' then 72
        when activation_recompute <> 'selective'
            then error(
                '`activation_recompute` "' || activation_recompute
                || '": must be none, selective or full'
            )
    end
    * cast(num_layers as double)
    * (hidden_size + seq_len / 6)
    + 6 * cast(coalesce(vocab_size, 0) as double)
);

-- Model FLOPs of one step: what the mathematics needs, recomputation not counted. Per token and
-- layer, forward: 4 h^2 (1 + kv / heads) in the projections of attention, 4 s h in dense
-- attention, 4 h f in a feed-forward layer of two matrices; 2 h V in the logits; backward twice
-- the forward. With f = 4 h and as many key and value heads as heads this is equation 3 of
-- arXiv 2104.04473 without recomputation. NULL counts of key and value heads mean all heads.
create or replace macro model_flops(
    global_batch_size,
    seq_len,
    num_layers,
    hidden_size,
    ffn_hidden_size,
    num_heads,
    num_kv_heads,
    vocab_size
) as
12 * cast(global_batch_size as double) * seq_len * hidden_size
* (
    cast(num_layers as double)
    * (
        hidden_size * (1 + coalesce(num_kv_heads, num_heads) / num_heads)
        + seq_len
        + ffn_hidden_size
    )
    + coalesce(vocab_size, 0) / 2
);

-- Model FLOP utilization: model FLOPs (without recomputation) over what the GPUs could have done
-- at their peak rate in that time. Source: arXiv 2204.02311, appendix B.
create or replace macro mfu(model_flops, step_seconds, num_gpus, peak_flops_per_second) as
model_flops / (step_seconds * num_gpus * peak_flops_per_second);

-- Seconds of a whole run of run_optimizer: its batches, each a step. 20 tokens a parameter,
-- 6 FLOPs a parameter and token; a batch grows with the sixth root of the FLOPs from 2048^2 tokens
-- at 1e25. Source: davidsj/ml_par_sim run_optimizer2.ipynb @2a07c41.
create or replace macro optimizer_training_seconds(training_flops, step_seconds) as
20 * sqrt(training_flops / 120) / (4194304 * pow(training_flops / 1e25, 1 / 6)) * step_seconds;

-- Whether an erratum is among the mends of a row, its ids with commas between.
create or replace macro has_mend(mends, erratum) as
list_contains(string_split(mends, ','), erratum);

-- Seconds in years of 365.25 days, for people.
create or replace macro in_years(seconds) as
seconds / 31557600;

-- Seconds in days: short for in_days.
create or replace macro days(seconds) as
seconds / 86400;

-- Bytes in GB (1e9 bytes): short for in_gb.
create or replace macro gb(bytes) as
bytes / 1e9;

-- Dollars of so many GPUs for so many seconds at a price of an hour of one of them.
create or replace macro usd(num_gpus, seconds, usd_per_gpu_hour) as
num_gpus * (seconds / 3600) * usd_per_gpu_hour;

-- What was given for an argument, as a double: NULL where nothing was; an error that names the
-- argument, the value and the rule where it lies outside lowest to highest, as NaN does.
create or replace macro argument_within(argument_name, given, lowest, highest, rule) as
case
    when given is null then null
    when cast(given as double) between lowest and highest then cast(given as double)
    else error('`' || argument_name || '` ' || given || ': ' || rule)
end;

-- A name without capitals and what separates its words; its numbers stay as they are: names that
-- agree in this are taken for one another, 1.7B and 17B are not.
create or replace macro folded_name(name) as
regexp_replace(
    array_to_string(
        regexp_extract_all(lower(name), '\.?[0-9]+(?:\.[0-9]+)*|\p{L}+'), ' '
    ),
    ' ?(\p{L}+) ?', '\1', 'g'
);
