-- Spellings of models and accelerators, stored or known, and the ids of stored problems.
-- Grain: one row per kind of name, spelling, name and place
-- Key: name_kind, spelling, known_name, spelling_place
--
-- Where a spelling has several rows of a kind, the least spelling_place wins: a name that problems
-- are stored under wins over an alias in other tables. The system of a publication is its product
-- where problems of the product alone are stored.
with stored_product as (
    select
        priced_as.accelerator,
        priced_as.priced_as
    from priced_as
    left join problem on problem.accelerator in (priced_as.accelerator, priced_as.priced_as)
    group by all
    having
        bool_or(problem.accelerator = priced_as.priced_as)
        and not bool_or(problem.accelerator = priced_as.accelerator)
)

select
    'model' as name_kind,
    model as spelling,
    model as known_name,
    1 as spelling_place
from problem_group
union
select
    'model' as name_kind,
    model as spelling,
    model as known_name,
    2 as spelling_place
from model
union
select
    'model' as name_kind,
    alias as spelling,
    model as known_name,
    3 as spelling_place
from model_alias
union
select
    'accelerator' as name_kind,
    accelerator as spelling,
    accelerator as known_name,
    1 as spelling_place
from problem
where accelerator is not null
union
select
    'accelerator' as name_kind,
    system.accelerator as spelling,
    coalesce(stored_product.priced_as, system.accelerator) as known_name,
    2 as spelling_place
from system
left join stored_product on system.accelerator = stored_product.accelerator
union
select
    'accelerator' as name_kind,
    accelerator as spelling,
    accelerator as known_name,
    2 as spelling_place
from accelerator
union
select
    'accelerator' as name_kind,
    accelerator as spelling,
    accelerator as known_name,
    2 as spelling_place
from named_cluster
union
select
    'accelerator' as name_kind,
    alias as spelling,
    accelerator as known_name,
    3 as spelling_place
from accelerator_alias
union
select
    'accelerator' as name_kind,
    accelerator as spelling,
    accelerator as known_name,
    4 as spelling_place
from device
union all
select
    'problem' as name_kind,
    cast(problem_id as varchar) as spelling,
    cast(problem_id as varchar) as known_name,
    1 as spelling_place
from problem
union all
select
    'cell' as name_kind,
    cast(cell_id as varchar) as spelling,
    cast(cell_id as varchar) as known_name,
    1 as spelling_place
from current_cell
