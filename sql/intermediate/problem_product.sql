-- The product whose constants and recipes a problem of a program should have.
-- Grain: one row per problem with a framework
-- Key: problem_id
--
-- An accelerator is found by any of its names. One that no table has may be based on a product, but
-- its problems do not name it. Of the products with as many multiprocessors, it is the one from
-- whose constants the problem's differ least. NULL where the constants of all accelerators differ
-- no more.
select
    stored_problem.problem_id,
    stored_problem.product
from stored_problem
inner join problem on stored_problem.problem_id = problem.problem_id
where problem.framework is not null
