-- Errata that are mended without a formula, have a formula without being mended, or appear twice.
select
    erratum,
    estimator,
    mend,
    is_mended
from erratum
where (mend is not null) <> is_mended
union all
select
    erratum,
    estimator,
    any_value(mend) as mend,
    any_value(is_mended) as is_mended
from erratum
group by erratum, estimator
having count(*) > 1
