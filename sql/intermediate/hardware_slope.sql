-- Elasticity of the best time of a point of a hardware sweep to each swept attribute.
-- Grain: one row per point and attribute that varies in its family
-- Key: study, problem_id, estimator, estimator_version, variant, attribute
--
-- An elasticity is d ln(best time) / d ln(attribute): -1 where twice the rate halves the time, 0
-- where it changes nothing. It is taken between the two neighbours on the line through the point
-- along which nothing else changes. At an end of the line, and next to a point without a layout
-- that fits, it is taken between the point and its one neighbour. Attributes whose values rise
-- together throughout the family are coupled: they change together on its lines.
with attributes as (
    select *
    from problem
    unpivot (
        amount for attribute in (
            nvlink_size,
            matrix_flops_per_second,
            vector_flops_per_second,
            hbm_bytes_per_second,
            hbm_bytes,
            nvlink_bytes_per_second,
            nvlink_efficiency,
            nvlink_latency_seconds,
            network_bytes_per_second,
            network_efficiency,
            network_latency_seconds,
            nics_per_gpu,
            flops_efficiency,
            launch_seconds
        )
    )
),

point_attribute as (
    select
        hardware_point.*,
        attributes.attribute,
        attributes.amount
    from hardware_point
    inner join attributes on hardware_point.problem_id = attributes.problem_id
),

varied as (
    select
        family_id,
        attribute
    from point_attribute
    group by family_id, attribute
    having min(amount) < max(amount)
),

placed as (
    select
        point_attribute.*,
        point_attribute.best.step_seconds as best_step_seconds,
        dense_rank() over (
            partition by point_attribute.family_id, point_attribute.attribute
            order by point_attribute.amount
        ) as place
    from point_attribute
    inner join varied using (family_id, attribute)
),

coupled as (
    select
        placed.family_id,
        placed.attribute,
        another.attribute as companion,
        bool_and(placed.place = another.place) as is_coupled
    from placed
    inner join placed as another using (family_id, problem_id)
    group by placed.family_id, placed.attribute, another.attribute
),

grouped as (
    select
        family_id,
        attribute,
        string_agg(companion, ' + ' order by companion) filter (
            where is_coupled
        ) as coupled_attributes,
        list(companion) filter (where not is_coupled) as unchanged
    from coupled
    group by family_id, attribute
),

-- where a line runs: all that does not change along it
fixed as (
    select
        placed.family_id,
        placed.problem_id,
        placed.attribute,
        list(another.place order by another.attribute) as places
    from placed
    inner join grouped using (family_id, attribute)
    left join placed as another
        on
            placed.family_id = another.family_id
            and placed.problem_id = another.problem_id
            and list_contains(grouped.unchanged, another.attribute)
    group by placed.family_id, placed.problem_id, placed.attribute
),

neighbours as (
    select
        placed.*,
        grouped.coupled_attributes,
        lag(placed.amount) over line as lower_amount,
        lead(placed.amount) over line as upper_amount,
        lag(placed.best_step_seconds) over line as lower_seconds,
        lead(placed.best_step_seconds) over line as upper_seconds
    from placed
    inner join grouped using (family_id, attribute)
    inner join fixed using (family_id, problem_id, attribute)
    window line as (
        partition by placed.family_id, placed.attribute, fixed.places
        order by placed.amount
    )
),

ends as (
    select
        *,
        case when lower_seconds is null then amount else lower_amount end as from_amount,
        case when upper_seconds is null then amount else upper_amount end as to_amount,
        coalesce(lower_seconds, best_step_seconds) as from_seconds,
        coalesce(upper_seconds, best_step_seconds) as to_seconds
    from neighbours
)

select
    family_id,
    study,
    problem_id,
    estimator,
    estimator_version,
    variant,
    num_layouts,
    num_fitting_layouts,
    best,
    attribute,
    amount,
    coupled_attributes,
    case
        when best_step_seconds is not null and from_amount > 0 and from_amount < to_amount
            then ln(to_seconds / from_seconds) / ln(to_amount / from_amount)
    end as elasticity
from ends
