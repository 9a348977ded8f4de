-- The fastest layout of every problem that fits in memory, over all its cells in force.
-- Grain: one row per problem, estimator, estimator_version and variant
--
-- NULL where no layout fits. Where no cell has the whole space, but evaluated rows or degrees that
-- a study keeps, is_whole_space is false: the best of few layouts is not that of a search.
with found as (
    select
        problem_id,
        estimator,
        estimator_version,
        variant,
        bool_or(coverage['kept'] = '{}') as is_whole_space,
        cast(sum(num_layouts) as bigint) as num_layouts,
        cast(sum(num_fitting_layouts) as bigint) as num_fitting_layouts,
        -- the first field of the first field decides: the least time
        min(struct_pack(best := best, best_layout := best_layout, cell_id := cell_id))
        filter (where best is not null) as fastest
    from best_of_cell
    group by problem_id, estimator, estimator_version, variant
)

select
    problem_id,
    estimator,
    estimator_version,
    variant,
    is_whole_space,
    num_layouts,
    num_fitting_layouts,
    fastest['best'] as best,
    fastest['best_layout'] as best_layout,
    fastest['cell_id'] as cell_id
from found
