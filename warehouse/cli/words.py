"""A layout in a line, and times that are nothing but rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHORT = {
    "data_parallel": "dp",
    "tensor_parallel": "tp",
    "tensor_parallel_2": "x",
    "context_parallel": "cp",
    "expert_parallel": "ep",
    "pipeline_parallel": "pp",
    "virtual_pipeline": "chunks",
    "microbatch_size": "micro",
    "zero_stage": "zero",
    "summa_panels": "panels",
}
_ALWAYS = ("data_parallel", "tensor_parallel", "pipeline_parallel", "microbatch_size")

ROUNDING = 1e-9
"""Share of a step below which a time is what rounding left of none: sums of the same parts in
another order differ by some 1e-16 of them, and no part that is modelled is as short."""


def layout_in_words(layout: Mapping[str, Any]) -> str:
    """Return a layout in words, as view best_of_cell has them."""
    words = [str(layout["strategy"])] if layout.get("strategy") else []
    for name, short in _SHORT.items():
        value = layout.get(name)
        if value is not None and (name in _ALWAYS or value not in (0, 1)):
            words.append(f"{short}{value}")
    if layout.get("zero_stage") == 1:
        words.append("zero1")
    if layout.get("uses_sequence_parallel"):
        words.append("sp")
    if layout["activation_recompute"] != "none":
        words.append(f"recompute {layout['activation_recompute']}")
    return " ".join(words)


def unless_rounding(seconds: float, step_seconds: float) -> float:
    """Return a part of a step, or 0 where it is nothing but rounding."""
    return 0.0 if abs(seconds) < ROUNDING * step_seconds else seconds
