"""The figures of "One layout, file by file" in docs/training_step.md are those of the estimator."""

from __future__ import annotations

from pathlib import Path

from warehouse import Warehouse

PAGE = Path(__file__).parent.parent / "docs" / "training_step.md"

LAYOUT = {
    "model": "llama3_70B",
    "accelerator": "H100",
    "num_gpus": 64,
    "tensor_parallel": 8,
    "pipeline_parallel": 4,
    "global_batch_size": 256,
}


def test_one_layout_has_the_figures_of_the_page() -> None:
    [found] = Warehouse().evaluate("training_step", [LAYOUT]).to_dicts()
    text = PAGE.read_text("utf-8")
    _, _, walk = text.partition("## One layout, file by file\n")
    walk, _, _ = walk.partition("\n## ")

    bubble, between = found["bubble_seconds"], found["pipeline_comm_seconds"]
    replicas, optimizer = found["data_comm_seconds"], found["optimizer_seconds"]
    step = found["step_seconds"]
    passes = step - replicas - optimizer
    assert f"{passes - bubble - between:.3f} + {bubble:.3f} + {between:.3f} = {passes:.3f}" in walk
    assert f"| {replicas:.3f} + {optimizer:.3f} s |" in walk
    assert f"| {step:.3f} s |" in walk
    assert f"| {found['relative_clock']:.3f}: matmuls" in walk
    parts = ("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes")
    sizes = [found[name] / 1e9 for name in parts]
    rest = found["memory_bytes"] / 1e9 - sum(sizes)
    shown = " + ".join(f"{size:.1f}" for size in (*sizes, rest))
    assert f"{shown} = {found['memory_bytes'] / 1e9:.1f} GB" in walk
