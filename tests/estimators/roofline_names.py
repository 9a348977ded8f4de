"""What the program that was published with arXiv 2410.00273 calls what we call otherwise."""

from __future__ import annotations

OPERATIONS = {
    "fc1": "fc1",
    "fc1-bias": "fc1_bias",
    "act1": "activation",
    "dpr1": "ffn_dropout",
    "fc2": "fc2",
    "fc2-bias": "fc2_bias",
    "dpr2": "ffn_output_dropout",
    "ln1": "layer_norm_1",
    "qkv": "qkv",
    "fusedla": "attention",
    "logits": "logits",
    "softmax": "softmax",
    "dpr_at": "attention_dropout",
    "attend": "attend",
    "vproj": "projection",
    "vproj-bias": "projection_bias",
    "dpr_v": "attention_output_dropout",
    "ln2": "layer_norm_2",
}
"""The source's name of each operation -> ours, in the order of a layer."""
