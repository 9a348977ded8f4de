-- How many published steps lie within the intervals of their estimates, and how wide those are.
-- Grain: one row per estimator, variant, reference table and group of its rows
-- Key: estimator, variant, reference, published_group
--
-- Nine in ten should lie inside. Rows of a cluster share their errors, so that a group has about as
-- many independent rows as clusters. Chance alone leaves fewer than least_inside_share of them
-- inside in less than one case of twenty (binomial): is_missed marks a group below. The places are
-- counts of rows: beyond the fast end, to the middle of that side, to the estimate, to the middle
-- of the slow side, to the slow end, beyond it. Many rows on one side mean a bias, many beyond both
-- ends intervals that are too narrow. Means are of sorted values, so that their last digits do not
-- depend on the threads of a query.
with grouped as (
    select
        reference,
        published_group,
        estimator,
        variant,
        count(*) as num_rows,
        count(distinct error_cluster) as num_error_clusters,
        avg(cast(is_inside_interval as double)) as inside_fraction,
        avg(interval_width order by interval_width) as mean_interval_width,
        avg(interval_score order by interval_score) as mean_interval_score,
        concat_ws(
            ' ',
            count_if(interval_place < -1),
            count_if(interval_place >= -1 and interval_place < -0.5),
            count_if(interval_place >= -0.5 and interval_place < 0),
            count_if(interval_place >= 0 and interval_place < 0.5),
            count_if(interval_place >= 0.5 and interval_place <= 1),
            count_if(interval_place > 1)
        ) as interval_places
    from interval_comparison
    group by reference, published_group, estimator, variant
),

possible as (
    select distinct
        num_error_clusters,
        unnest(generate_series(0, num_error_clusters)) as num_inside
    from grouped
),

-- the probability that k of n are inside
likely as (
    select
        num_error_clusters,
        num_inside,
        exp(
            lgamma(num_error_clusters + 1)
            - lgamma(num_inside + 1)
            - lgamma(num_error_clusters - num_inside + 1)
        )
        * pow(0.9, num_inside)
        * pow(0.1, num_error_clusters - num_inside) as probability
    from possible
),

cumulated as (
    select
        num_error_clusters,
        num_inside,
        sum(probability) over (partition by num_error_clusters order by num_inside)
            as probability_so_far
    from likely
),

least as (
    select
        num_error_clusters,
        min(num_inside) / num_error_clusters as least_inside_share
    from cumulated
    where probability_so_far >= 0.05
    group by num_error_clusters
)

select
    grouped.reference,
    grouped.published_group,
    grouped.estimator,
    grouped.variant,
    grouped.num_rows,
    grouped.num_error_clusters,
    grouped.inside_fraction,
    least.least_inside_share,
    grouped.inside_fraction < least.least_inside_share as is_missed,
    grouped.mean_interval_width,
    grouped.mean_interval_score,
    grouped.interval_places
from grouped
inner join least on grouped.num_error_clusters = least.num_error_clusters
