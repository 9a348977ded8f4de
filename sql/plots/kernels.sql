-- Share of the peak that measured matmuls reach, by their smallest dimension.
-- Grain: one row per accelerator, number format and smallest dimension, as a power of two
select
    accelerator,
    number_format,
    cast(pow(2, round(log2(least(product_rows, product_columns, product_depth)))) as integer)
        as smallest_dimension,
    count(*) as num_shapes,
    median(peak_share) as peak_share,
    quantile_cont(peak_share, 0.1) as low_peak_share,
    quantile_cont(peak_share, 0.9) as high_peak_share,
    median(roof_share) as roof_share
from slow_products
where
    peak_share is not null
    and accelerator = $accelerator
    and number_format = $number_format
group by all
order by all
