-- The twenty best configurations of each problem that fit in memory, the best first.
-- Grain: one row per configuration that is among the twenty best of its problem
-- Key: problem_id, estimator, estimator_version, variant, rank_by_time
--
-- ranked_layouts(n) has more ranks. Memory excludes only layouts that are known not to fit. Table
-- leading_row says how ties are broken.
select
    * exclude (rank_by_time, rank_in_strategy, rank_in_cell, is_on_front),
    rank_by_time
from leading_configuration
where rank_by_time is not null
