-- The twenty best configurations of each problem and strategy that fit in memory.
-- Grain: one row per configuration that is among the twenty best of its problem and strategy
-- Key: problem_id, estimator, estimator_version, variant, strategy, rank_in_strategy
--
-- configuration_rank has the ranks over all strategies.
select
    * exclude (rank_by_time, rank_in_strategy, rank_in_cell, is_on_front),
    rank_in_strategy
from leading_configuration
where rank_in_strategy is not null
