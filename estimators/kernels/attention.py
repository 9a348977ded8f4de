"""Fused attention by program: its rate by sequence length, as measured or published.

Table ``attention_rate`` has a row for each program, accelerator and head size. The rate grows with
the sequence as ``R s / (s + half_rate_length)``, because blocks of a causal kernel are shorter at
its start. It needs `least_waves` blocks of 128 queries for each multiprocessor to fill the GPU. The
rate of the backward pass is `backward_rate_ratio` times that of the forward pass, less for short
sequences in the same way. A rate counts the half of the scores that a causal mask leaves. Rates of
programs that were not measured at every length have ends, `lowest_value` and `highest_value`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from estimators.catalog import until
from estimators.contract import Catalog, Record, Scalar
from estimators.kernels.gemms import FORMULA, kernels_of
from estimators.values import Real, Text

IN_8_BITS = "cudnn_mxfp8"
"""cuDNN's attention with operands in MXFP8 and a result in 16 bits."""

TABLE = "attention_rate"
DEFAULTS = "attention_default"
PROGRAMS = ("cudnn", "cudnn_9_22", "cudnn_mxfp8", "flash_3", "flash_2", "flash_1", "triton")
"""Kernels of attention. `cudnn` is as fast as cuDNN 9.13, `cudnn_9_22` as 9.22 of April 2026
(arXiv 2603.05451, abstract)."""

BLOCK = 128
"""Queries of one block, and keys of one step, of the fused kernels (arXiv 2307.08691)."""

BACKWARD_PRODUCTS = 2.5
"""Products of the fused backward pass over those of the forward pass: five over two, the
scores being computed again (arXiv 2307.08691 section 4.1)."""

PARAMETERS = (
    *("attention_flops_per_second", "half_rate_length", "least_waves"),
    *("backward_rate_ratio", "backward_half_length"),
)


def chip_of(catalog: Catalog, kernels: object, accelerator: object) -> str:
    """Return the accelerator whose attention rates hold: that of the measured products, if any.

    If products follow the formula, it is the accelerator of the row: a program with old libraries
    has no measured products, but its attention may be measured.
    """
    return kernels_of(catalog, accelerator) if kernels == FORMULA else str(kernels)


def default_program(
    catalog: Catalog, framework: object, kernels: str, release: float = np.inf
) -> str:
    """Return the program of fused attention that a framework calls on an accelerator."""
    table = catalog.tables.get(DEFAULTS, {})
    for key in (f"{framework}@{kernels}", str(framework)):
        for row in until(table, key, release):
            return str(row["attention_program"])
    return FORMULA


def record_of(catalog: Catalog, kernels: str, program: str, head_size: float) -> Record | None:
    """Return the row of the largest head size not above `head_size`, else of the smallest one."""
    rows = [
        row
        for row in catalog.tables.get(TABLE, {}).values()
        if row["accelerator"] == kernels and row["attention_program"] == program
    ]
    sizes = sorted(float(row["head_size"] or 0) for row in rows)
    fitting = [size for size in sizes if size <= head_size] or sizes[:1]
    return next((row for row in rows if row["head_size"] == fitting[-1]), None)


def ends_of_rate(catalog: Catalog, *case: Scalar) -> tuple[float, float]:
    """Return a rate's ends over it for kernels, accelerator and program, heads of 128; or NaN."""
    row = record_of(catalog, chip_of(catalog, *case[:2]), str(case[2]), 128) or {}
    low, high = (float(row.get(name) or np.nan) for name in ("lowest_value", "highest_value"))
    return low / float(row.get(PARAMETERS[0]) or 1), high / float(row.get(PARAMETERS[0]) or 1)


def programs_of(catalog: Catalog, kernels: str) -> tuple[str, ...]:
    """Return the programs of fused attention that were measured on an accelerator."""
    rows = catalog.tables.get(TABLE, {}).values()
    known = {row["attention_program"] for row in rows if row["accelerator"] == kernels}
    return tuple(name for name in PROGRAMS if name in known)


class MeasuredAttention:
    """The rates of attention of the rows of a problem.

    Parameters
    ----------
    catalog
        Has the rates.
    kernels, accelerator, program, head_size
        One for all rows, or one a row. The size of a head is the width of its queries and keys.
    """

    def __init__(
        self, catalog: Catalog, kernels: Text, accelerator: Text, program: Text, head_size: Real
    ) -> None:
        given = [
            np.asarray(column, dtype=object)
            for column in (kernels, accelerator, program, head_size)
        ]
        columns = np.broadcast_arrays(*(np.atleast_1d(column) for column in given))
        cases = list(zip(*(column.tolist() for column in columns), strict=True))
        parameters = {case: _parameters(catalog, *case) for case in dict.fromkeys(cases)}
        table = np.array([parameters[case] for case in cases], dtype=np.float64)
        is_one = all(column.ndim == 0 for column in given)
        self._parameters = table[0] if is_one else table.T

    def __bool__(self) -> bool:
        """Return whether any row has a rate."""
        return not bool(np.isnan(self._parameters[0]).all())

    def seconds(
        self,
        flops: Real,
        length: Real,
        blocks: Real,
        peak: Real,
        num_sms: Real,
        backward_products: Real = BACKWARD_PRODUCTS,
    ) -> tuple[Real, Real]:
        """Return the seconds of the forward and of the backward pass, NaN where there is no rate.

        Parameters
        ----------
        flops
            FLOPs of the forward pass, counting half of the scores.
        length
            Tokens of a sequence on one GPU.
        blocks
            Blocks of queries on one GPU: sequences x heads x blocks of a sequence.
        peak
            Peak of the system in 16 bits, in FLOP/s: a measured rate keeps its share of the peak.
        num_sms
            Multiprocessors of the system.
        backward_products
            FLOPs of the backward pass over those of the forward pass.
        """
        rate, half, waves, ratio, backward_half = self._parameters
        rate = rate * peak * length / (length + half)
        rate = rate * np.minimum(blocks / (waves * num_sms), 1.0)
        backward = rate * ratio * length / (length + backward_half)
        return flops / rate, backward_products * flops / backward


def _parameters(
    catalog: Catalog, kernels: str, accelerator: object, program: str, head_size: float
) -> tuple[float, ...]:
    """Return the parameters of a case, the rate over the peak first; NaN where there are none."""
    chip_name = chip_of(catalog, kernels, accelerator)
    record = record_of(catalog, chip_name, program, head_size)
    if record is None:
        return (np.nan,) * len(PARAMETERS)
    chip: Mapping[str, Any] = catalog.tables["accelerator"][chip_name]
    rate, *others = (float(record[name] or 0.0) for name in PARAMETERS)
    return rate / float(chip["bf16_flops_per_second"]), *others
