-- Rank of each published layout among all layouts evaluated for its problem.
-- Grain: one row per published measurement, estimator and variant
-- Key: reference, published_row, estimator, variant
--
-- The rank is one more than the number of faster layouts that are likely to fit in memory. It is
-- NULL where the published layout itself does not fit by the estimate. A layout includes its NVLink
-- placement.
with published as materialized (
    select
        reference,
        published_row,
        model,
        estimator,
        estimator_version,
        variant,
        problem_id,
        num_gpus,
        activation_recompute,
        step_seconds,
        fits_memory
    from published_comparison
    -- without layouts there is nothing to rank; the measured ones were evaluated, not searched
    where data_parallel is not null and reference <> 'published_measurement'
),

evaluated as (
    select
        published.reference,
        published.published_row,
        published.estimator,
        published.variant,
        configuration.fits_memory,
        -- the macros take the whole row
        is_likely_to_fit(configuration) as is_likely, -- noqa: RF02
        configuration.step_seconds < published.step_seconds as is_faster,
        configuration.activation_recompute = published.activation_recompute
            as is_same_recompute,
        -- compared field by field, so that ties are broken the same way every time
        struct_pack(
            fit_risk := fit_risk(configuration), -- noqa: RF02
            step_seconds := configuration.step_seconds,
            strategy := configuration.strategy,
            tensor_parallel := configuration.tensor_parallel,
            tensor_parallel_2 := configuration.tensor_parallel_2,
            context_parallel := configuration.context_parallel,
            pipeline_parallel := configuration.pipeline_parallel,
            virtual_pipeline := configuration.virtual_pipeline,
            data_parallel := configuration.data_parallel,
            microbatch_size := configuration.microbatch_size,
            activation_recompute := configuration.activation_recompute
        ) as layout
    from published
    inner join measured_cell using (problem_id, estimator, estimator_version, variant)
    inner join configuration on measured_cell.cell_id = configuration.cell_id
    -- always true: DuckDB 2 would keep all rows in memory, once for this and for the comparison
    where length(configuration.variant) > 0
),

counted as (
    select
        reference,
        published_row,
        estimator,
        variant,
        count(*) as num_layouts,
        count(*) filter (where fits_memory) as num_fitting_layouts,
        1 + count(*) filter (where is_likely and is_faster) as rank_by_time,
        1 + count(*) filter (where is_likely and is_faster and is_same_recompute)
            as rank_in_recompute,
        min(layout) filter (where fits_memory) as best
    from evaluated
    group by reference, published_row, estimator, variant
)

select
    published.reference,
    published.published_row,
    published.model,
    published.estimator,
    published.estimator_version,
    published.variant,
    published.problem_id,
    published.num_gpus,
    counted.num_layouts,
    counted.num_fitting_layouts,
    published.fits_memory,
    case when published.fits_memory then counted.rank_by_time end as rank_by_time,
    case when published.fits_memory then counted.rank_in_recompute end
        as rank_in_recompute,
    published.step_seconds,
    counted.best.step_seconds as best_step_seconds,
    published.step_seconds / counted.best.step_seconds as speedup_of_best,
    counted.best.strategy as best_strategy,
    counted.best.data_parallel as best_data_parallel,
    counted.best.tensor_parallel as best_tensor_parallel,
    counted.best.tensor_parallel_2 as best_tensor_parallel_2,
    counted.best.context_parallel as best_context_parallel,
    counted.best.pipeline_parallel as best_pipeline_parallel,
    counted.best.virtual_pipeline as best_virtual_pipeline,
    counted.best.microbatch_size as best_microbatch_size,
    counted.best.activation_recompute as best_activation_recompute
from published
inner join counted using (reference, published_row, estimator, variant)
