-- Problems of two estimators that ask the same: shape, accelerator, numbers of GPUs and sequences.
-- Grain: one row per pair of problems of two estimators, the first of them first by name
-- Key: estimator, problem_id, other_estimator, other_problem_id
--
-- All that both problems state has to be equal, rates and sizes of the system included: a published
-- A100 has three quarters of the bandwidth of the product. Columns that only one of them has (a
-- vocabulary, the constants of a framework) are ignored. Widths of feed-forward layers are
-- multiplied by their number of matrices before the comparison: two, or three where gated. Unless a
-- problem states otherwise, there is no gate, there are as many key and value heads as heads, and
-- the heads together are as wide as the model. Left out are systems that differ from their
-- accelerator as published, calibrated profiles, and constants that differ from table
-- step_constant.
with asked as (
    select distinct
        current_cell.estimator,
        problem.problem_id,
        accelerator_spelling.accelerator,
        problem_group.num_gpus,
        problem.nvlink_size,
        problem.global_batch_size,
        problem.seq_len,
        problem.vocab_size,
        problem.num_layers,
        problem.hidden_size,
        case when coalesce(problem.uses_glu, problem.use_glu, false) then 3 else 2 end
        * coalesce(problem.ffn_hidden_size, problem.internal_size) as ffn_width,
        problem.num_heads,
        coalesce(
            problem.num_kv_heads,
            case when problem.multi_query_attention then 1 end,
            problem.num_heads
        ) as num_kv_heads,
        problem.num_heads
        * coalesce(problem.head_size, problem.hidden_size // problem.num_heads)
            as attention_width,
        coalesce(problem.num_experts, 1) as num_experts,
        problem.experts_per_token,
        coalesce(
            problem.bytes_per_element,
            problem.precision_bits / 8,
            case problem.precision
                when 'fp4' then 0.5 when 'fp8' then 1 when 'bf16' then 2 when 'fp16' then 2
            end
        ) as element_bytes,
        problem.matrix_flops_per_second,
        coalesce(problem.hbm_bytes_per_second, problem.memory_bytes_per_second)
            as hbm_bytes_per_second,
        -- the memory that a driver shows counts as the product's
        coalesce(
            case when problem.hbm_bytes = accelerator.device_bytes then accelerator.hbm_bytes end,
            problem.hbm_bytes
        ) as hbm_bytes,
        problem.nvlink_bytes_per_second,
        -- table device counts both ways together
        case when problem.flops_8bit_per_second is null then problem.network_bytes_per_second end
            as network_bytes_per_second,
        problem.nics_per_gpu
    from current_cell
    inner join problem on current_cell.problem_id = problem.problem_id
    inner join problem_group on current_cell.problem_id = problem_group.problem_id
    inner join accelerator_spelling on problem.accelerator = accelerator_spelling.spelling
    inner join accelerator on accelerator_spelling.accelerator = accelerator.accelerator
    where
        problem_group.is_published_system
        and coalesce(problem.profile, 'default') = 'default'
        and problem_group.num_changed_step_constants = 0
)

select
    asked.estimator,
    asked.problem_id,
    another.estimator as other_estimator,
    another.problem_id as other_problem_id,
    asked.accelerator
from asked
inner join asked as another
    on
        asked.accelerator = another.accelerator
        and asked.num_gpus = another.num_gpus
        and asked.global_batch_size = another.global_batch_size
        and asked.seq_len = another.seq_len
        and asked.num_layers = another.num_layers
        and asked.hidden_size = another.hidden_size
        and asked.num_experts = another.num_experts
        and asked.estimator < another.estimator
        and coalesce(asked.nvlink_size = another.nvlink_size, true)
        and coalesce(asked.vocab_size = another.vocab_size, true)
        and coalesce(asked.ffn_width = another.ffn_width, true)
        and coalesce(asked.num_heads = another.num_heads, true)
        and coalesce(asked.num_kv_heads = another.num_kv_heads, true)
        and coalesce(asked.attention_width = another.attention_width, true)
        and coalesce(asked.experts_per_token = another.experts_per_token, true)
        and coalesce(asked.element_bytes = another.element_bytes, true)
        and coalesce(asked.matrix_flops_per_second = another.matrix_flops_per_second, true)
        and coalesce(asked.hbm_bytes_per_second = another.hbm_bytes_per_second, true)
        and coalesce(asked.hbm_bytes = another.hbm_bytes, true)
        and coalesce(asked.nvlink_bytes_per_second = another.nvlink_bytes_per_second, true)
        and coalesce(asked.network_bytes_per_second = another.network_bytes_per_second, true)
        and coalesce(asked.nics_per_gpu = another.nics_per_gpu, true)
