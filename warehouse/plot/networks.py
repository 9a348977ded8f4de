"""Networks: speed over NVLink domains and bandwidths, and runs on several clusters or sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import SHAPES
from warehouse.show.formats import count
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from altair.typing import ChartType

    from warehouse.plot.theme import Theme

ENOUGH = 1.01
"""Slowdown up to which a bandwidth suffices."""

MOST = 8
"""Numbers of clusters that are drawn; of more, some are left out evenly."""

SIDE = 250

SITE_PANELS = {
    "gpus": ("GPUs for one step a second", "Number of GPUs"),
    "wait": ("Waiting for gradients", "Dollars of idle GPUs"),
    "latency": ("Latency between two sites", "Seconds over the run"),
}
"""Kind of a row -> heading of its panel, and title of its axis."""


# ---- relative speed ----


def _speeds(
    frame: pl.DataFrame, x: alt.X, finding: str, shown: str, theme: Theme, *, has_dashes: bool
) -> ChartType:
    rows, color = parts.coloured_counts(frame, "num_gpus", "GPUs", theme, few=len(SHAPES))
    scale, axis = alt.Scale(zero=False), alt.Axis(title="Relative speed", format=".2~f", grid=True)
    y = alt.Y("relative_speed:Q", scale=scale, axis=axis)
    lines = parts.lines_of_domains(rows, x, y, color, has_dashes=has_dashes)
    return parts.titled(alt.layer(parts.level(1, scale, axis), *lines), finding, shown)


def nvlink_domain(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return speed over the size of the NVLink domain."""
    sizes = frame["nvlink_size"].to_list()
    # sizes of racks lie close to powers of two: their labels would overlap
    ticks = [int(size) for size in parts.apart(sorted(set(sizes)))]
    axis = parts.doubling(sizes, "GPUs in one NVLink domain", ticks=ticks)
    shown = (
        f"Speed of the best layout of {frame['model'][0]} on {frame['accelerator'][0]}, "
        f"relative to domains of {min(sizes)}; {parts.estimate_words(frame)}"
    )
    x = alt.X("nvlink_size:Q", **axis)
    return _speeds(frame, x, _domain_finding(frame), shown, theme, has_dashes=False)


def _domain_finding(frame: pl.DataFrame) -> str:
    most = frame.filter(pl.col("num_gpus") == pl.col("num_gpus").max()).sort("nvlink_size")
    first = most.row(0, named=True)
    gpus = f"{first['num_gpus']:,} {first['accelerator']}"
    if most["nvlink_size"].n_unique() == 1:
        return f"Only fast domains of {count(first['nvlink_size'], 'GPU')} are stored on {gpus}"
    best = parts.most(most["relative_speed"])
    least = most.filter(pl.col("relative_speed") >= best * 0.98).row(0, named=True)
    return (
        f"On {gpus} fast domains of {least['nvlink_size']} GPUs are within 2% of the best, "
        f"{least['relative_speed']:.2g} times as fast as domains of {first['nvlink_size']}"
    )


def network_bandwidth(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return speed over the bandwidth of the network between NVLink domains."""
    frame = frame.with_columns(gigabytes=pl.col("network_bytes_per_second") / 1e9)
    rates = frame["gigabytes"].to_list()
    ticks = sorted(set(rates))
    axis = parts.logarithmic(rates, "Network of a GPU (GB/s)", base=2, ticks=ticks, grid=True)
    shown = (
        f"Speed of the best layout of {frame['model'][0] or 'a model given by its shape'} on "
        f"{frame['accelerator'][0]}, relative "
        f"to {parts.figure(min(rates), 3)} GB/s; {parts.estimate_words(frame)}"
    )
    x = alt.X("gigabytes:Q", **axis)
    return _speeds(frame, x, _bandwidth_finding(frame), shown, theme, has_dashes=True)


def _bandwidth_finding(frame: pl.DataFrame) -> str:
    most = frame.filter(pl.col("num_gpus") == pl.col("num_gpus").max())
    slow, fast = (end(most["gigabytes"]) for end in (parts.least, parts.most))
    if slow == fast:
        return f"Only a network of {parts.figure(slow, 3)} GB/s is stored"
    gains = most.group_by("nvlink_size").agg(pl.col("relative_speed").max()).sort("nvlink_size")
    words = [
        f"{row['relative_speed'] - 1:.0%}"
        + (f" with fast domains of {row['nvlink_size']}" if row["nvlink_size"] else "")
        for row in gains.iter_rows(named=True)
    ]
    times = parts.figure(fast / slow)
    return f"On {most['num_gpus'][0]:,} GPUs {times} times the network gains {parts.listed(words)}"


# ---- clusters and sites ----


def bandwidth_between_clusters_rows(frame: pl.DataFrame, _connection: object) -> pl.DataFrame:
    """Return the rows of one kind of layer, that of the first."""
    kind = ["use_glu", "multi_query_attention", "sequential_attention_ffn", "num_layers"]
    kind += ["hidden_size", "num_experts", "seq_len"]
    first = frame.row(0, named=True)
    return frame.filter(*(pl.col(name).eq_missing(first[name]) for name in kind))


def bandwidth_between_clusters(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the time that a run loses at each bandwidth, a line for each number of clusters."""
    counts = sorted(set(frame["num_clusters"].to_list()))
    if len(counts) > MOST:
        counts = [counts[n * (len(counts) - 1) // (MOST - 1)] for n in range(MOST)]
    some = frame.filter(pl.col("num_clusters").is_in(counts))
    rows, color = parts.coloured_counts(some, "num_clusters", "Clusters", theme)
    rates = frame["gigabytes_per_second"].to_list()
    slow = parts.most(frame["slowdown"])
    title, apart = "Bandwidth of a cluster, both ways (GB/s)", parts.apart(sorted(set(rates)))
    x_axis = parts.logarithmic(rates, title, room=1.05, ticks=apart)
    ticks = [tick for tick in (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50) if tick <= slow * 1.1]
    title = "Training time over that without a network"
    y_axis = parts.logarithmic([1, slow], title, room=1.06, ticks=ticks, format="~r")
    x, y = alt.X("gigabytes_per_second:Q", **x_axis), alt.Y("slowdown:Q", **y_axis)
    lines = alt.Chart(rows).mark_line(point=True).encode(x=x, y=y, color=color)
    first = frame.row(0, named=True)
    shown = (
        f"The best layout at each bandwidth; {first['num_layers']} layers of "
        f"{first['hidden_size']:,}, {first['num_experts']} experts, batches of "
        f"{first['global_batch_size']:,} sequences of {first['seq_len']:,}; transfers overlap "
        f"with arithmetic; {parts.estimate_words(frame)}"
    )
    return parts.titled(lines, _clusters_finding(frame), shown)


def _clusters_finding(frame: pl.DataFrame) -> str:
    worst = frame.group_by(rate="gigabytes_per_second").agg(pl.col("slowdown").max()).sort("rate")
    enough = worst.filter(pl.col("slowdown") <= ENOUGH)
    rate, slowdown = map(parts.figure, worst.row(0))
    lost = f"with {rate} GB/s a run takes up to {slowdown} times as long"
    if enough.is_empty():
        return f"No bandwidth here suffices: {lost}"
    return f"{parts.figure(enough['rate'][0])} GB/s between clusters suffice; {lost}"


def sites(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return GPUs, dollars of GPUs that wait and seconds of latency of a run on several sites."""
    panels = [
        _site_panel(frame.filter(pl.col("kind") == kind), title, axis, theme)
        for kind, (title, axis) in SITE_PANELS.items()
        if kind in frame["kind"]
    ]
    first = frame.row(0, named=True)
    shown = (
        f"{first['parameters'] / 1e9:,.0f} billion parameters, "
        f"{in_words('dataset_tokens', first['dataset_tokens'])}; B are bytes of a gradient; "
        f"{parts.estimate_words(frame)}"
    )
    title = parts.headed(_sites_finding(frame), shown, len(panels) * (SIDE + 70))
    picture: ChartType = alt.hconcat(*panels, spacing=36, title=title).resolve_scale(
        color="independent", shape="independent"
    )
    return picture


def _site_panel(frame: pl.DataFrame, title: str, axis: str, theme: Theme) -> ChartType:
    rows = frame.with_columns(batch=pl.col("place") / 1e6).filter(pl.col("quantity") > 0)
    order = rows.sort("series_rank", "series")["series"].unique(maintain_order=True).to_list()
    batches, ticks = rows["batch"].to_list(), [0.01, 0.1, 1, 10]
    x_axis = parts.logarithmic(batches, "Batch (million tokens)", ticks=ticks, format="~r")
    y_axis = parts.logarithmic(rows["quantity"].to_list(), axis, room=1.3)
    key = alt.Legend(title=None, orient="bottom", columns=1, labelLimit=SIDE + 40)
    color = parts.colours("series", order, theme, legend=key)
    shape = alt.Shape("series:N", scale=alt.Scale(domain=order), legend=key)
    base = alt.Chart(rows).encode(
        x=alt.X("batch:Q", **x_axis), y=alt.Y("quantity:Q", **y_axis), color=color
    )
    points = base.mark_point(opacity=1, filled=True).encode(shape=shape)
    heading = alt.TitleParams(title, fontSize=14, offset=8)
    return alt.layer(base.mark_line(), points).properties(width=SIDE, height=SIDE, title=heading)


def _sites_finding(frame: pl.DataFrame) -> str:
    words = []
    wait = _ends(frame.filter(pl.col("kind") == "wait"))
    if wait is not None:
        times = parts.figure(wait[0] / wait[1])
        words.append(f"Rarer all-reduces of gradients cut the dollars of waiting {times} times")
    latency = _ends(frame.filter(pl.col("kind") == "latency"))
    if latency is not None:
        words.append(f"the latency of a run from {_time(latency[0])} to {_time(latency[1])}")
    if words:
        return ", ".join(words)
    counts = frame.filter(pl.col("kind") == "gpus")["quantity"]
    if counts.is_empty():
        return "One all-reduce of gradients"
    return f"A step a second takes {parts.span(counts, ',.0f')} GPUs"


def _ends(frame: pl.DataFrame) -> tuple[float, float] | None:
    """Return the most of a quantity at the largest batch, exchanged most often and most seldom."""
    if frame.is_empty():
        return None
    largest = frame.filter(pl.col("place") == pl.col("place").max())
    often = largest.filter(pl.col("series_rank") == pl.col("series_rank").min())
    seldom = largest.filter(pl.col("series_rank") == pl.col("series_rank").max())
    return parts.most(often["quantity"]), parts.most(seldom["quantity"])


def _time(seconds: float) -> str:
    return f"{parts.figure(seconds)} s" if seconds < 3600 else f"{parts.figure(seconds / 3600)} h"
