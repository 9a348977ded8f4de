-- Memory of one GPU by part, whether it fits, and how many GPUs there are.
-- Grain: one row per model, sequences held at once and way to shard its state
-- Key: cell_id, {cluster_memory}
select
    *,
    tensor_parallel * pipeline_parallel * data_parallel as num_gpus,
    memory_bytes / hbm_bytes as hbm_fraction
from stg_cluster_memory
