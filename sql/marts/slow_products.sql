-- Measured matmuls: the share of the peak, and of the roof, that each shape reaches.
-- Grain: one row per accelerator, number format and shape of a matmul
-- Key: accelerator, number_format, product_rows, product_columns, product_depth
--
-- The roof of a matmul is the peak in its format, or the bandwidth of memory times its FLOPs a
-- byte, whichever is less: each operand is read once and the result written in 16 bits. A matmul
-- is slow if its share of the roof is low. If only the share of the peak is low, memory may bind.
with work as (
    select
        *,
        2.0 * product_rows * product_columns * product_depth as product_flops,
        case number_format when 'bf16' then 2 when 'nvfp4' then 0.5 else 1 end
        * (cast(product_rows as double) + product_columns) * product_depth
        + 2.0 * product_rows * product_columns as moved_bytes
    from matrix_product_rate
),

product as (
    select
        work.*,
        accelerator.hbm_bytes_per_second,
        case work.number_format
            when 'bf16' then accelerator.bf16_flops_per_second
            when 'nvfp4' then accelerator.fp4_flops_per_second
            else accelerator.fp8_flops_per_second
        end as peak_flops_per_second
    from work
    inner join accelerator on work.accelerator = accelerator.accelerator
)

select
    accelerator,
    number_format,
    product_rows,
    product_columns,
    product_depth,
    product_flops / product_flops_per_second as product_seconds,
    product_flops_per_second,
    product_flops_per_second / peak_flops_per_second as peak_share,
    product_flops_per_second
    / least(peak_flops_per_second, hbm_bytes_per_second * product_flops / moved_bytes)
        as roof_share,
    rate_spread,
    num_programs
from product
