-- Steps of training_step whose bubble contradicts the schedule.
--
-- The bubble is not stored: it is the step less its other parts. Without a pipeline it is 0. In a
-- pipeline of even stages each other stage is filled and drained once, in chunks (arXiv 2104.04473
-- section 2.2): the bubble is that many microbatches of a stage. A stage has the work of the last
-- one without the output layer. One with the embedding may take a tenth longer: stages of one layer
-- with few tokens, where most of its time goes to the gradients of the vocabulary. Stages that are
-- balanced by their products (balances_stages) have unequal layers: their bubble is only not
-- negative.
-- Interleaved chunks that hide the exchange of experts run one pass forward more before the first
-- backward (Megatron-LM get_pp_rank_microbatches): their bubble is only not negative as well.
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
        (pipeline_parallel - 1) / virtual_pipeline as num_waits
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
    num_waits * (arithmetic_seconds - output_seconds) as least_bubble_seconds,
    num_waits * 1.1 * (arithmetic_seconds + comm_seconds) as most_bubble_seconds
from waited
where
    left_seconds < -1e-9 * step_seconds
    or (pipeline_parallel = 1 and left_seconds > 1e-9 * step_seconds)
    or (
        num_layers % pipeline_parallel = 0
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
            where
                problem.balances_stages
                or (
                    waited.virtual_pipeline > 1
                    and problem.num_experts > 1
                    and problem.overlaps_expert_comm
                )
        )
        and (
            left_seconds < least_bubble_seconds - 1e-9 * step_seconds
            or left_seconds > most_bubble_seconds + 1e-9 * step_seconds
        )
    )
