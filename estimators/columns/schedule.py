"""Columns of a pipeline's schedule: where layers are, and in which order microbatches pass."""

from __future__ import annotations

from estimators.columns.column import MEGATRON, Column, count, text

SCHEDULE = (
    text(
        "schedule",
        "Order of the passes in a pipeline: one forward and one backward in turn, or one that "
        "fills its bubbles",
        *("1f1b", "zb_h1", "zb_h2", "zbv", "dualpipe", "dualpipev"),
        short="schedule ",
        neutral="1f1b",
        is_optional=True,
        in_layout=True,
    ),
    Column(
        "pipeline_layout",
        "str",
        "",
        "Layers of each stage as letters: E embedding, t layer, m layer of further tokens, L loss, "
        "| next stage",
        "NVIDIA/Megatron-LM @d98e8a64 pipeline_parallel_layer_layout.py",
        short="stages ",
        is_optional=True,
        in_layout=True,
    ),
    count(
        "layers_in_first_stage",
        "Layers of the first pipeline stage; NULL: as many as others",
        short="first",
        is_optional=True,
        in_layout=True,
    ),
    count(
        "layers_in_last_stage",
        "Layers of the last pipeline stage; NULL: as many as others",
        short="last",
        is_optional=True,
        in_layout=True,
    ),
    Column(
        "counts_embedding",
        "bool",
        "",
        "Whether the embedding takes the place of a layer in the first stage",
        short="counts embedding",
        neutral=False,
        is_optional=True,
        in_layout=True,
    ),
    Column(
        "counts_loss",
        "bool",
        "",
        "Whether the loss takes the place of a layer in the last stage",
        short="counts loss",
        neutral=False,
        is_optional=True,
        in_layout=True,
    ),
    count(
        "microbatch_group",
        "Microbatches that an interleaved chunk takes in a row; NULL: as many as stages",
        source=MEGATRON,
        short="group",
        is_optional=True,
        in_layout=True,
    ),
)
