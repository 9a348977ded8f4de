-- Where the layouts that were published rank among all layouts evaluated for that problem.
-- Grain: one row per published measurement, estimator and variant
--
-- A rank is one more than the number of faster layouts that fit; it is NULL where the published
-- layout itself does not fit in memory by the estimate. A layout includes its NVLink placement.
with evaluated as (
    select
        megatron_comparison.reference,
        megatron_comparison.published_row,
        megatron_comparison.estimator,
        megatron_comparison.variant,
        configuration.fits_memory,
        configuration.step_seconds < megatron_comparison.step_seconds as is_faster,
        configuration.activation_recompute = megatron_comparison.activation_recompute
            as is_same_recompute,
        -- compared field by field, so that ties are broken the same way every time
        struct_pack(
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
    from megatron_comparison
    inner join configuration
        on
            megatron_comparison.problem_id = configuration.problem_id
            and megatron_comparison.estimator = configuration.estimator
            and megatron_comparison.estimator_version = configuration.estimator_version
            and megatron_comparison.variant = configuration.variant
    -- without layouts there is nothing to rank
    where megatron_comparison.data_parallel is not null
),

counted as (
    select
        reference,
        published_row,
        estimator,
        variant,
        count(*) as num_layouts,
        count(*) filter (where fits_memory) as num_fitting_layouts,
        1 + count(*) filter (where fits_memory and is_faster) as rank_by_time,
        1 + count(*) filter (where fits_memory and is_faster and is_same_recompute)
            as rank_in_recompute,
        min(layout) filter (where fits_memory) as best
    from evaluated
    group by reference, published_row, estimator, variant
)

select
    megatron_comparison.reference,
    megatron_comparison.published_row,
    megatron_comparison.model,
    megatron_comparison.estimator,
    megatron_comparison.estimator_version,
    megatron_comparison.variant,
    megatron_comparison.problem_id,
    megatron_comparison.num_gpus,
    counted.num_layouts,
    counted.num_fitting_layouts,
    megatron_comparison.fits_memory,
    case when megatron_comparison.fits_memory then counted.rank_by_time end as rank_by_time,
    case when megatron_comparison.fits_memory then counted.rank_in_recompute end
        as rank_in_recompute,
    megatron_comparison.step_seconds,
    counted.best.step_seconds as best_step_seconds,
    megatron_comparison.step_seconds / counted.best.step_seconds as speedup_of_best,
    counted.best.strategy as best_strategy,
    counted.best.data_parallel as best_data_parallel,
    counted.best.tensor_parallel as best_tensor_parallel,
    counted.best.tensor_parallel_2 as best_tensor_parallel_2,
    counted.best.context_parallel as best_context_parallel,
    counted.best.pipeline_parallel as best_pipeline_parallel,
    counted.best.virtual_pipeline as best_virtual_pipeline,
    counted.best.microbatch_size as best_microbatch_size,
    counted.best.activation_recompute as best_activation_recompute
from megatron_comparison
inner join counted
    on
        megatron_comparison.reference = counted.reference
        and megatron_comparison.published_row = counted.published_row
        and megatron_comparison.estimator = counted.estimator
        and megatron_comparison.variant = counted.variant
