"""Names that other programs and papers give to a column's quantity.

No input is read under them, since some stand for several quantities ("bandwidth"). An unknown name
is looked up here, so that its error can say which column was meant. Those of models are the keys of
Hugging Face's ``config.json``; those of layouts are the options of Megatron-Core and DeepSpeed.
"""

from __future__ import annotations

OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "num_layers": ("layers", "n_layers", "num_hidden_layers", "depth"),
    "hidden_size": ("hidden", "d_model", "n_embd", "width"),
    "ffn_hidden_size": ("ffn", "d_ff", "intermediate_size"),
    "num_heads": ("heads", "n_heads", "num_attention_heads"),
    "num_kv_heads": ("kv_heads", "n_kv_heads", "num_key_value_heads", "num_query_groups"),
    "head_size": ("head_dim", "kv_channels"),
    "vocab_size": ("vocab", "vocabulary"),
    "seq_len": ("seq_length", "sequence_length", "context_length", "max_position_embeddings"),
    "num_experts": ("experts", "n_routed_experts", "num_local_experts"),
    "experts_per_token": ("top_k", "num_experts_per_tok", "moe_router_topk"),
    "expert_ffn_hidden_size": ("moe_intermediate_size", "moe_ffn_hidden_size"),
    "ties_embedding": ("tie_word_embeddings",),
    "accelerator": ("gpu", "gpu_type", "device", "hardware", "chip"),
    "dataset_tokens": ("tokens", "num_tokens", "train_tokens"),
    "num_gpus": ("gpus", "n_gpus", "world_size"),
    "gpus_per_node": ("node_size",),
    "nvlink_size": ("nvlink_domain", "domain"),
    "global_batch_size": ("batch", "batch_size", "gbs", "train_batch_size"),
    "matrix_flops_per_second": ("flops", "tflops", "peak", "peak_flops", "flops_per_second"),
    "fp8_flops_per_second": ("fp8_flops", "fp8_tflops"),
    "hbm_bytes": ("hbm", "memory", "vram", "gpu_memory", "hbm_size"),
    "hbm_bytes_per_second": ("bandwidth", "hbm_bandwidth", "memory_bandwidth"),
    "nvlink_bytes_per_second": ("bandwidth", "nvlink", "nvlink_bandwidth"),
    "network_bytes_per_second": ("bandwidth", "network", "network_bandwidth", "infiniband"),
    "power_limit_watts": ("power", "tdp", "watts", "power_limit"),
    "tensor_parallel": ("tensor_model_parallel_size", "tensor_parallel_size"),
    "pipeline_parallel": ("pipeline_model_parallel_size", "pipeline_parallel_size", "stages"),
    "data_parallel": ("data_parallel_size", "replicas"),
    "context_parallel": ("cp", "context_parallel_size"),
    "expert_parallel": ("ep", "expert_model_parallel_size"),
    "expert_tensor_parallel": ("etp", "expert_tensor_parallel_size"),
    "virtual_pipeline": ("chunks", "vpp", "virtual_pipeline_model_parallel_size", "interleaving"),
    "microbatch_size": ("mbs", "micro_batch_size", "train_micro_batch_size_per_gpu"),
    "num_microbatches": ("gradient_accumulation_steps", "accumulation_steps"),
    "uses_sequence_parallel": ("sequence_parallel", "sp"),
    "activation_recompute": ("recompute", "recompute_granularity", "activation_checkpointing"),
    "precision": ("dtype", "number_format"),
}
"""Column -> its other names, in lower case."""
