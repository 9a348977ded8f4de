"""Columns of a decoder's shape beyond width and depth: latent attention, windows, mixtures."""

from __future__ import annotations

from estimators.columns.column import Column, count


def _size(name: str, meaning: str, unit: str = "", neutral: int | None = 0) -> Column:
    """Return a column of a size that a model may lack: 0."""
    return Column(name, "int", unit, meaning, minimum=0, neutral=neutral)


LATENT_ATTENTION = (
    _size("q_lora_rank", "Width of the latent that queries are made of; 0: the residual stream"),
    _size(
        "kv_lora_rank",
        "Width of the latent that keys and values are made of; 0: no multi-head latent attention",
    ),
    count("qk_head_size", "Width of a head's queries and keys without their rotary part"),
    _size("qk_rotary_size", "Width of the rotary part that all heads of latent keys share"),
    count("v_head_size", "Width of a head's values"),
)
"""Multi-head latent attention, arXiv 2405.04434 section 2.1."""

MIXTURE = (
    _size(
        "shared_ffn_hidden_size", "Width of the experts that every token passes through", "", None
    ),
    count("moe_period", "Layers of which the last has experts; 1: all that are not dense"),
    _size("num_mtp_layers", "Layers that predict tokens after the next one"),
    count("route_groups", "Groups of experts that the router chooses among", neutral=1),
    count("route_groups_kept", "Most groups from which the experts of one token may come"),
)

WINDOWS = (
    _size(
        "attention_window",
        "Tokens that a windowed layer attends to; 0: all earlier tokens",
        "tokens",
    ),
    _size("window_period", "Layers of which the last has no window; 0: all have it"),
    Column(
        "uses_chunked_attention",
        "bool",
        "",
        "Whether a windowed layer attends within chunks of the sequence, not to the last tokens",
    ),
)

SMALL = tuple(
    Column(name, "bool", "", meaning)
    for name, meaning in (
        ("uses_qk_norm", "Whether queries and keys of each head are normalized, with weights"),
        (
            "uses_attention_sinks",
            "Whether each head has a score without a key, which takes weight from the keys",
        ),
        ("uses_linear_bias", "Whether the products of the layers have biases"),
        ("uses_gate_clamp", "Whether both halves of a gated layer are clamped"),
        (
            "uses_yarn",
            "Whether YaRN stretches the rotary positions and scales their sines and cosines",
        ),
        ("uses_router_bias", "Whether the router has a bias for each expert"),
    )
)
"""Columns that add few parameters; exact counts need them."""

SHAPE_DETAILS = (*LATENT_ATTENTION, *MIXTURE, *WINDOWS, *SMALL)
