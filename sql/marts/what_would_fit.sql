-- The smallest number of GPUs whose memory holds a model, and the best layout there.
-- Grain: one row per capacity_id, estimator, estimator_version and variant
-- Key: capacity_id, estimator, estimator_version, variant
--
-- Only evaluated numbers of GPUs count, over all evaluated sizes of the NVLink domain. Problems
-- that differ in another attribute have rows of their own (capacity_id). fit_note says why there is
-- no number, and whether fewer GPUs may do: fewer were not evaluated, or were not searched as
-- widely. Only a search of the whole space shows that nothing fits.
with place as (
    select
        best_of_problem.*,
        problem_group.capacity_id,
        problem_group.model,
        problem_group.model_shape,
        problem_group.accelerator,
        problem_group.system_changes,
        problem_group.assumptions,
        problem_group.global_batch_size,
        problem_group.nvlink_size,
        problem_group.num_gpus,
        problem_group.hbm_bytes,
        string_split(best_of_problem.searched, '; ') as choices
    from best_of_problem
    inner join problem_group on best_of_problem.problem_id = problem_group.problem_id
),

smallest as (
    select
        capacity_id,
        estimator,
        estimator_version,
        variant,
        any_value(model) as model,
        model_shape,
        accelerator,
        list(struct_pack(num_gpus := num_gpus, choices := choices)) as places,
        any_value(system_changes) as system_changes,
        any_value(assumptions) as assumptions,
        any_value(hbm_bytes) as hbm_bytes,
        global_batch_size,
        cast(sum(num_layouts) as bigint) as num_layouts,
        min(num_gpus) filter (where num_layouts > 0) as lowest_num_gpus,
        max(num_gpus) filter (where num_layouts > 0) as highest_num_gpus,
        bool_and(is_whole_space) filter (where num_layouts > 0) as is_all_whole_space,
        bool_or(best['memory_bytes'] is null and best['step_seconds'] is not null)
            as is_without_memory,
        -- the first field decides, then the time
        min(
            struct_pack(
                num_gpus := num_gpus,
                step_seconds := best['step_seconds'],
                nvlink_size := nvlink_size,
                memory_bytes := best['memory_bytes'],
                best_layout := best_layout,
                problem_id := problem_id,
                is_whole_space := is_whole_space,
                choices := choices,
                num_fitting_layouts := num_fitting_layouts
            )
        ) filter (where best['memory_bytes'] is not null and num_gpus is not null) as fit
    from place
    group by all
),

asked as (
    select
        *,
        -- each choice without its kept values: its whole space includes the restricted one
        list_transform(
            fit['choices'],
            lambda choice:
            coalesce(nullif(regexp_replace(choice, ' ?\{.*$', ''), ''), 'all layouts')
        ) as whole_choices,
        list_transform(
            list_filter(
                places,
                lambda place:
                list_has_all(place['choices'], fit['choices'])
                or list_has_all(place['choices'], whole_choices)
            ),
            lambda place: place['num_gpus']
        ) as numbers_searched
    from smallest
)

select
    estimator,
    estimator_version,
    variant,
    model,
    model_shape,
    accelerator,
    system_changes,
    assumptions,
    hbm_bytes,
    global_batch_size,
    capacity_id,

    fit['num_gpus'] as smallest_num_gpus,
    fit['nvlink_size'] as nvlink_size,
    fit['best_layout'] as best_layout,
    fit['step_seconds'] as best_step_seconds,
    fit['memory_bytes'] as best_memory_bytes,
    fit['memory_bytes'] / hbm_bytes as memory_use_fraction,
    fit['num_fitting_layouts'] as num_fitting_layouts,
    fit['is_whole_space'] as is_whole_space,
    fit['problem_id'] as problem_id,

    lowest_num_gpus,
    highest_num_gpus,
    num_layouts,
    case
        when fit['num_gpus'] = lowest_num_gpus
            then 'the smallest number that was evaluated: fewer may do'
        when
            len(
                list_filter(
                    places,
                    lambda place:
                    place['num_gpus'] < fit['num_gpus']
                    and not list_contains(numbers_searched, place['num_gpus'])
                )
            ) > 0
            then 'fewer GPUs were not searched as widely: they may do'
        when fit is not null then null
        when is_without_memory then 'the estimator has no model of memory'
        when num_layouts = 0 then 'no layout was evaluated'
        else
            case
                when is_all_whole_space then 'no layout fits on '
                else 'no layout that was evaluated fits on '
            end
            || concat_ws(' to ', lowest_num_gpus, nullif(highest_num_gpus, lowest_num_gpus))
            || ' GPUs'
    end as fit_note
from asked
