"""Choices as other programs spell them, in small letters with underscores."""

from __future__ import annotations

SPELLINGS: dict[str, dict[str, str]] = {
    "attention": {
        **dict.fromkeys(("flash_attention", "flash_attn", "flash2", "flash_2"), "flash"),
        **dict.fromkeys(("flash_attention_2", "fused", "sdpa", "triton", "te", "cudnn"), "flash"),
        **dict.fromkeys(("flashattention", "flashattention_2", "flashattention_3"), "flash"),
        **dict.fromkeys(("standard", "math", "scaled_masked_softmax"), "unfused"),
        **dict.fromkeys(("core", "eager", "torch", "local", "softmax", "naive"), "unfused"),
    },
    "precision": {
        **dict.fromkeys(("bfloat16", "bf16_mixed", "amp_bf16", "mixed_bf16"), "bf16"),
        **dict.fromkeys(("float16", "half", "fp16_mixed", "amp_fp16"), "fp16"),
        **dict.fromkeys(("float8", "fp8_mixed", "amp_fp8", "e4m3", "fp8_hybrid"), "fp8"),
        **dict.fromkeys(("nvfp4", "float4", "nvfp4_mixed", "e2m1"), "fp4"),
    },
    "number_recipe": {
        **dict.fromkeys(("current", "cs", "current_scaling", "fp8_cs"), "tensorwise"),
        **dict.fromkeys(("delayed_scaling", "ds", "fp8_ds"), "delayed"),
        **dict.fromkeys(("block", "subchannel", "fp8_sc", "block_scaling"), "blockwise"),
        **dict.fromkeys(("mx", "fp8_mx", "mxfp8_mixed"), "mxfp8"),
        **dict.fromkeys(("fp4", "nvfp4_mixed"), "nvfp4"),
        **dict.fromkeys(("bf16", "no"), "none"),
    },
    "dispatcher": {
        **dict.fromkeys(("deepep", "deep_ep", "hybridep", "hybrid_ep"), "flex"),
        **dict.fromkeys(("all_to_all", "a2a"), "alltoall"),
        **dict.fromkeys(("all_gather", "ag"), "allgather"),
    },
    "schedule": {
        **dict.fromkeys(("zbh1", "zero_bubble_h1"), "zb_h1"),
        **dict.fromkeys(("zbh2", "zero_bubble_h2"), "zb_h2"),
        **dict.fromkeys(("zb_v", "zero_bubble_v"), "zbv"),
        **dict.fromkeys(("dual_pipe",), "dualpipe"),
        **dict.fromkeys(("dual_pipe_v", "dualpipe_v"), "dualpipev"),
        **dict.fromkeys(("1f1b_interleaved", "interleaved_1f1b", "interleaved"), "1f1b"),
    },
    "activation_recompute": {
        **dict.fromkeys(("no", "false", "off", "0", "disabled"), "none"),
        **dict.fromkeys(("true", "yes", "on", "1", "uniform", "block"), "full"),
    },
}
