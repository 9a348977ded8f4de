"""The pictures and their queries, files of sql/plots.

A filter is a line of a query with a parameter, such as ``and model = $model``. A line whose
parameter has no value is left out, so that the remaining conditions reach the scan. Nothing here
imports Altair: `warehouse plot` lists the pictures without the extra `plots`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from estimators import registry
from estimators.names import did_you_mean, joined_hint
from warehouse.database.resources import sql_directory
from warehouse.database.sql_text import literal
from warehouse.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl
    from altair.typing import ChartType
    from duckdb import DuckDBPyConnection

    from estimators.contract import Scalar
    from warehouse.plot.theme import Theme

PROBLEM = ("estimator", "variant", "model", "global_batch_size")

ASSUMED = ("assumptions", *PROBLEM)
"""Columns that have one value in pictures of problems with the same assumptions.

Assumptions are chosen first. If any stored row has none, only rows without assumptions are drawn.
"""

_PARAMETER = re.compile(r"\$([a-z_][a-z0-9_]*)")
_COMMENT = re.compile(r"--.*")


@dataclass(frozen=True)
class Plot:
    """One picture.

    Attributes
    ----------
    name
        Its name, also that of its query in sql/plots and of the function that draws it.
    subject
        The module with that function. A function called NAME_rows changes the query's rows first.
    filled_by
        Commands that store what it shows.
    single
        Columns of the query that have one value in a picture. If the rows have several and no
        filter chooses one, the value with most rows is taken.
    defaults
        Parameters of the query that always have a value.
    """

    name: str
    subject: str
    summary: str
    filled_by: tuple[str, ...]
    single: tuple[str, ...] = ASSUMED
    defaults: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def sql(self) -> str:
        """The query, with its parameters."""
        return (sql_directory() / "plots" / f"{self.name}.sql").read_text("utf-8")

    @property
    def filters(self) -> tuple[str, ...]:
        """The parameters of the query."""
        return parameters_of(self.sql)

    def completed(self, frame: pl.DataFrame, connection: DuckDBPyConnection) -> pl.DataFrame:
        """Return the rows that are drawn: those of the query, or values that no query has."""
        complete = getattr(
            import_module(f"warehouse.plot.{self.subject}"), f"{self.name}_rows", None
        )
        rows: pl.DataFrame = complete(frame, connection) if complete else frame
        return rows

    def chart(self, frame: pl.DataFrame, theme: Theme) -> ChartType:
        """Return the chart of the rows, with its title."""
        module = import_module(f"warehouse.plot.{self.subject}")
        chart: ChartType = getattr(module, self.name)(frame, theme)
        return chart


_GRID = ("warehouse sweep gpt3_1T_1d", "warehouse sweep paper_grid")
_PUBLISHED = ("warehouse quickstart --small", "warehouse sweep training_step_published")

_SYSTEM = ("accelerator", "nvlink_size")
_ESTIMATE = ("estimator", "variant")
_SWEEP = ("assumptions", "model", "study", *_ESTIMATE, "global_batch_size", "accelerator")
"""A known model comes before its study: another may have more points, of a shape without a name."""
_POINTS = (*_SWEEP, "nvlink_size", "num_gpus")
_TOKENS = {"tokens": 1e12}

_PLOTS = (
    Plot(
        "training_days",
        "systems",
        "Days of a run over the number of GPUs, for every system.",
        _GRID,
        defaults=_TOKENS,
    ),
    Plot(
        "throughput_per_gpu",
        "systems",
        "Throughput of a GPU as GPUs are added, relative to the fewest.",
        _GRID,
    ),
    Plot(
        "best_layouts",
        "layouts",
        "Degrees, memory and parts of the step of the best layout on each number of GPUs.",
        _GRID,
        (*ASSUMED, *_SYSTEM),
    ),
    Plot(
        "strategies",
        "systems",
        "Speed of 2D tensor and context parallelism relative to 1D.",
        ("warehouse sweep paper_grid",),
    ),
    Plot(
        "configurations",
        "layouts",
        "Configurations that trade pipeline stages for replicas, with the parts of their step.",
        _GRID,
        (*ASSUMED, *_SYSTEM, "num_gpus", "strategy"),
    ),
    Plot(
        "hbm_capacity_and_bandwidth",
        "grid",
        "Days of a run over the capacity and the bandwidth of memory.",
        ("warehouse sweep hbm_bandwidth_capacity",),
        _POINTS,
        _TOKENS,
    ),
    Plot(
        "flops_and_hbm_capacity",
        "grid",
        "Days of a run over the capacity of memory and the rate of arithmetic.",
        ("warehouse sweep flops_capacity_bandwidth",),
        _POINTS,
        _TOKENS,
    ),
    Plot(
        "nvlink_domain",
        "networks",
        "Speed over the number of GPUs in one NVLink domain.",
        ("warehouse sweep nvlink_size",),
        _SWEEP,
    ),
    Plot(
        "network_bandwidth",
        "networks",
        "Speed over the bandwidth of the network between NVLink domains.",
        ("warehouse sweep network_bandwidth",),
        _SWEEP,
    ),
    Plot(
        "accuracy",
        "accuracy",
        "Errors of predicted steps by group of measurements, with their intervals.",
        _PUBLISHED,
        _ESTIMATE,
    ),
    Plot(
        "measured_rates",
        "accuracy",
        "Measured against predicted FLOP/s of published steps.",
        _PUBLISHED,
        _ESTIMATE,
    ),
    Plot(
        "published_parts",
        "accuracy",
        "Parts of the predicted steps of published measurements.",
        _PUBLISHED,
        _ESTIMATE,
    ),
    Plot(
        "layout_rank",
        "accuracy",
        "Where published layouts lie among all layouts of their problem.",
        ("warehouse sweep megatron",),
        _ESTIMATE,
    ),
    Plot(
        "pareto",
        "layouts",
        "The least memory for each step time, on each number of GPUs.",
        _GRID,
        (*ASSUMED, *_SYSTEM),
    ),
    Plot(
        "cost",
        "money",
        "Dollars of a run by system and kind of price, and its carbon by grid.",
        _GRID,
        ("assumptions", "estimator", "variant", "model", "seq_len"),
        {**_TOKENS, "num_gpus": None},
    ),
    Plot(
        "bandwidth_between_clusters",
        "networks",
        "Time that a run loses at each bandwidth between its clusters.",
        ("warehouse sweep dataflow_bandwidth",),
        _ESTIMATE,
    ),
    Plot(
        "sites",
        "networks",
        "GPUs of a run on several sites, dollars lost to waiting, and latency.",
        ("warehouse sweep cluster_notebook",),
        (*_ESTIMATE, "dataset_tokens", "parameters"),
    ),
    Plot(
        "roofline_of_step",
        "kernels",
        "Operations of one step: their rate over FLOPs a byte.",
        ("warehouse operations --best --model gpt3_1T --num-gpus 4096 --into-db",),
        (*PROBLEM, *_SYSTEM, "num_gpus", "cell_id"),
    ),
    Plot(
        "tornado",
        "constants",
        "Constants that a best layout's step depends on most, over their ranges.",
        ("warehouse plan --model llama3_8B --tokens 1e12 --accelerator H100 --gpus 128",),
        (*ASSUMED, "accelerator", "num_gpus", "problem_id"),
        {"estimator": registry.default("explain")},
    ),
    Plot(
        "errata",
        "constants",
        "Change of the best step times by each mend of a published formula.",
        ("warehouse sweep errata",),
        ("estimator",),
    ),
    Plot(
        "kernels",
        "kernels",
        "Share of the peak that measured matmuls reach, by their smallest dimension.",
        ("warehouse init",),
        (),
    ),
)

PLOTS: dict[str, Plot] = {plot.name: plot for plot in _PLOTS}
"""Every picture by its name, in the order of the list."""


def plot_named(name: str) -> Plot:
    """Return a picture by its name; hyphens count as underscores. Raise `UsageError` if unknown."""
    folded = name.lower().replace("-", "_")
    if folded in PLOTS:
        return PLOTS[folded]
    near = get_close_matches(folded, PLOTS, n=3, cutoff=0.5)
    hint = joined_hint(did_you_mean(near), "`warehouse plot` lists them")
    raise UsageError(f"`NAME` {name}: there is no such plot", hint)


def parameters_of(text: str) -> tuple[str, ...]:
    """Return the parameters of a query, each once, in order."""
    return tuple(dict.fromkeys(_PARAMETER.findall(_COMMENT.sub("", text))))


def filtered(text: str, values: Mapping[str, Scalar]) -> str:
    """Return a query without the lines whose parameter has no value."""
    return "\n".join(
        line for line in text.splitlines() if all(name in values for name in parameters_of(line))
    )


def with_values(text: str, values: Mapping[str, Scalar]) -> str:
    """Return a query with the values in place of its parameters, as a shell takes it."""
    return _PARAMETER.sub(lambda name: _written(values[name[1]]), filtered(text, values)) + "\n"


def _written(value: Scalar) -> str:
    if isinstance(value, str):
        return literal(value)
    if value is None:
        return "null"
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return repr(value).lower()
