"""docs/calibration.md: the output below each line ``$ warehouse calibrate ...``, and its table."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import chdir
from pathlib import Path

from docs.build.console import call

PAGE = Path(__file__).parents[1] / "calibration.md"
BLOCK = re.compile(r"(?<=```\n)\$ warehouse (calibrate [^\n]*)\n.*?(?=\n```\n)", re.DOTALL)
TABLE = re.compile(r"\| reference \| rows \|.*?(?=\n\n)", re.DOTALL)

TABLES = (
    ("table 1 of 2104.04473", "published_megatron_scaling"),
    ("the same, `--beyond-range`", "published_megatron_scaling --beyond-range"),
    (
        "the same, three constants",
        "published_megatron_scaling --fit product_rate_factor,network_efficiency,hbm_efficiency",
    ),
    ("table 5 of 2205.05198", "published_megatron_recompute"),
    (
        "the same, one constant",
        "published_megatron_recompute --fit product_rate_factor",
    ),
    ("table 2 of 2104.04473, PTD-P", "published_megatron_training_time"),
    ("the same, `--beyond-range`", "published_megatron_training_time --beyond-range"),
    ("Megatron-Core on H100", "published_megatron_h100_scaling"),
)
"""Row of the table of errors -> the arguments that it is made with."""

HEADER = ("reference", "rows", "constants", "untuned", "fitted, in sample", "left out")


def output_of(arguments: str) -> str:
    """Return the output of a command, results first."""
    with chdir(PAGE.parents[1]):  # files are named from the root of the repository
        code, out, err = call(*shlex.split(arguments))
    if code:
        raise RuntimeError(err)
    return out if "--json" in arguments else f"{out}\n{err}"


def errors(title: str, arguments: str) -> str:
    """Return the row of a calibration in the table of errors."""
    found = json.loads(output_of(f"calibrate {arguments} --json"))
    fitted: dict[str, list[str]] = {}
    for one in found["constants"]:
        value = f"{one['fitted_constant_value']:.3g}{' (bound)' if one['is_at_bound'] else ''}"
        before = f"{one['constant']} {one['default_constant_value']:g}"
        fitted.setdefault(value, []).append(before)
    cells = [title, str(found["errors"][0]["num_rows"])]
    cells.append("; ".join(f"{', '.join(names)} to {value}" for value, names in fitted.items()))
    for one in found["errors"]:
        mean, worst = one["mean_absolute_relative_error"], one["max_absolute_relative_error"]
        cells.append(f"{mean * 100:.1f} / {worst * 100:.1f} / {one['bias'] * 100:+.1f}")
    return f"| {' | '.join(cells)} |"


def with_blocks(page: str) -> str:
    """Return the page with what its commands write now."""
    return BLOCK.sub(lambda found: f"$ warehouse {found[1]}\n{output_of(found[1]).strip()}", page)


def with_table(page: str) -> str:
    """Return the page with its table of errors made anew."""
    lines = [f"| {' | '.join(HEADER)} |", "| --- | ---: | --- | ---: | ---: | ---: |"]
    lines += [errors(*one) for one in TABLES]
    return TABLE.sub(lambda _: "\n".join(lines), page)


def filled(page: str) -> str:
    """Return the page with its outputs and its table made anew."""
    return with_table(with_blocks(page))
