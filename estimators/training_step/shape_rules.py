"""The rules of a decoder's shape: latent attention, mixtures, windows."""

from __future__ import annotations

import numpy as np

from estimators.contract import Values
from estimators.divisors import divisors
from estimators.rules import Rule, at_most, divides, nearest


def _has_plain_heads(values: Values) -> np.ndarray:
    head = values["head_size"]
    plain = np.equal(values["qk_head_size"], head) & np.equal(values["v_head_size"], head)
    without = np.equal(values["q_lora_rank"], 0) & np.equal(values["qk_rotary_size"], 0)
    return np.asarray(plain & without)


def _has_whole_heads(values: Values) -> np.ndarray:
    """Return where heads have a size, or share the width without remainder.

    Numbers below 1 are left to the limits of their columns.
    """
    width, heads = values["hidden_size"], values["num_heads"]
    known = ~np.isnan(values["head_size"]) | np.less(heads, 1) | np.less(width, 1)
    return np.asarray(known | np.equal(width % np.maximum(heads, 1), 0))


WHOLE_HEADS = Rule(
    "heads share the width without remainder",
    "num_heads",
    ("num_heads", "hidden_size", "head_size"),
    _has_whole_heads,
    lambda row: f"does not divide `hidden_size` {row['hidden_size']}, and no `head_size` is given",
    lambda row: (
        "give `head_size`, or use `num_heads` "
        f"{nearest(divisors(int(row['hidden_size'])), int(row['num_heads']))}"
    ),
)
"""Rule of a shape as it was given, before heads have their default size."""

SHAPE_RULES = (
    Rule(
        "only latent attention has heads of two widths",
        "kv_lora_rank",
        (
            *("kv_lora_rank", "q_lora_rank", "head_size", "qk_head_size", "qk_rotary_size"),
            "v_head_size",
        ),
        lambda v: np.greater(v["kv_lora_rank"], 0) | _has_plain_heads(v),
        lambda row: (
            f"has no latent, and `q_lora_rank` {row['q_lora_rank']}, `qk_head_size` "
            f"{row['qk_head_size']}, `qk_rotary_size` {row['qk_rotary_size']} or `v_head_size` "
            f"{row['v_head_size']} is that of latent attention"
        ),
        lambda _row: "give `kv_lora_rank`, or leave them out",
    ),
    Rule(
        "each period of a mixture has one layer with experts",
        "num_dense_layers",
        ("num_dense_layers", "moe_period", "num_layers", "num_experts"),
        lambda v: (
            np.equal(v["moe_period"], 1)
            | np.equal(v["num_experts"], 1)
            | np.equal(
                v["num_dense_layers"],
                v["num_layers"] - v["num_layers"] // np.maximum(v["moe_period"], 1),
            )
        ),
        lambda row: (
            f"is not what `moe_period` {row['moe_period']} leaves of `num_layers` "
            f"{row['num_layers']}"
        ),
    ),
    divides("route_groups", "num_experts"),
    at_most("no more kept groups than groups", "route_groups_kept", "route_groups"),
    Rule(
        "a window period needs a window",
        "window_period",
        ("window_period", "attention_window"),
        lambda v: np.equal(v["window_period"], 0) | np.greater(v["attention_window"], 0),
        lambda _row: "needs `attention_window`, which is 0",
        lambda _row: "give `attention_window`, or use 0",
    ),
)
"""Rules of the columns of `estimators.columns.shape`."""
