-- Steps of training_step whose bubble contradicts the schedule.
--
-- The bubble is not stored: it is the step less its other parts. It is never negative, and 0
-- without a pipeline. In a pipeline of even stages without chunks each other stage is filled and
-- drained once (arXiv 2104.04473 section 2.2): the bubble is that many microbatches of a stage. A
-- stage has the work of the one that sets the pace without the vocabulary. Those at the ends may
-- take a tenth more or less, where stages have one layer and few tokens: most of their time goes to
-- the gradients of the vocabulary. Where these take long the first stage does not wait for the last
-- forward passes of the others: more than half of a stage is left. Chunks make the bubble depend on
-- which end sets the pace, and stages that are balanced by their matmuls (balances_stages) have
-- unequal layers.
with waited as (
    select
        *,
        step_seconds
        - compute_seconds
        - memory_seconds
        - tensor_comm_seconds
        - pipeline_comm_seconds
        - data_comm_seconds as left_seconds,
        (compute_seconds + memory_seconds - optimizer_seconds) / num_microbatches
            as arithmetic_seconds,
        tensor_comm_seconds / num_microbatches as comm_seconds,
        vocabulary_seconds / num_microbatches as output_seconds,
        pipeline_parallel - 1 as num_waits
    from stg_training_step
)

select
    cell_id,
    problem_id,
    data_parallel,
    tensor_parallel,
    pipeline_parallel,
    virtual_pipeline,
    microbatch_size,
    step_seconds,
    left_seconds,
    num_waits
    * case when output_seconds > 0.2 * arithmetic_seconds then 0.6 else 0.9 end
    * (arithmetic_seconds - output_seconds) as least_bubble_seconds,
    num_waits * 1.1 * (arithmetic_seconds + comm_seconds) as most_bubble_seconds
from waited
where
    left_seconds < -1e-9 * step_seconds
    or (pipeline_parallel = 1 and left_seconds > 1e-9 * step_seconds)
    or (
        num_layers % pipeline_parallel = 0
        and virtual_pipeline = 1
        -- others fill the bubble, or have stages of their own size
        and schedule = '1f1b'
        and pipeline_layout is null
        and layers_in_first_stage is null
        and layers_in_last_stage is null
        and not coalesce(counts_embedding, false)
        and not coalesce(counts_loss, false)
        and problem_id not in (
            select problem.problem_id
            from problem
            where problem.balances_stages
        )
        and (
            left_seconds < least_bubble_seconds - 1e-9 * step_seconds
            or left_seconds > most_bubble_seconds + 1e-9 * step_seconds
        )
    )
