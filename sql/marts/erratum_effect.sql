-- Effect of mends: the best layout of each problem as published and with mends.
-- Grain: one row per problem, estimator and version, mended variant, strategy (all: all at once)
-- Key: problem_id, estimator, estimator_version, variant, strategy
--
-- Only cells that are stored both as published and mended take part, so both sides choose from the
-- same strategies. The published winner is also looked up among the mended layouts: this separates
-- the change of one layout from the gain of choosing another. NULL where no layout fits, or where
-- the mended space lacks the layout.
with best as materialized (
    select *
    from best_of_cell
),

paired as (
    select
        mended.cell_id,
        mended.problem_id,
        mended.estimator,
        mended.estimator_version,
        mended.variant,
        published.coverage.strategy as searched_strategy,
        published.best as published_best,
        published.best_layout as published_layout,
        published.num_layouts as num_published_layouts,
        published.num_fitting_layouts as num_published_fitting_layouts,
        mended.best as mended_best,
        mended.best_layout as mended_layout,
        mended.num_layouts,
        mended.num_fitting_layouts
    from best as mended
    inner join best as published using (problem_id, estimator, coverage)
    where published.variant = 'published' and mended.variant <> 'published'
),

-- the published winner's own row under the mend; most are among the leading rows of the mended cell
leading_layout as materialized (
    select
        paired.cell_id,
        leading_row.step_seconds,
        leading_row.memory_bytes,
        leading_row.fits_memory
    from leading_row
    inner join paired
        on
            leading_row.cell_id = paired.cell_id
            and layout_of(leading_row)
            is not distinct from layout_of(paired.published_best)
    where leading_row.variant <> 'published'
),

unfound as materialized (
    select
        paired.cell_id,
        paired.published_best
    from paired
    anti join leading_layout on paired.cell_id = leading_layout.cell_id
    where paired.published_best is not null
),

-- All rows of few cells: DuckDB filters a scan by a join that compares one column alone. The second
-- condition is always true: without it DuckDB 2 would read all rows once for this and for cells
-- that have no stored leading rows.
other_layout as (
    select
        configuration_source.cell_id,
        configuration_source.step_seconds,
        configuration_source.memory_bytes,
        configuration_source.fits_memory,
        layout_of(configuration_source) as whole_layout
    from configuration_source
    semi join unfound on configuration_source.cell_id = unfound.cell_id
    where
        configuration_source.variant <> 'published'
        and length(configuration_source.variant) > 0
),

same_layout as (
    select *
    from leading_layout
    union all
    select
        other_layout.cell_id,
        other_layout.step_seconds,
        other_layout.memory_bytes,
        other_layout.fits_memory
    from other_layout
    inner join unfound
        on
            other_layout.cell_id = unfound.cell_id
            and other_layout.whole_layout is not distinct from layout_of(unfound.published_best)
),

compared as (
    select
        paired.*,
        case
            when paired.published_best is not null
                then struct_pack(
                    step_seconds := paired.published_best.step_seconds,
                    memory_bytes := paired.published_best.memory_bytes,
                    layout := paired.published_layout,
                    mended_step_seconds := same_layout.step_seconds,
                    mended_memory_bytes := same_layout.memory_bytes,
                    fits_memory := same_layout.fits_memory
                )
        end as published_winner,
        case
            when paired.mended_best is not null
                then struct_pack(
                    step_seconds := paired.mended_best.step_seconds,
                    memory_bytes := paired.mended_best.memory_bytes,
                    layout := paired.mended_layout
                )
        end as mended_winner
    from paired
    left join same_layout on paired.cell_id = same_layout.cell_id
),

winner as (
    select
        problem_id,
        estimator,
        estimator_version,
        variant,
        coalesce(cast(searched_strategy as varchar), 'all') as strategy,
        min(published_winner) as published_winner,
        min(mended_winner) as mended_winner,
        cast(sum(num_published_layouts) as bigint) as num_published_layouts,
        cast(sum(num_published_fitting_layouts) as bigint) as num_published_fitting_layouts,
        cast(sum(num_layouts) as bigint) as num_layouts,
        cast(sum(num_fitting_layouts) as bigint) as num_fitting_layouts
    from compared
    group by
        grouping sets (
            (problem_id, estimator, estimator_version, variant, searched_strategy),
            (problem_id, estimator, estimator_version, variant)
        )
    -- an estimator without strategies has the row of all alone
    having grouping(searched_strategy) = 1 or searched_strategy is not null
)

select
    winner.problem_id,
    winner.estimator,
    winner.estimator_version,
    winner.variant,
    winner.strategy,
    erratum.fault,
    erratum.mend,

    problem.model,
    problem.accelerator,
    problem.nvlink_size,
    problem.num_gpus,
    problem.global_batch_size,

    winner.num_published_layouts,
    winner.num_published_fitting_layouts,
    winner.num_layouts,
    winner.num_fitting_layouts,

    winner.published_winner.layout as published_best_layout,
    winner.mended_winner.layout as best_layout,
    coalesce(published_best_layout, '') <> coalesce(best_layout, '') as is_best_changed,
    winner.published_winner.step_seconds as published_best_step_seconds,
    winner.mended_winner.step_seconds as best_step_seconds,
    best_step_seconds / published_best_step_seconds as best_step_ratio,
    winner.published_winner.memory_bytes as published_best_memory_bytes,
    winner.mended_winner.memory_bytes as best_memory_bytes,
    best_memory_bytes / published_best_memory_bytes as best_memory_ratio,

    winner.published_winner.mended_step_seconds / published_best_step_seconds
        as same_layout_step_ratio,
    winner.published_winner.mended_memory_bytes / published_best_memory_bytes
        as same_layout_memory_ratio,
    winner.published_winner.fits_memory as fits_same_layout
from winner
inner join problem on winner.problem_id = problem.problem_id
left join erratum on winner.estimator = erratum.estimator and winner.variant = erratum.erratum
