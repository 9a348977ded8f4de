-- The best layout of every cell in force, among those that fit in memory.
-- Grain: one row per cell whose rows are configurations
-- Key: cell_id
--
-- The fastest that is likely to fit, else the likeliest. NULL where no layout fits; an estimator
-- without a model of memory excludes none. layout_order breaks ties, so that two variants of a cell
-- choose alike.
with fastest as (
    select
        cell_id,
        evaluated_layout(leading_row) as best
    from leading_row
    where rank_in_cell = 1
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
    layout_in_words(fastest.best) as best_layout,
    current_cell.num_layouts,
    current_cell.num_fitting_layouts,
    fastest.best
from current_cell
left join fastest on current_cell.cell_id = fastest.cell_id
-- a cell of another grain has rows, but no configurations
where current_cell.num_layouts > 0 or current_cell.num_rows = 0
