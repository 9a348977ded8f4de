-- Published training runs of the models that table model has.
-- Grain: one row per published run or pre-training with known GPU-hours
-- Key: run_kind, model, organization, num_gpus
--
-- known_model is the run's model by its name in table model: capitals, spaces and hyphens may
-- differ. Number format, recipe and batch (the last one, where it grew) are NULL where no source
-- says. GPU-hours without a published figure are GPUs times time. Source:
-- published_training_runs, with a source in every row.
with named as (
    select
        folded_name(model) as folded,
        model as known_model
    from model
    union
    select
        folded_name(alias) as folded,
        model as known_model
    from model_alias
),

hours as (
    select
        *,
        coalesce(gpu_hours, num_gpus * training_seconds / 3600) as all_gpu_hours
    from published_training_runs
    where run_kind in ('run', 'pre-training')
)

select
    named.known_model,
    hours.model,
    hours.run_kind,
    hours.year,
    hours.organization,
    hours.accelerator,
    hours.num_gpus,
    hours.dataset_tokens,
    hours.published_precision,
    hours.number_recipe,
    hours.global_batch_size,
    hours.all_gpu_hours as gpu_hours,
    hours.all_gpu_hours / hours.dataset_tokens * 1e12 as gpu_hours_per_trillion_tokens,
    hours.source,
    hours.note
from hours
inner join named on folded_name(hours.model) = named.folded
where hours.all_gpu_hours is not null and hours.dataset_tokens is not null
