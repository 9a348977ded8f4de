-- Problems of two estimators that ask the same: shape, accelerator, numbers of GPUs and sequences.
-- Grain: one row per pair of problems of two estimators, the first of them first by name
--
-- Everything that both say has to be equal; what only one of them knows (a vocabulary, constants of
-- a framework) tells nothing apart. Left out are systems that are not their accelerator's as
-- published: their attributes do not compare.
with asked as (
    select distinct
        current_cell.estimator,
        problem.problem_id,
        accelerator_spelling.accelerator,
        problem_group.num_gpus,
        problem.nvlink_size,
        problem.global_batch_size,
        problem.seq_len,
        problem.num_layers,
        problem.hidden_size,
        coalesce(problem.ffn_hidden_size, problem.internal_size) as ffn_hidden_size,
        problem.num_heads,
        problem.num_kv_heads,
        coalesce(problem.uses_glu, problem.use_glu) as uses_glu,
        coalesce(problem.num_experts, 1) as num_experts
    from current_cell
    inner join problem on current_cell.problem_id = problem.problem_id
    inner join problem_group on current_cell.problem_id = problem_group.problem_id
    inner join accelerator_spelling on problem.accelerator = accelerator_spelling.spelling
    where problem_group.is_published_system
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
        and coalesce(asked.ffn_hidden_size = another.ffn_hidden_size, true)
        and coalesce(asked.num_heads = another.num_heads, true)
        and coalesce(asked.num_kv_heads = another.num_kv_heads, true)
        and coalesce(asked.uses_glu = another.uses_glu, true)
