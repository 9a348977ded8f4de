-- The best layout of every problem, over all its cells in force.
-- Grain: one row per problem, estimator, estimator_version and variant
-- Key: problem_id, estimator, estimator_version, variant
--
-- The fastest that is likely to fit in memory, else the likeliest (macro layout_order). NULL where
-- no layout fits. is_whole_space is false where no cell covers the whole space, only
-- evaluated files or kept degrees: the best of few layouts is not the result of a search. Problems
-- with the same `searched` are searched as widely: it holds the choices whose whole space is
-- stored, or else the kept values. Choices that it does not name are fused attention, no
-- recomputation, one chunk a stage and 1F1B over even stages.
with cell as (
    select
        *,
        coalesce(
            nullif(
                concat_ws(
                    ' ',
                    coverage['strategy'],
                    'attention ' || nullif(coverage['attention'], 'flash'),
                    'recompute ' || case
                        when
                            coverage['strategy'] is null
                            or coverage['activation_recompute'] <> 'none'
                            then coverage['activation_recompute']
                    end,
                    'vp ' || nullif(coverage['virtual_pipeline'], 1),
                    'schedule ' || nullif(coverage['schedule'], '1f1b'),
                    'stages ' || coverage['pipeline_layout'],
                    'first ' || coverage['layers_in_first_stage'],
                    'last ' || coverage['layers_in_last_stage'],
                    case when coverage['counts_embedding'] then 'counts embedding' end,
                    case when coverage['counts_loss'] then 'counts loss' end,
                    'group ' || coverage['microbatch_group'],
                    case when coverage['skip_efficiency_check'] then 'inefficient ones too' end,
                    nullif(coverage['kept'], '{}')
                ),
                ''
            ),
            'all layouts'
        ) as covered
    from best_of_cell
),

-- siblings share their rows: where the whole space is stored, they widen nothing
question as (
    select
        problem_id,
        estimator,
        estimator_version,
        variant,
        first_sibling,
        bool_or(coverage['kept'] = '{}') as is_whole_space,
        coalesce(
            any_value(covered) filter (where coverage['kept'] = '{}'),
            string_agg(distinct covered, '; ' order by covered)
        ) as searched,
        sum(num_layouts) as num_layouts,
        sum(num_fitting_layouts) as num_fitting_layouts,
        -- the first field decides: as the layouts rank
        min(
            struct_pack(
                place := row(best['fit_risk'], time_order(best), best['strategy'], cell_id),
                best := best,
                best_layout := best_layout,
                cell_id := cell_id
            )
        ) filter (where best is not null) as fastest
    from cell
    group by problem_id, estimator, estimator_version, variant, first_sibling
),

found as (
    select
        problem_id,
        estimator,
        estimator_version,
        variant,
        bool_or(is_whole_space) as is_whole_space,
        coalesce(
            string_agg(searched, '; ' order by searched) filter (where is_whole_space),
            string_agg(searched, '; ' order by searched)
        ) as searched,
        cast(sum(num_layouts) as bigint) as num_layouts,
        cast(sum(num_fitting_layouts) as bigint) as num_fitting_layouts,
        min(fastest) as fastest
    from question
    group by problem_id, estimator, estimator_version, variant
)

select
    problem_id,
    estimator,
    estimator_version,
    variant,
    is_whole_space,
    searched,
    num_layouts,
    num_fitting_layouts,
    fastest['best'] as best,
    fastest['best_layout'] as best_layout,
    fastest['cell_id'] as cell_id
from found
