-- Priced runs of training_run_for, grouped by model, system and number of GPUs.
-- Grain: one row per model, system, assumptions, tokens and number of GPUs
-- Key: estimator, variant, model, model_shape, seq_len, accelerator, system_changes, assumptions,
-- is_lower_bound, dataset_tokens, num_gpus
--
-- Shapes, not names, tell models apart. The runs of a group are counted: the cheapest (fewest
-- GPU-hours), with its time, layout and power, the median and the dearest. each_num_gpus := false
-- makes one group of all numbers of GPUs: num_gpus is then that of the cheapest run. A run that
-- several cells hold counts once; runs with a run_note are left out, and those that are less likely
-- to fit in memory than others of their group. only_id keeps the runs of one
-- cell or problem, only_num_gpus those on that number of GPUs, only_seq_len those of that sequence
-- length.
-- Example: select model, accelerator, num_runs, num_gpus, lowest_gpu_hours from
-- training_run_group_for(1e12, only_num_gpus := 4096) order by lowest_gpu_hours limit 5
create or replace macro training_run_group_for(
    asked_tokens,
    assumed_goodput := null,
    only_id := null,
    only_num_gpus := null,
    only_seq_len := null,
    each_num_gpus := true
) as table
    with asked as (
        select
            *,
            case when each_num_gpus then num_gpus end as group_num_gpus,
            row_number() over (partition by run_id, dataset_tokens order by cell_id) as place
        from training_run_for(asked_tokens, assumed_goodput := assumed_goodput)
        where
            run_note is null
            and (only_id is null or only_id in (cell_id, problem_id))
            and (only_num_gpus is null or only_num_gpus = num_gpus)
            and (only_seq_len is null or only_seq_len = seq_len)
    ),

    -- a run that is less likely to fit than another of its group is no cheaper choice
    sure as (
        select *
        from asked
        where place = 1
        qualify
            fit_risk = min(fit_risk) over (
                partition by
                    estimator,
                    variant,
                    model,
                    model_shape,
                    seq_len,
                    accelerator,
                    is_published_system,
                    system_changes,
                    assumptions,
                    priced_as,
                    is_lower_bound,
                    dataset_tokens,
                    group_num_gpus
            )
    ),

    run_group as (
        select
            estimator,
            variant,
            model,
            model_shape,
            seq_len,
            accelerator,
            is_published_system,
            system_changes,
            assumptions,
            priced_as,
            is_lower_bound,
            dataset_tokens,
            group_num_gpus,
            count(*) as num_runs,
            min(gpu_hours) as lowest_gpu_hours,
            quantile_disc(gpu_hours, 0.5) as median_gpu_hours,
            max(gpu_hours) as highest_gpu_hours,
            -- of runs that take as long, the one on fewest GPUs
            min_by(
                struct_pack(
                    num_gpus := num_gpus,
                    training_seconds := training_seconds,
                    best_layout := best_layout,
                    slot_watts := slot_watts
                ),
                struct_pack(
                    gpu_hours := gpu_hours, num_gpus := num_gpus, best_layout := best_layout
                )
            ) as cheapest
        from sure
        group by all
    )

    select
        * exclude (group_num_gpus, cheapest),
        struct_extract(cheapest, 'num_gpus') as num_gpus,
        struct_extract(cheapest, 'training_seconds') as training_seconds,
        struct_extract(cheapest, 'best_layout') as best_layout,
        struct_extract(cheapest, 'slot_watts') as slot_watts
    from run_group;
