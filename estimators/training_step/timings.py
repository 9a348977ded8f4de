"""Kernels timed on a machine, compared with those that a step reads.

Kernels timed for milliseconds ran at full clock. Kernels of a long loop ran at the clock that the
power limit left. `power.loop_clock` takes that clock out of their seconds, and `power.clocks_of`
later applies the clock of a step. So the clock counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from estimators.contract import Array, Catalog, Columns, Refusal, RefusedError
from estimators.factored import distinct
from estimators.kernels.attention import BACKWARD_PRODUCTS, MeasuredAttention
from estimators.kernels.gemms import FORMATS as PLACES
from estimators.kernels.gemms import FORMULA, measured_accelerators
from estimators.structure import real
from estimators.timings import SECONDS, Compared, TimedInput, TimedKernels, TimedKind
from estimators.training_step import power
from estimators.training_step.attention import attention_core
from estimators.training_step.collectives import COLLECTIVES, compare_collectives
from estimators.training_step.gemm import (
    PASSES,
    SMALL,
    WEIGHT_GRADIENT,
    Gemm,
    of_format,
    seconds_of,
    shapes_of,
)
from estimators.training_step.layer import LAYER_KEYS
from estimators.training_step.problem import Layout, Problem
from estimators.training_step.sizes import size_of

if TYPE_CHECKING:
    from estimators.values import Place, Real

System = Callable[[str, Catalog], Problem]
"""Returns a system, with the measured products of its accelerator."""

FORMATS = {
    **dict.fromkeys(("bf16", "fp16", "bfloat16", "float16"), "bf16"),
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
}
OTHER_FORMATS = {"fp32": "fp32", "tf32": "tf32"}
"""Formats that products may be timed in, and no step computes in."""

LAYOUTS = dict(zip(("tn", "nn", "nt"), PASSES, strict=True))
"""Operands of a product as cuBLAS names them -> its pass, in Transformer Engine."""

FACTORS = (
    *("product_rate_factor", "fp8_product_rate_factor"),
    *("fp8_product_rate_factor", "fp4_product_rate_factor"),
)
"""Constants: rate over that of the measured kernels, one for each of `kernels.gemms.FORMATS`."""

IN_WORDS = {
    "product_rate_factor": "16 bits",
    "fp8_product_rate_factor": "FP8",
    "fp4_product_rate_factor": "FP4",
}
"""Constant of a format -> its name in words."""

GRADIENTS = {
    "input_gradient": "gradient of an input",
    "weight_gradient": "gradient of a weight",
}
"""Pass -> the kind of its products in words."""

PRODUCTS = (
    TimedInput("num_rows"),
    TimedInput("num_columns"),
    TimedInput("inner_size"),
    SECONDS,
    TimedInput("number_format", "bf16", FORMATS | OTHER_FORMATS),
    TimedInput("layout", "forward", LAYOUTS | {name: name for name in PASSES}),
    TimedInput("result_format", "bf16", {"bf16": "bf16", "fp16": "bf16", "fp32": "fp32"}),
    TimedInput("batch", 1),
    TimedInput("num_products", 1),
)

ATTENTION = (
    TimedInput("stage", choices={"forward": "forward", "backward": "backward"}),
    TimedInput("seq_len"),
    TimedInput("num_heads"),
    TimedInput("head_size"),
    SECONDS,
    TimedInput("num_sequences", 1),
)

FASTEST = 1.02
"""A kernel faster than this times the peak is a mistake; clocks are not exact."""


def files(system: System) -> tuple[TimedKernels, ...]:
    """Return the kinds of files that the estimator reads."""

    def products(columns: Columns, accelerator: str, catalog: Catalog, sustained: bool) -> Compared:
        return compare_products(columns, _measured(system, accelerator, catalog), sustained)

    def attention(columns: Columns, name: str, catalog: Catalog, sustained: bool) -> Compared:
        problem = _measured(system, name, catalog)
        kernels, measured = problem.kernels, problem.kernels.measured
        if measured is not None:
            run, program = problem.run, kernels.attention_program
            rates = MeasuredAttention(
                catalog, kernels.kernels, run.accelerator, program, columns["head_size"]
            )
            kernels = replace(kernels, measured=measured._replace(attention=rates))
        return compare_attention(columns, replace(problem, kernels=kernels), sustained)

    def collectives(columns: Columns, name: str, catalog: Catalog, _sustained: bool) -> Compared:
        return compare_collectives(columns, system(name, catalog).network)

    return (
        TimedKernels("matmuls", PRODUCTS, products),
        TimedKernels("attention", ATTENTION, attention),
        TimedKernels("collectives", COLLECTIVES, collectives),
    )


def _measured(system: System, accelerator: str, catalog: Catalog) -> Problem:
    """Return a system; raise `RefusedError` if its products were not measured."""
    problem = system(accelerator, catalog)
    if problem.kernels.kernels == FORMULA:
        reason = "has no measured matmuls that timings could scale"
        hint = f"known: {', '.join(measured_accelerators(catalog))}"
        raise RefusedError([Refusal("accelerator", accelerator, reason, hint)])
    return problem


def compare_products(columns: Columns, problem: Problem, is_sustained: bool) -> Compared:
    """Compare products with those of a step.

    Parameters
    ----------
    columns
        Those of `PRODUCTS`.
    problem
        A system, with measured products.
    """
    rows, width, depth = (columns[name] for name in ("num_rows", "num_columns", "inner_size"))
    seconds: Array = columns["seconds"]
    known = np.isin(columns["number_format"].astype(str), sorted(set(FORMATS.values())))
    place: Array = np.zeros(len(seconds), dtype=np.int64)
    for low_format, name in enumerate(PLACES):
        place[np.equal(columns["number_format"], name)] = low_format
    # the products of experts run as one grouped kernel
    number = columns["num_products"]
    flops = 2.0 * rows * width * depth * number
    read: Array = np.full(len(seconds), np.nan)
    for low_format, in_pass, group in _groups(columns, place):
        gemm = Gemm(rows[group], width[group], depth[group], number[group], in_pass)
        # sizes of one product each: as of a batch
        shape = replace(problem.shape, hidden_size=real(rows[group]))
        of_group = _in_format(replace(problem, shape=shape), np.int64(low_format))
        [read[group]] = seconds_of([gemm], of_group)
    adds = np.equal(columns["layout"], WEIGHT_GRADIENT) & np.equal(columns["result_format"], "fp32")
    read = read * np.where(adds, problem.kernels.accumulating_product_ratio, 1.0)
    in_formats = _in_format(problem, place)
    peak = of_format(problem.system.peaks, place)
    left_out = {
        "in a format that no step computes in": ~known,
        "in a format that was not measured": (place > 0) & np.isnan(read),
        "of several matmuls at once": np.greater(columns["batch"], 1),
        "faster than the peak": flops / seconds > FASTEST * peak,
    }
    is_narrow, is_short = shapes_of(Gemm(rows, width, depth, number))
    kinds = (
        *(
            (constant, f"matmuls in {name}", np.equal(np.take(FACTORS, place), constant))
            for constant, name in IN_WORDS.items()
        ),
        *(
            (f"{in_pass}_rate_factor", name, np.equal(columns["layout"], in_pass))
            for in_pass, name in GRADIENTS.items()
        ),
        ("narrow_product_rate_factor", f"at most {SMALL:,} rows or columns", is_narrow),
        ("short_product_rate_factor", f"inner size of at most {SMALL:,}", is_short),
    )
    joules = power.gemm_joules(flops, in_formats)
    return _compared(seconds, read, joules, left_out, kinds, problem, is_sustained)


def _in_format(problem: Problem, low_format: Place) -> Problem:
    """Return the problem with products in the format at a place of `kernels.gemms.FORMATS`."""
    return replace(problem, formats=replace(problem.formats, low_format=low_format))


def _groups(columns: Columns, place: Array) -> Iterator[tuple[int, str, Array]]:
    """Yield number format, pass and rows of the products that have both in common."""
    for low_format in distinct(place).tolist():
        for in_pass in PASSES:
            rows = (place == low_format) & np.equal(columns["layout"], in_pass)
            if rows.any():
                yield low_format, in_pass, rows


def compare_attention(columns: Columns, problem: Problem, is_sustained: bool) -> Compared:
    """Compare fused causal attention with that of a step.

    Parameters
    ----------
    columns
        Those of `ATTENTION`.
    problem
        A system, with the measured rates of each row.
    """
    tokens = columns["num_sequences"] * columns["seq_len"]
    query = columns["num_heads"] * columns["head_size"]
    heads, head_size = real(columns["num_heads"]), real(columns["head_size"])
    shape = replace(
        problem.shape,
        seq_len=real(columns["seq_len"]),
        num_heads=heads,
        num_kv_heads=heads,
        qk_head_size=head_size,
        v_head_size=head_size,
    )
    choices = replace(problem.choices, attention="flash")
    fused = replace(problem, shape=shape, choices=choices)
    layout = Layout.of(dict.fromkeys(LAYER_KEYS, 1) | {"microbatch_size": columns["num_sequences"]})
    core = attention_core(size_of(fused, layout), fused, layout)
    is_backward = np.equal(columns["stage"], "backward")
    # half of the scores: those that a causal mask leaves
    flops = 2.0 * tokens * columns["seq_len"] * query
    flops = flops * np.where(is_backward, BACKWARD_PRODUCTS, 1.0)
    peak = problem.system.matrix_flops_per_second
    left_out = {"faster than the peak": flops / columns["seconds"] > FASTEST * peak}
    kinds = (
        ("attention_rate_factor", "attention", np.ones(len(flops), dtype=bool)),
        ("backward_attention_rate_factor", "backward pass of attention", is_backward),
    )
    joules = problem.power.attention_joules_per_flop * flops
    read = np.where(is_backward, core.backward, core.forward)
    return _compared(columns["seconds"], read, joules, left_out, kinds, problem, is_sustained)


def _compared(
    seconds: Array,
    read: Array,
    joules: Real,
    left_out: dict[str, Array],
    kinds: tuple[tuple[str, str, Array], ...],
    problem: Problem,
    is_sustained: bool,
) -> Compared:
    """Return measured seconds, at full clock, over those that a step reads."""
    clock = power.loop_clock(joules, seconds, problem.power) if is_sustained else 1.0
    seen: Array = np.zeros(len(seconds), dtype=bool)
    reasons = {}
    for reason, rows in left_out.items():
        reasons[reason] = rows & ~seen
        seen = seen | rows
    return Compared(
        np.where(seen, np.nan, seconds * clock / read),
        tuple(TimedKind(*kind) for kind in kinds),
        {reason: rows for reason, rows in reasons.items() if rows.any()},
        {constant: float(getattr(problem.kernels, constant)) for constant, _, _ in kinds},
    )
