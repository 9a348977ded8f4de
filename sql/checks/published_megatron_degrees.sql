-- Published runs whose degrees do not multiply to their GPUs, or whose batch does not divide.
select
    model,
    num_gpus,
    tensor_parallel,
    pipeline_parallel,
    data_parallel,
    model_parallel,
    virtual_pipeline,
    num_layers,
    microbatch_size,
    global_batch_size
from published_megatron_scaling
where
    tensor_parallel * pipeline_parallel * data_parallel <> num_gpus
    or tensor_parallel * pipeline_parallel <> model_parallel
    or num_layers % (pipeline_parallel * virtual_pipeline) <> 0
    or num_heads % tensor_parallel <> 0
    or global_batch_size % (data_parallel * microbatch_size) <> 0
