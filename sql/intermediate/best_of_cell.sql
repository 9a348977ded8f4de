-- The fastest layout of every cell in force, among those that fit in memory.
-- Grain: one row per cell whose rows are configurations
--
-- NULL where no layout fits; an estimator without a model of memory excludes none. Of layouts that
-- take the same time the one that needs less memory is chosen, then the one with smaller groups in
-- a domain: two variants of a cell choose alike. What was found when the cell was stored is read;
-- what was not is found here.
with found as (
    select stored_best.*
    from stored_best
    inner join cell_state
        on
            stored_best.cell_id = cell_state.cell_id
            and stored_best.sibling_record = cell_state.sibling_record
    union all by name
    select *
    from unstored_best
),

layouts as (
    select
        cell_id,
        num_layouts,
        num_fitting_layouts,
        case
            when num_fitting_layouts > 0
                then struct_pack(
                    step_seconds := step_seconds,
                    training_seconds := training_seconds,
                    memory_bytes := memory_bytes,
                    strategy := strategy,
                    attention := attention,
                    activation_recompute := activation_recompute,
                    data_parallel := data_parallel,
                    tensor_parallel := tensor_parallel,
                    tensor_parallel_2 := tensor_parallel_2,
                    tensor_parallel_external := tensor_parallel_external,
                    context_parallel := context_parallel,
                    sequence_parallel := sequence_parallel,
                    expert_parallel := expert_parallel,
                    pipeline_parallel := pipeline_parallel,
                    virtual_pipeline := virtual_pipeline,
                    uses_sequence_parallel := uses_sequence_parallel,
                    zero_stage := zero_stage,
                    microbatch_size := microbatch_size,
                    num_microbatches := num_microbatches,
                    summa_panels := summa_panels,
                    nvlink_data_parallel := nvlink_data_parallel,
                    nvlink_tensor_parallel := nvlink_tensor_parallel,
                    nvlink_tensor_parallel_2 := nvlink_tensor_parallel_2,
                    nvlink_context_parallel := nvlink_context_parallel,
                    nvlink_pipeline_parallel := nvlink_pipeline_parallel,
                    compute_seconds := compute_seconds,
                    memory_seconds := memory_seconds,
                    tensor_comm_seconds := tensor_comm_seconds,
                    pipeline_comm_seconds := pipeline_comm_seconds,
                    bubble_seconds := bubble_seconds,
                    data_comm_seconds := data_comm_seconds
                )
        end as best
    from found
)

select
    current_cell.cell_id,
    current_cell.problem_id,
    current_cell.estimator,
    current_cell.estimator_version,
    current_cell.mends,
    current_cell.variant,
    current_cell.first_sibling,
    -- what a cell covers of its problem: cells that agree in it can be compared
    struct_pack(
        strategy := current_cell.strategy,
        attention := current_cell.attention,
        activation_recompute := current_cell.activation_recompute,
        virtual_pipeline := current_cell.virtual_pipeline,
        skip_efficiency_check := current_cell.skip_efficiency_check,
        kept := current_cell.kept
    ) as coverage,
    -- such as tensor_1d dp16 tp8 pp32 micro1 (nvlink tp8)
    nullif(
        concat_ws(
            ' ',
            layouts.best.strategy,
            'dp' || layouts.best.data_parallel,
            'tp' || nullif(
                concat_ws(
                    'x', layouts.best.tensor_parallel, nullif(layouts.best.tensor_parallel_2, 1)
                ),
                ''
            ),
            'ext' || nullif(layouts.best.tensor_parallel_external, 1),
            'cp' || nullif(layouts.best.context_parallel, 1),
            'sp' || nullif(layouts.best.sequence_parallel, 1),
            'ep' || nullif(layouts.best.expert_parallel, 1),
            case when layouts.best.uses_sequence_parallel then 'seq' end,
            'pp' || layouts.best.pipeline_parallel,
            'chunks' || nullif(layouts.best.virtual_pipeline, 1),
            'micro' || layouts.best.microbatch_size,
            -- where a microbatch is no whole number of sequences of a replica
            case
                when layouts.best.microbatch_size is null
                    then 'microbatches' || layouts.best.num_microbatches
            end,
            -- where there is a choice of it
            case
                when layouts.best.uses_sequence_parallel is not null
                    then 'zero' || layouts.best.zero_stage
            end,
            'panels' || nullif(layouts.best.summa_panels, 0),
            'recompute ' || nullif(layouts.best.activation_recompute, 'none'),
            'attention ' || nullif(layouts.best.attention, 'flash'),
            '(nvlink ' || nullif(
                concat_ws(
                    ' ',
                    'dp' || nullif(layouts.best.nvlink_data_parallel, 1),
                    'tp' || nullif(
                        nullif(
                            concat_ws(
                                'x',
                                layouts.best.nvlink_tensor_parallel,
                                nullif(layouts.best.nvlink_tensor_parallel_2, 1)
                            ),
                            '1'
                        ),
                        ''
                    ),
                    'cp' || nullif(layouts.best.nvlink_context_parallel, 1),
                    'pp' || nullif(layouts.best.nvlink_pipeline_parallel, 1)
                ),
                ''
            ) || ')'
        ),
        ''
    ) as best_layout,
    coalesce(layouts.num_layouts, 0) as num_layouts,
    coalesce(layouts.num_fitting_layouts, 0) as num_fitting_layouts,
    layouts.best
from current_cell
left join layouts on current_cell.cell_id = layouts.cell_id
-- a cell of another grain has rows, but no configurations
where layouts.num_layouts > 0 or current_cell.num_rows = 0
