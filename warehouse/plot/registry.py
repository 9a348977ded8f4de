"""The pictures: name, summary, and commands that store the rows. Each is imported when drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, cast

from estimators import registry
from estimators.names import did_you_mean, joined_hint
from warehouse.errors import UsageError
from warehouse.plot.query import parameters_of, query_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import polars as pl
    from altair.typing import ChartType
    from duckdb import DuckDBPyConnection

    from estimators.contract import Scalar
    from warehouse.plot.theme import Theme

PROBLEM = ("estimator", "variant", "model", "global_batch_size")
"""Columns that have one value in the rows of most pictures."""

ASSUMED = ("assumptions", *PROBLEM)
"""Those of pictures that compare problems with the same assumptions.

Assumptions are chosen first. If any stored row has none, only rows without assumptions are drawn.
"""


@dataclass(frozen=True)
class Plot:
    """One picture.

    Attributes
    ----------
    name
        Its name, also that of its module and of its query in sql/plots.
    summary
        What it shows, in a line.
    filled_by
        Commands that store what it shows.
    single
        Columns of the query that have one value in a picture. If the rows have several and no
        filter chooses one, the value with most rows is taken.
    defaults
        Parameters of the query that always have a value.
    """

    name: str
    summary: str
    filled_by: tuple[str, ...]
    single: tuple[str, ...] = PROBLEM
    defaults: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def sql(self) -> str:
        """The query, with its parameters."""
        return query_of(self.name)

    @property
    def filters(self) -> tuple[str, ...]:
        """The parameters of the query."""
        return parameters_of(self.sql)

    def chart(self, frame: pl.DataFrame, theme: Theme) -> ChartType:
        """Return the chart of the rows of the query, with its title."""
        made = import_module(f"warehouse.plot.{self.name}").chart
        return cast("Callable[[pl.DataFrame, Theme], ChartType]", made)(frame, theme)

    def completed(self, frame: pl.DataFrame, connection: DuckDBPyConnection) -> pl.DataFrame:
        """Return the rows with values that no query has, by function `completed` of its module."""
        module = import_module(f"warehouse.plot.{self.name}")
        if not hasattr(module, "completed"):
            return frame
        made = cast("Callable[[pl.DataFrame, DuckDBPyConnection], pl.DataFrame]", module.completed)
        return made(frame, connection)


_GRID = ("warehouse sweep gpt3_1T_1d", "warehouse sweep paper_grid")

_POINTS = ("study", *PROBLEM, "accelerator", "nvlink_size", "num_gpus")

_ESTIMATE = ("estimator", "variant")
_PUBLISHED = ("warehouse quickstart --small", "warehouse sweep training_step_published")

PLOTS: dict[str, Plot] = {
    plot.name: plot
    for plot in (
        Plot(
            "training_days",
            "Days of a run over the number of GPUs, for every system.",
            _GRID,
            single=ASSUMED,
            defaults={"tokens": 1e12},
        ),
        Plot(
            "throughput_per_gpu",
            "Throughput of a GPU as GPUs are added, relative to the fewest.",
            _GRID,
            single=ASSUMED,
        ),
        Plot(
            "best_layouts",
            "Degrees, memory and parts of the step of the best layout on each number of GPUs.",
            _GRID,
            single=(*ASSUMED, "accelerator", "nvlink_size"),
        ),
        Plot(
            "strategies",
            "Speed of 2D tensor and context parallelism relative to 1D.",
            ("warehouse sweep paper_grid",),
            single=ASSUMED,
        ),
        Plot(
            "configurations",
            "Configurations that trade pipeline stages for replicas, with the parts of their step.",
            _GRID,
            single=(*ASSUMED, "accelerator", "nvlink_size", "num_gpus", "strategy"),
        ),
        Plot(
            "hbm_capacity_and_bandwidth",
            "Days of a run over the capacity and the bandwidth of memory.",
            ("warehouse sweep hbm_bandwidth_capacity",),
            single=_POINTS,
            defaults={"tokens": 1e12},
        ),
        Plot(
            "flops_and_hbm_capacity",
            "Days of a run over the capacity of memory and the rate of arithmetic.",
            ("warehouse sweep flops_capacity_bandwidth",),
            single=_POINTS,
            defaults={"tokens": 1e12},
        ),
        Plot(
            "nvlink_domain",
            "Speed over the number of GPUs in one NVLink domain.",
            ("warehouse sweep nvlink_size",),
            single=("study", *PROBLEM, "accelerator"),
        ),
        Plot(
            "network_bandwidth",
            "Speed over the bandwidth of the network between NVLink domains.",
            ("warehouse sweep network_bandwidth",),
            single=("study", *PROBLEM, "accelerator"),
        ),
        Plot(
            "accuracy",
            "Errors of predicted steps by group of measurements, with their intervals.",
            _PUBLISHED,
            single=_ESTIMATE,
        ),
        Plot(
            "measured_rates",
            "Measured against predicted FLOP/s of published steps.",
            _PUBLISHED,
            single=_ESTIMATE,
        ),
        Plot(
            "published_parts",
            "Parts of the predicted steps of published measurements.",
            _PUBLISHED,
            single=_ESTIMATE,
        ),
        Plot(
            "layout_rank",
            "Where published layouts lie among all layouts of their problem.",
            ("warehouse sweep megatron",),
            single=_ESTIMATE,
        ),
        Plot(
            "pareto",
            "The least memory for each step time, on each number of GPUs.",
            _GRID,
            single=(*ASSUMED, "accelerator", "nvlink_size"),
        ),
        Plot(
            "cost",
            "Dollars of a run by system and kind of price, and its carbon by grid.",
            _GRID,
            single=("assumptions", "estimator", "variant", "model", "seq_len"),
            defaults={"tokens": 1e12, "num_gpus": None},
        ),
        Plot(
            "bandwidth_between_clusters",
            "Time that a run loses at each bandwidth between its clusters.",
            ("warehouse sweep dataflow_bandwidth",),
            single=_ESTIMATE,
        ),
        Plot(
            "sites",
            "GPUs of a run on several sites, dollars lost to waiting, and latency.",
            ("warehouse sweep cluster_notebook",),
            single=("estimator", "variant", "dataset_tokens", "parameters"),
        ),
        Plot(
            "roofline_of_step",
            "Operations of one step: their rate over FLOPs a byte.",
            ("warehouse operations --best --model gpt3_1T --num-gpus 4096 --into-db",),
            single=(*PROBLEM, "accelerator", "nvlink_size", "num_gpus", "cell_id"),
        ),
        Plot(
            "tornado",
            "Constants that a best layout's step depends on most, over their ranges.",
            ("warehouse plan --model llama3_8B --tokens 1e12 --accelerator H100 --gpus 128",),
            single=(*ASSUMED, "accelerator", "num_gpus", "problem_id"),
            defaults={"estimator": registry.default("explain")},
        ),
        Plot(
            "errata",
            "Change of the best step times by each mend of a published formula.",
            ("warehouse sweep errata",),
            single=("estimator",),
        ),
        Plot(
            "kernels",
            "Share of the peak that measured matrix products reach, by their smallest dimension.",
            ("warehouse init",),
            single=(),
        ),
    )
}
"""Every picture by its name, in the order of the list."""


def plot_named(name: str) -> Plot:
    """Return a picture by its name; hyphens count as underscores.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    folded = name.lower().replace("-", "_")
    if folded in PLOTS:
        return PLOTS[folded]
    near = get_close_matches(folded, PLOTS, n=3, cutoff=0.5)
    hint = joined_hint(did_you_mean(near), "`warehouse plot` lists them")
    raise UsageError(f"`NAME` {name}: there is no such plot", hint)
