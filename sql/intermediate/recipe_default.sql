-- Choices that the recipe of its program makes for a problem where nothing else is asked.
-- Grain: one row per problem whose program has recipes
-- Key: problem_id
--
-- Table expert_default has choices for a framework, for its accelerator, for a model there, and for
-- that under a recipe of number formats: the last of these counts. A row with a release counts for
-- earlier releases; of several, the one with the earliest release counts. NULL where the row keeps
-- the general default. Parts that cannot be recomputed are not chosen: projections of latents where
-- there are none, and norms and activations under delayed scales.
with asked as (
    select
        problem.problem_id,
        problem.framework,
        problem.number_recipe,
        problem.framework_release,
        coalesce(problem.kv_lora_rank, 0) > 0 as has_latents,
        coalesce(problem_product.product, problem.accelerator) as accelerator,
        problem.model
    from problem
    inner join problem_product on problem.problem_id = problem_product.problem_id
),

recipe as (
    select
        *,
        split_part(expert_default, ' until ', 1) as place
    from expert_default
),

-- few questions, however many problems
question as (
    select distinct
        framework,
        accelerator,
        model,
        number_recipe,
        framework_release,
        unnest([
            concat_ws('@', framework, accelerator, model, number_recipe),
            concat_ws('@', framework, accelerator, model),
            concat_ws('@', framework, accelerator),
            framework
        ]) as place,
        unnest(range(4)) as place_order
    from asked
),

chosen as (
    select
        question.framework,
        question.accelerator,
        question.model,
        question.number_recipe,
        question.framework_release,
        min_by(
            struct_pack(
                expert_default := recipe.expert_default,
                overlapped_expert_fraction := recipe.overlapped_expert_fraction,
                uses_cuda_graphs := recipe.uses_cuda_graphs,
                captures_attention := recipe.captures_attention,
                captures_whole_steps := recipe.captures_whole_steps,
                quantizes_output_layer := recipe.quantizes_output_layer,
                recompute_modules := recipe.recompute_modules
            ),
            row(question.place_order, coalesce(recipe.before_release, 'infinity'))
        ) as choice
    from question
    inner join recipe on question.place = recipe.place
    where
        recipe.before_release is null
        or question.framework_release < recipe.before_release
    group by
        question.framework,
        question.accelerator,
        question.model,
        question.number_recipe,
        question.framework_release
)

select
    asked.problem_id,
    chosen.choice.expert_default,
    chosen.choice.overlapped_expert_fraction,
    chosen.choice.uses_cuda_graphs,
    chosen.choice.captures_attention,
    chosen.choice.captures_whole_steps,
    chosen.choice.quantizes_output_layer,
    case
        when
            (contains(chosen.choice.recompute_modules, 'mla_up_proj') and not asked.has_latents)
            or (
                asked.number_recipe = 'delayed'
                and regexp_matches(chosen.choice.recompute_modules, 'layernorm|moe_act')
            )
            then null
        else chosen.choice.recompute_modules
    end as recompute_modules
from asked
inner join chosen
    on
        asked.framework = chosen.framework
        and asked.accelerator is not distinct from chosen.accelerator
        and asked.model is not distinct from chosen.model
        and asked.number_recipe is not distinct from chosen.number_recipe
        and asked.framework_release is not distinct from chosen.framework_release
