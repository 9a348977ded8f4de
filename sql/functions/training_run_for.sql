-- The runs of training_run over asked_tokens tokens, or over their own where that is NULL.
-- Grain: one row per run
--
-- Goodput stands between the time of the steps and that of the run: assumed_goodput, or else a
-- budgeted run's own, or else 1. An estimator's own time is kept where no other tokens are asked
-- for; otherwise a last step that is not full takes as long as any.
create or replace macro training_run_for(asked_tokens, assumed_goodput := null) as table
    with asked as (
        select
            * exclude (dataset_tokens, goodput, training_seconds),
            coalesce(cast(asked_tokens as double), dataset_tokens) as dataset_tokens,
            coalesce(cast(assumed_goodput as double), goodput, 1) as goodput,
            case when asked_tokens is null then training_seconds * coalesce(goodput, 1) end
                as own_seconds
        from training_run
    )

    select
        * exclude (own_seconds),
        coalesce(own_seconds, ceil(dataset_tokens / global_batch_tokens) * step_seconds)
        / goodput as training_seconds,
        num_gpus * training_seconds / 3600 as gpu_hours
    from asked;
