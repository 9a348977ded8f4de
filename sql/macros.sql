-- Functions that the views share: one statement each, with its meaning and source above it.

-- Seconds in days, for people.
-- Example: select model, in_days(training_seconds) as days from published_training_runs
create or replace macro in_days(seconds) as
seconds / 86400;

-- Bytes in GB (1e9 bytes), for people.
-- Example: select accelerator, in_gb(hbm_bytes) as gb from accelerator
create or replace macro in_gb(bytes) as
bytes / 1e9;

-- FLOP/s in TFLOP/s, for people.
-- Example: select accelerator, in_tflops(bf16_flops_per_second) as tflops from accelerator
create or replace macro in_tflops(flops_per_second) as
flops_per_second / 1e12;

-- A fraction in percent, for people.
-- Example: select run, in_percent(goodput) as percent from goodput
create or replace macro in_percent(fraction) as
100 * fraction;

-- Parameters of a GPT with learned positions and a tied output layer. A vocabulary that is not
-- known (NULL) leaves its term out. Source: arXiv 2104.04473, equation 2.
-- Example: select megatron_parameters(96, 12288, 51200, 2048) as parameters
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
-- Example: select megatron_flops(1536, 2048, 96, 12288, 51200, 'full') as flops
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

-- Model FLOPs of one step: those of the mathematics, recomputation not counted. Per token and
-- layer, forward: 4 h^2 (1 + kv / heads) in the projections of attention, 4 s h in dense
-- attention, 4 h f in a feed-forward layer of two matrices; 2 h V in the logits; backward twice
-- the forward. With f = 4 h and as many key and value heads as heads this is equation 3 of
-- arXiv 2104.04473 without recomputation. NULL counts of key and value heads mean all heads.
-- Example: select model, model_flops(1024, seq_len, num_layers, hidden_size, ffn_hidden_size,
-- num_heads, num_kv_heads, vocab_size) as flops from model
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

-- Model FLOP utilization: model FLOPs (without recomputation) over the FLOPs of all GPUs at their
-- peak rate in that time. Source: arXiv 2204.02311, appendix B.
-- Example: select mfu(4.5e18, 20.0, 1024, 312e12) as mfu
create or replace macro mfu(model_flops, step_seconds, num_gpus, peak_flops_per_second) as
model_flops / (step_seconds * num_gpus * peak_flops_per_second);

-- Seconds of a whole run of run_optimizer: its batches, each a step. 20 tokens a parameter,
-- 6 FLOPs a parameter and token; a batch grows with the sixth root of the FLOPs from 2048^2 tokens
-- at 1e25. Source: davidsj/ml_par_sim run_optimizer2.ipynb @2a07c41.
-- Example: select in_days(optimizer_training_seconds(4e26, 10)) as days
create or replace macro optimizer_training_seconds(training_flops, step_seconds) as
20 * sqrt(training_flops / 120) / (4194304 * pow(training_flops / 1e25, 1 / 6)) * step_seconds;

-- A hash of a text in 63 bits: equal for equal texts, in every release of DuckDB.
-- Example: select text_id('num_layers 96, hidden_size 12288') as id
create or replace macro text_id(identified_text) as
cast(md5_number_lower(identified_text) >> 1 as bigint);

-- Whether an erratum is among the mends of a row, its ids with commas between.
-- Example: select variant, has_mend(mends, 'R2') as mends_r2 from cell group by all
create or replace macro has_mend(mends, erratum) as
list_contains(string_split(mends, ','), erratum);

-- Seconds in years of 365.25 days, for people.
-- Example: select in_years(1e9) as years
create or replace macro in_years(seconds) as
seconds / 31557600;

-- Seconds in days: short for in_days.
-- Example: select model, days(training_seconds) as days from published_training_runs
create or replace macro days(seconds) as
seconds / 86400;

-- Bytes in GB (1e9 bytes): short for in_gb.
-- Example: select accelerator, gb(hbm_bytes) as gb from accelerator
create or replace macro gb(bytes) as
bytes / 1e9;

-- Dollars of a number of GPUs for a time, at a price per GPU-hour.
-- Example: select usd(1024, 30 * 86400, 2.5) as usd
create or replace macro usd(num_gpus, seconds, usd_per_gpu_hour) as
num_gpus * (seconds / 3600) * usd_per_gpu_hour;

-- The value given for an argument, as a double; NULL if none is given. If it lies outside lowest to
-- highest, as NaN does, an error names the argument, the value and the rule.
-- Example: select argument_within('pue', 1.2, 1, 10, 'must be from 1 to 10') as pue
create or replace macro argument_within(argument_name, given, lowest, highest, rule) as
case
    when given is null then null
    when cast(given as double) between lowest and highest then cast(given as double)
    else error('`' || argument_name || '` ' || given || ': ' || rule)
end;

-- A name without capitals and separators of its words; its numbers stay as they are. Names that
-- agree in this mean the same: 1.7B and 17B do not agree.
-- Example: select model, folded_name(model) as folded from model limit 5
create or replace macro folded_name(name) as
regexp_replace(
    array_to_string(
        regexp_extract_all(lower(name), '\.?[0-9]+(?:\.[0-9]+)*|\p{L}+'), ' '
    ),
    ' ?(\p{L}+) ?', '\1', 'g'
);

-- Whether the FLOPs of a problem's steps alone take time, so that its estimates are lower bounds:
-- of clusters without bubbles and communication, and of GPUs at their peak rate. Example: select
-- is_time_of_flops(null, 989e12, 989e12)
create or replace macro is_time_of_flops(
    cluster_flops_per_second, achieved_flops_per_second_per_gpu, matrix_flops_per_second
) as
cluster_flops_per_second is not null
or coalesce(achieved_flops_per_second_per_gpu = matrix_flops_per_second, false);

-- The columns of a layout, as one struct: `unnest(layout_of(configuration))` selects them all.
-- Example: select cell_id, unnest(layout_of(configuration)) from configuration limit 5
create or replace macro layout_of(layout) as
struct_pack(
    strategy := layout.strategy,
    attention := layout.attention,
    activation_recompute := layout.activation_recompute,
    data_parallel := layout.data_parallel,
    tensor_parallel := layout.tensor_parallel,
    tensor_parallel_2 := layout.tensor_parallel_2,
    tensor_parallel_external := layout.tensor_parallel_external,
    context_parallel := layout.context_parallel,
    sequence_parallel := layout.sequence_parallel,
    expert_parallel := layout.expert_parallel,
    expert_tensor_parallel := layout.expert_tensor_parallel,
    pipeline_parallel := layout.pipeline_parallel,
    virtual_pipeline := layout.virtual_pipeline,
    uses_sequence_parallel := layout.uses_sequence_parallel,
    zero_stage := layout.zero_stage,
    microbatch_size := layout.microbatch_size,
    num_microbatches := layout.num_microbatches,
    summa_panels := layout.summa_panels,
    nvlink_data_parallel := layout.nvlink_data_parallel,
    nvlink_tensor_parallel := layout.nvlink_tensor_parallel,
    nvlink_tensor_parallel_2 := layout.nvlink_tensor_parallel_2,
    nvlink_context_parallel := layout.nvlink_context_parallel,
    nvlink_pipeline_parallel := layout.nvlink_pipeline_parallel,
    schedule := layout.schedule,
    pipeline_layout := layout.pipeline_layout,
    layers_in_first_stage := layout.layers_in_first_stage,
    layers_in_last_stage := layout.layers_in_last_stage,
    counts_embedding := layout.counts_embedding,
    counts_loss := layout.counts_loss,
    microbatch_group := layout.microbatch_group
);

-- Least chance to fit in memory of a layout that may be the best. Commands with --fit-probability
-- replace it for their queries, by a temporary macro.
-- Example: select least_fit_probability() as least
create or replace macro least_fit_probability() as
0.9e0;

-- Whether a layout is likely to fit in memory: by its chance to fit, or by its memory where the
-- estimator gives no chance. A layout that exceeds the memory is not likely to fit. An estimator
-- without a model of memory excludes none.
-- Example: select cell_id, memory_bytes from configuration where is_likely_to_fit(configuration)
-- limit 5
create or replace macro is_likely_to_fit(layout) as
coalesce(layout.fits_memory, true)
and coalesce(layout.fit_probability >= least_fit_probability(), true);

-- Chance that a layout does not fit in memory; 0 where it is likely to fit, so that no time is paid
-- for more certainty.
-- Example: select cell_id, fit_risk(configuration) as risk from configuration limit 5
create or replace macro fit_risk(layout) as
case when is_likely_to_fit(layout) then 0e0 else 1 - coalesce(layout.fit_probability, 0e0) end;

-- A layout with the time of its step, the parts of that, and its memory: as in best_of_cell. The
-- least is the best: by time of those that are likely to fit, else the likeliest.
-- Example: select cell_id, evaluated_layout(configuration) as layout from configuration limit 5
create or replace macro evaluated_layout(layout) as
struct_concat(
    struct_pack(
        fit_risk := fit_risk(layout),
        step_seconds := layout.step_seconds,
        training_seconds := layout.training_seconds,
        memory_bytes := layout.memory_bytes,
        fit_probability := layout.fit_probability,
        slot_watts := layout.slot_watts
    ),
    layout_of(layout),
    struct_pack(
        compute_seconds := layout.compute_seconds,
        memory_seconds := layout.memory_seconds,
        tensor_comm_seconds := layout.tensor_comm_seconds,
        pipeline_comm_seconds := layout.pipeline_comm_seconds,
        bubble_seconds := layout.bubble_seconds,
        data_comm_seconds := layout.data_comm_seconds
    )
);

-- Key that sorts layouts by time: of equals the one that needs less memory is first, then the one
-- with smaller groups in a domain. No two layouts of a cell have the same key, so that the same one
-- always comes first. Example: select cell_id, step_seconds, memory_bytes from configuration order
-- by time_order(configuration) limit 5
create or replace macro time_order(layout) as
struct_pack(
    step_seconds := layout.step_seconds,
    memory_bytes := layout.memory_bytes,
    nvlink_data_parallel := layout.nvlink_data_parallel,
    nvlink_tensor_parallel := layout.nvlink_tensor_parallel,
    nvlink_pipeline_parallel := layout.nvlink_pipeline_parallel,
    data_parallel := layout.data_parallel,
    tensor_parallel := layout.tensor_parallel,
    pipeline_parallel := layout.pipeline_parallel,
    microbatch_size := layout.microbatch_size,
    tensor_parallel_2 := layout.tensor_parallel_2,
    context_parallel := layout.context_parallel,
    expert_parallel := layout.expert_parallel,
    expert_tensor_parallel := layout.expert_tensor_parallel,
    virtual_pipeline := layout.virtual_pipeline,
    summa_panels := layout.summa_panels,
    uses_sequence_parallel := layout.uses_sequence_parallel,
    zero_stage := layout.zero_stage,
    num_microbatches := layout.num_microbatches,
    tensor_parallel_external := layout.tensor_parallel_external,
    sequence_parallel := layout.sequence_parallel,
    nvlink_tensor_parallel_2 := layout.nvlink_tensor_parallel_2,
    nvlink_context_parallel := layout.nvlink_context_parallel
);

-- Key that sorts layouts, the best first: by time those that are likely to fit in memory, then the
-- others, the likeliest first. This is what best means in every view and command. It is one struct:
-- with one key and one rank, DuckDB 2 keeps the first of each group instead of sorting all rows.
-- Example: select cell_id, step_seconds, memory_bytes from configuration order by
-- layout_order(configuration) limit 5
create or replace macro layout_order(layout) as
struct_pack(fit_risk := fit_risk(layout), by_time := time_order(layout));

-- A layout in one line, such as tensor_1d dp16 tp8 pp32 micro1 (nvlink tp8). Left out are
-- degrees of 1 and other values that stand for unused. `tp8x4` are both axes of tensor
-- parallelism, `sp4` is a degree of sequence parallelism, and `seq` says that the
-- tensor-parallel group splits the sequence. Microbatches are counted where they are no whole
-- number of sequences. NULL where nothing is known.
-- Example: select layout_in_words(configuration) as layout, step_seconds from configuration limit
-- 5
create or replace macro layout_in_words(layout) as
nullif(
    concat_ws(
        ' ',
        layout.strategy,
        'dp' || layout.data_parallel,
        'tp' || nullif(
            concat_ws('x', layout.tensor_parallel, nullif(layout.tensor_parallel_2, 1)), ''
        ),
        'ext' || nullif(layout.tensor_parallel_external, 1),
        'cp' || nullif(layout.context_parallel, 1),
        'sp' || nullif(layout.sequence_parallel, 1),
        'ep' || nullif(layout.expert_parallel, 1),
        'etp' || nullif(layout.expert_tensor_parallel, 1),
        case when layout.uses_sequence_parallel then 'seq' end,
        'pp' || layout.pipeline_parallel,
        'vp' || nullif(layout.virtual_pipeline, 1),
        'group' || layout.microbatch_group,
        'schedule ' || nullif(layout.schedule, '1f1b'),
        'stages ' || layout.pipeline_layout,
        'first' || layout.layers_in_first_stage,
        'last' || layout.layers_in_last_stage,
        case when layout.counts_embedding then 'counts embedding' end,
        case when layout.counts_loss then 'counts loss' end,
        coalesce(
            'micro' || layout.microbatch_size, 'microbatches' || layout.num_microbatches
        ),
        -- only estimators with a choice of ZeRO stage have a choice of sequence parallelism
        case when layout.uses_sequence_parallel is not null then 'zero' || layout.zero_stage end,
        'panels' || nullif(layout.summa_panels, 0),
        'recompute ' || nullif(layout.activation_recompute, 'none'),
        'attention ' || nullif(layout.attention, 'flash'),
        '(nvlink ' || nullif(
            concat_ws(
                ' ',
                'dp' || nullif(layout.nvlink_data_parallel, 1),
                'tp' || nullif(
                    nullif(
                        concat_ws(
                            'x',
                            layout.nvlink_tensor_parallel,
                            nullif(layout.nvlink_tensor_parallel_2, 1)
                        ),
                        '1'
                    ),
                    ''
                ),
                'cp' || nullif(layout.nvlink_context_parallel, 1),
                'pp' || nullif(layout.nvlink_pipeline_parallel, 1)
            ),
            ''
        ) || ')'
    ),
    ''
);

-- The columns that tell runs of the cluster estimator apart, whatever is estimated of them: record,
-- model, data and accelerator. `unnest` selects them all.
-- Example: select unnest(cluster_question(current_cluster_compute)) from current_cluster_compute
-- limit 5
create or replace macro cluster_question(cluster_row) as
struct_pack(
    cell_id := cluster_row.cell_id,
    problem_id := cluster_row.problem_id,
    estimator := cluster_row.estimator,
    estimator_version := cluster_row.estimator_version,
    mends := cluster_row.mends,
    variant := cluster_row.variant,
    model := cluster_row.model,
    parameters := cluster_row.parameters,
    active_parameters := cluster_row.active_parameters,
    dataset_tokens := cluster_row.dataset_tokens,
    global_batch_tokens := cluster_row.global_batch_tokens,
    accelerator := cluster_row.accelerator,
    peak_flops_per_second := cluster_row.peak_flops_per_second,
    hbm_bytes := cluster_row.hbm_bytes,
    mfu := cluster_row.mfu
);

-- The columns that every table of published and measured steps has: shape, system, batch and
-- degrees. `unnest` selects them all.
-- Example: select unnest(published_case(published_megatron_scaling))
-- from published_megatron_scaling limit 5
create or replace macro published_case(measured) as
struct_pack(
    model := measured.model,
    num_layers := measured.num_layers,
    hidden_size := measured.hidden_size,
    num_heads := measured.num_heads,
    seq_len := measured.seq_len,
    vocab_size := measured.vocab_size,
    accelerator := measured.accelerator,
    num_gpus := measured.num_gpus,
    global_batch_size := measured.global_batch_size,
    tensor_parallel := measured.tensor_parallel,
    pipeline_parallel := measured.pipeline_parallel,
    data_parallel := measured.data_parallel
);

-- Short name of a group of measured steps: that of a published group, else that of its table
-- without its beginning, or that of a team's own runs.
-- Example: select group_in_words(reference, published_group, false) as steps, bias
-- from estimator_accuracy
create or replace macro group_in_words(reference, published_group, is_own) as
regexp_replace(
    case
        when reference = 'published_measurement' then published_group
        when is_own then 'your runs ' || reference
        else
            regexp_replace(reference, '^published_(megatron|training)_', '')
            || ' '
            || published_group
    end,
    ' all$',
    ''
);

-- `words` where a value differs from the usual one, NULL where it does not or either is not known.
-- Example: select problem_id, if_changed('nics_per_gpu', problem.nics_per_gpu, system.nics_per_gpu)
-- as changed from problem inner join system on problem.accelerator = system.accelerator
create or replace macro if_changed(words, given, usual) as
case when given <> usual then words end;

-- The constant of the most specific row of a group, as in table step_constant: of a framework and
-- an accelerator, else of the framework, else of the accelerator, else of all.
-- Example: select constant, most_specific(constant_value, framework, accelerator) as for_megatron
-- from step_constant where coalesce(framework, 'megatron_core') = 'megatron_core'
-- and accelerator is null group by constant
create or replace macro most_specific(constant_value, framework, accelerator) as
arg_max(
    constant_value,
    case when framework is null then 0 else 2 end
    + case when accelerator is null then 0 else 1 end
);

-- Estimated memory of the same kind as a measured one: tensors (`allocated`), tensors and free
-- blocks of the allocator (`reserved`), else all memory in use on the device. An estimate without
-- the first two has the last.
-- Example: select memory_of_kind('reserved', 70e9, 75e9, 77e9) as bytes
create or replace macro memory_of_kind(kind, allocated_bytes, reserved_bytes, memory_bytes) as
coalesce(
    case kind when 'allocated' then allocated_bytes when 'reserved' then reserved_bytes end,
    memory_bytes
);

-- Mean of values, added in order: its last digits do not depend on the threads of a query.
-- Example: select mean_in_order(time_relative_error) as bias from published_comparison
create or replace macro mean_in_order(error) as
avg(error order by error);

-- Mean size of errors, added in order.
-- Example: select mean_size(time_relative_error) as mean_error from published_comparison
create or replace macro mean_size(error) as
avg(abs(error) order by abs(error));

-- Correlation of two ranks; NULL where all values are equal or there is one.
-- Example: select rank_correlation(year, num_gpus) as correlation from published_training_runs
create or replace macro rank_correlation(predicted_rank, published_rank) as
nullif(
    corr(predicted_rank, published_rank order by predicted_rank, published_rank),
    cast('nan' as double)
);

-- Tail of the normal distribution over its density, of 1 / (1 + 0.2316419 standard deviations).
-- Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.17.
-- Example: select normal_tail_ratio(0.5) as ratio
create or replace macro normal_tail_ratio(t) as
t
* (
    0.319381530
    + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
);

-- Cumulative normal distribution of a number of standard deviations, within 1e-7.
-- Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.17.
-- Example: select normal_cumulative(1.96) as share
create or replace macro normal_cumulative(deviations) as
case when deviations < 0 then 0 else 1 end
+ case when deviations < 0 then 1 else -1 end
* exp(-0.5 * deviations * deviations)
/ sqrt(2 * pi())
* normal_tail_ratio(1 / (1 + 0.2316419 * abs(deviations)));

-- Chance that an estimated memory fits: measured over estimated memory is log-normal, with the mean
-- and deviation of its logarithm.
-- Example: select fit_probability(72e9, 80e9, -0.02, 0.128) as chance
create or replace macro fit_probability(memory_bytes, hbm_bytes, error_mean, error_deviation) as
normal_cumulative((ln(hbm_bytes / nullif(memory_bytes, 0)) - error_mean) / error_deviation);
