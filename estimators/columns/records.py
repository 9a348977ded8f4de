"""Columns of records and reference tables."""

from __future__ import annotations

from estimators.columns.column import (
    MEGATRON,
    Column,
    count,
    fraction,
    identifier,
    measure,
    positive,
    text,
)
from estimators.columns.forms import IDENTIFIER, PLAIN, SERVER_POWER

RECORD = (
    identifier("problem_id", "Content hash of the problem"),
    identifier("cell_id", "Content hash of the cell"),
    text("relation", "Fact table that the cell's rows are in"),
    text("estimator", "Estimator that made the row"),
    Column(
        "estimator_version",
        "int",
        "",
        "Version of the estimator that made the row",
        minimum=1,
        shown_as=IDENTIFIER,
    ),
    text("mends", "Erratum ids whose mended formula was used, comma-separated; empty: none"),
    text("variant", "published (no mend), corrected (every mend) or the list of mends"),
    Column(
        "is_default_variant",
        "bool",
        "",
        "Whether the variant is the default one: corrected, or published where an estimator has no "
        "mends",
    ),
    text("kept", "Layout columns held to one value by the study, as JSON; {} is the whole space"),
    Column(
        "is_superseded",
        "bool",
        "",
        "Whether a newer version of the estimator has the whole space of the same names of model, "
        "system, GPUs and batch, with other defaults: views do not show the cell",
    ),
    Column(
        "is_repeated",
        "bool",
        "",
        "Whether an earlier sibling of the cell has the same layout: views show it from there",
    ),
    Column(
        "num_rows",
        "int",
        "rows",
        "Rows: of a cell, a study, a comparison",
        storage="BIGINT",
        minimum=0,
    ),
    Column(
        "sibling",
        "int",
        "",
        "Place of a cell among its siblings, the cells in force that answer the same question: "
        "the whole space first. NULL: a newer version replaces the cell, and views do not show it",
        storage="BIGINT",
        minimum=1,
    ),
    count("num_siblings", "Cells that answer the same question", storage="BIGINT"),
    Column("first_sibling", "int", "", "Least cell_id among the siblings", storage="BIGINT"),
    text("study", "Name of the study"),
    text("study_file", "File the study was read from"),
    text("definition", "The study as JSON, ranges expanded"),
    Column("num_cells", "int", "cells", "Cells of the study", storage="BIGINT", minimum=0),
    Column("created_at", "time", "", "When the record was made (UTC)"),
    Column("evaluated_at", "time", "", "When the rows were committed (UTC)"),
)

REFERENCE = (
    text("source", "Where the row's figures were published"),
    text("note", "Remark on the row"),
    text("alias", "Another spelling of a name"),
    count("product_rows", "Rows of the result of a product", unit="rows"),
    count("product_columns", "Columns of the result of a product"),
    count("product_depth", "Inner size of a product: columns of its first operand"),
    positive("product_flops_per_second", "FLOP/s", "Rate of a product that was timed alone"),
    measure("rate_spread", "", "Half the range of the times between programs, over their median"),
    Column(
        "follows_waves", "bool", "", "Whether the time of products follows whole waves of tiles"
    ),
    count("num_programs", "Programs that measured"),
    positive(
        "bf16_flops_per_second", "FLOP/s", "Peak dense BF16 rate; FP16 where there is no BF16"
    ),
    positive("fp8_flops_per_second", "FLOP/s", "Peak dense FP8 rate; NULL where there is none"),
    positive("fp4_flops_per_second", "FLOP/s", "Peak dense FP4 rate; NULL where there is none"),
    text(
        "architecture", "Generation of the GPU's design: products of one share their instructions"
    ),
    positive(
        "device_bytes",
        "bytes",
        "Memory of one GPU as its driver shows it; NULL where nobody read it. hbm_bytes is as sold",
    ),
    positive(
        "measured_max_matmul_flops_per_second", "FLOP/s", "Largest measured rate of BF16 products"
    ),
    count("gpus_per_node", "GPUs in one fast domain as sold: a server or a rack", "GPUs"),
    positive("nic_bytes_per_second", "bytes/s", "Network bandwidth of one GPU, one way"),
    positive("tdp_watts", "watts", "Thermal design power of one accelerator"),
    positive(
        "server_watts_per_gpu",
        "watts",
        "Power of a server at full load, for one GPU",
        shown_as=SERVER_POWER,
    ),
    text("server_watts_source", "Where server_watts_per_gpu comes from"),
    positive("purchase_usd", "USD", "Price of one accelerator"),
    text("price_source", "Where purchase_usd comes from"),
    text("erratum", "Id of the erratum"),
    text("place", "Where the fault is in the source"),
    text("fault", "The wrong formula or figure"),
    text("consequence", "Figures that the fault changes, and by how much"),
    text("mend", "The mended formula; empty where the fault is recorded only"),
    Column("is_mended", "bool", "", "Whether the erratum can be mended by its id"),
    count("model_parallel", "Tensor-parallel times pipeline-parallel degree"),
    positive("peak_flops_per_second", "FLOP/s", "Peak rate the published share refers to"),
    fraction(
        "achieved_fraction_of_peak", "Published share of the peak rate", MEGATRON, shown_as=PLAIN
    ),
    Column(
        "uses_measured_kernels",
        "bool",
        "",
        "Whether products take the time of measured kernels, where the accelerator has them",
    ),
    text(
        "quantized_weights",
        "Recipes under which weights in 8 or 4 bits are a program's parameters, ; between",
    ),
    positive(
        "aggregate_flops_per_second", "FLOP/s", "Published model FLOP/s of all GPUs", MEGATRON
    ),
)
