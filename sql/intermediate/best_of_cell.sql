-- The fastest layout of every cell in force, among those that fit in memory.
-- Grain: one row per cell whose rows are configurations
-- Key: cell_id
--
-- NULL where no layout fits; an estimator without a model of memory excludes none. layout_order
-- breaks ties, so that two variants of a cell choose alike. stored_best has the layouts, found in
-- the transaction that stored the cell: a search here would take most of the time to plan views.
with layouts as (
    select
        cell_id,
        sibling_record,
        num_layouts,
        num_fitting_layouts,
        case when num_fitting_layouts > 0 then evaluated_layout(stored_best) end as best
    from stored_best
)

select
    current_cell.cell_id,
    current_cell.problem_id,
    current_cell.estimator,
    current_cell.estimator_version,
    current_cell.mends,
    current_cell.variant,
    current_cell.first_sibling,
    -- choices and kept values of the cell: cells with the same ones can be compared
    struct_pack(
        strategy := current_cell.strategy,
        attention := current_cell.attention,
        activation_recompute := current_cell.activation_recompute,
        virtual_pipeline := current_cell.virtual_pipeline,
        schedule := current_cell.schedule,
        pipeline_layout := current_cell.pipeline_layout,
        layers_in_first_stage := current_cell.layers_in_first_stage,
        layers_in_last_stage := current_cell.layers_in_last_stage,
        counts_embedding := current_cell.counts_embedding,
        counts_loss := current_cell.counts_loss,
        microbatch_group := current_cell.microbatch_group,
        skip_efficiency_check := current_cell.skip_efficiency_check,
        kept := current_cell.kept
    ) as coverage,
    layout_in_words(layouts.best) as best_layout,
    coalesce(layouts.num_layouts, 0) as num_layouts,
    coalesce(layouts.num_fitting_layouts, 0) as num_fitting_layouts,
    layouts.best
from current_cell
left join layouts
    on
        current_cell.cell_id = layouts.cell_id
        and current_cell.sibling_record = layouts.sibling_record
-- a cell of another grain has rows, but no configurations
where layouts.num_layouts > 0 or current_cell.num_rows = 0
