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
    },
    "activation_recompute": {
        **dict.fromkeys(("no", "false", "off", "0", "disabled"), "none"),
        **dict.fromkeys(("true", "yes", "on", "1", "uniform", "block"), "full"),
    },
}
