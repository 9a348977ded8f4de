-- Where a published layout lies among all layouts of its problem that fit in memory.
-- Grain: one row per published measurement, estimator and variant
--
-- The spread is that of the step time of the layouts, relative to the fastest of them.
with published as materialized (
    select *
    from megatron_layout_rank
    where
        rank_by_time is not null
        and num_fitting_layouts >= 20
        and estimator = $estimator
        and variant = $variant
        and model = $model
        and reference = $reference
),

spread as (
    select
        published.reference,
        published.published_row,
        published.estimator,
        published.variant,
        min(configuration.step_seconds) as least_seconds,
        quantile_cont(configuration.step_seconds, [0.1, 0.25, 0.5, 0.75, 0.9]) as quantiles
    from published
    inner join measured_cell using (problem_id, estimator, estimator_version, variant)
    inner join configuration on measured_cell.cell_id = configuration.cell_id
    where configuration.fits_memory
    group by all
)

select
    published.estimator,
    published.variant,
    published.reference,
    published.published_row,
    published.model,
    published.num_gpus,
    published.num_fitting_layouts,
    published.rank_by_time,
    published.speedup_of_best,
    spread.quantiles[1] / spread.least_seconds as fastest_tenth,
    spread.quantiles[2] / spread.least_seconds as fastest_quarter,
    spread.quantiles[3] / spread.least_seconds as median,
    spread.quantiles[4] / spread.least_seconds as slowest_quarter,
    spread.quantiles[5] / spread.least_seconds as slowest_tenth
from published
inner join spread using (reference, published_row, estimator, variant)
order by published.num_gpus, published.published_row
