-- The runs of estimated_run over asked_tokens tokens, or over their own where that is NULL.
-- Grain: one row per run
-- Key: cell_id, global_batch_tokens, best_layout
--
-- The time of the run is that of its steps over the goodput: assumed_goodput, or else a budgeted
-- run's value, or else 1. An estimator's time is kept where no other tokens are asked for;
-- otherwise a partial last step takes as long as a full one. run_note says why a run cannot be
-- priced.
-- Example: select model, num_gpus, in_days(training_seconds) as days, gpu_hours from
-- training_run_for(1e12, assumed_goodput := 0.9) where run_note is null limit 5
create or replace macro training_run_for(asked_tokens, assumed_goodput := null) as table
    with argument as (
        select
            argument_within('asked_tokens', asked_tokens, 1e-30, 1e30, 'must be a number above 0')
                as tokens,
            argument_within(
                'assumed_goodput', assumed_goodput, 1e-30, 1, 'must be above 0 and at most 1'
            ) as goodput
    ),

    asked as (
        select
            estimated_run.* exclude (dataset_tokens, goodput, training_seconds),
            coalesce(argument.tokens, estimated_run.dataset_tokens) as dataset_tokens,
            coalesce(argument.goodput, estimated_run.goodput, 1) as goodput,
            case
                when argument.tokens is null
                    then estimated_run.training_seconds * coalesce(estimated_run.goodput, 1)
            end as own_seconds
        from estimated_run
        cross join argument
    ),

    timed as (
        select
            * exclude (own_seconds),
            coalesce(own_seconds, ceil(dataset_tokens / global_batch_tokens) * step_seconds)
            / goodput as training_seconds,
            num_gpus * training_seconds / 3600 as gpu_hours
        from asked
    )

    select
        *,
        case
            when fits_memory = false then 'the GPUs do not hold the model'
            when num_gpus is null then 'the number of GPUs is not known'
            when gpu_hours > 0 then null
            when gpu_hours is not null or step_seconds is null then 'no step is taken'
            when dataset_tokens is null then 'the tokens of the run are not known'
            else 'the tokens of a step are not known'
        end as run_note
    from timed;
