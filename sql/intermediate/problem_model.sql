-- Name of the model of a problem, and the shape that identifies it.
-- Grain: one row per problem
-- Key: problem_id
--
-- A model of table `model` keeps its name while its shape is that of its row; differences follow
-- the name. A model without a name is called by its parameters, its shape or its FLOPs. Names are
-- rounded: equal shapes, not equal names, make models the same.
select
    problem_id,
    model,
    model_shape
from stored_problem
