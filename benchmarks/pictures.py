"""Draw the pictures of docs/accuracy.md: ``python -m benchmarks.pictures DATABASE [FOLDER]``.

Needs matplotlib (``pip install '.[pictures]'``) and a database that `warehouse quickstart` made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import duckdb
import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.published import parts_of, published_rows
from estimators.training_step.step import TIMES

mpl.use("svg")
mpl.rcParams.update(
    {
        "svg.hashsalt": "accuracy",
        "svg.fonttype": "none",
        "font.size": 8,
        "font.family": "sans-serif",
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)

TITLES = {
    "published_megatron_scaling": "Table 1 of arXiv 2104.04473",
    "published_megatron_recompute": "Table 5 of arXiv 2205.05198",
    "published_megatron_training_time": "Table 2 of arXiv 2104.04473",
    "published_megatron_h100_scaling": "Megatron-Core on H100",
    "published_training_stage": "Stages of published runs",
}
"""Reference table -> what it is called in a picture."""

GROUPS = (
    ("products", "#3b6ea5", ("gemm_seconds",)),
    ("attention", "#7fb2dd", ("attention_seconds",)),
    ("recomputed", "#b9d5ee", ("recompute_seconds",)),
    ("elementwise, adding up", "#8a6fb0", ("elementwise_seconds", "accumulation_seconds")),
    ("vocabulary", "#c7a3d6", ("vocabulary_seconds",)),
    ("optimizer", "#6b4b3a", ("optimizer_seconds", "host_seconds")),
    (
        "tensor collectives",
        "#d98b3a",
        ("tensor_comm_seconds", "context_comm_seconds", "expert_comm_seconds"),
    ),
    ("stage transfers", "#f0c987", ("pipeline_comm_seconds",)),
    ("gradient exchange", "#c0504d", ("data_comm_seconds",)),
    ("bubble", "#bdbdbd", ("bubble_seconds",)),
)
"""Parts of a step as stacked: title, colour, columns."""

_COMPARED = """
    select reference, published_row, published_group, estimator,
        published_flops_per_second_per_gpu / 1e12, predicted_flops_per_second_per_gpu / 1e12
    from megatron_comparison
    where estimator = 'training_step' or variant = 'corrected'
    order by all
"""


def save(figure: Any, path: Path) -> None:
    """Write an SVG that is the same for the same data."""
    figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    text = path.read_text(encoding="utf-8")
    path.write_text("".join(f"{line.rstrip()}\n" for line in text.splitlines()), encoding="utf-8")
    plt.close(figure)


def draw_rates(database: Path, path: Path) -> None:
    """Draw measured against predicted rates, a panel for each reference table."""
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = connection.execute(_COMPARED).fetchall()
    figure, panels = plt.subplots(1, len(TITLES), figsize=(15, 3.3), constrained_layout=True)
    for panel, (reference, title) in zip(panels, TITLES.items(), strict=True):
        found = [row for row in rows if row[0] == reference]
        ends = [edge(row[place] for row in found for place in (4, 5)) for edge in (min, max)]
        low, high = ends[0] * 0.92, ends[1] * 1.08
        line = [low, high]
        panel.plot(line, line, color="black", linewidth=0.8)
        panel.fill_between(
            line, [0.9 * x for x in line], [1.1 * x for x in line], color="#dddddd", linewidth=0
        )
        groups = sorted({row[2] for row in found if row[3] == "training_step"})
        for number, group in enumerate(groups):
            own = [row for row in found if row[2] == group and row[3] == "training_step"]
            label = "training_step" if len(groups) == 1 else group
            panel.plot(
                [row[4] for row in own],
                [row[5] for row in own],
                "osD^"[number],
                color="#3b6ea5",
                markerfacecolor=("#3b6ea5", "white", "#b9d5ee", "#8a6fb0")[number],
                markersize=5,
                linestyle="none",
                label=label,
            )
        other = [row for row in found if row[3] == "roofline"]
        if other:
            panel.plot(
                [row[4] for row in other],
                [row[5] for row in other],
                "x",
                color="#c0504d",
                markersize=4,
                linestyle="none",
                label="roofline",
            )
        panel.set(title=title, xlim=line, ylim=line, xlabel="measured TFLOP/s per GPU")
        panel.legend(frameon=False, fontsize=7, loc="upper left")
    panels[0].set_ylabel("predicted TFLOP/s per GPU")
    save(figure, path)


def draw_parts(database: Path, path: Path) -> None:
    """Draw the parts of every predicted step, in percent of the measured one."""
    rows = published_rows(database)
    parts = parts_of(rows)
    covered = {name for _, _, names in GROUPS for name in names}
    if covered != set(TIMES):
        raise SystemExit(f"parts of a step that no group has: {covered ^ set(TIMES)}")
    sizes = [sum(row["reference"] == reference for row in rows) for reference in TITLES]
    figure, panels = plt.subplots(
        len(TITLES), 1, figsize=(9, 12), height_ratios=sizes, constrained_layout=True, sharex=True
    )
    for panel, (reference, title) in zip(panels, TITLES.items(), strict=True):
        places = [place for place, row in enumerate(rows) if row["reference"] == reference]
        labels = [rows[place]["published_row"] for place in places]
        left = [0.0] * len(places)
        for name, colour, columns in GROUPS:
            widths = [
                100
                * float(sum(parts[column][place] for column in columns))
                / rows[place]["published_step_seconds"]
                for place in places
            ]
            panel.barh(labels, widths, left=left, color=colour, height=0.72, label=name)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        for number, (place, end) in enumerate(zip(places, left, strict=True)):
            row, edge = rows[place], max(end, 100.0)
            if row["num_choices"] > 1 and row["lowest_step_seconds"] is not None:
                reach = [
                    100 * row[f"{which}_step_seconds"] / row["published_step_seconds"]
                    for which in ("lowest", "highest")
                ]
                panel.plot(reach, [number, number], "|-", color="black", linewidth=0.8)
                edge = max(edge, *reach)
            panel.text(edge + 1.5, number, f"{end - 100:+.1f} %", va="center", fontsize=7)
        panel.axvline(100, color="black", linewidth=0.9)
        panel.invert_yaxis()
        panel.set_title(title, loc="left", fontsize=9)
    panels[-1].set(
        xlabel="parts of the predicted step, percent of the measured step", xlim=(0, 172)
    )
    panels[0].legend(frameon=False, ncols=5, fontsize=7, loc="lower left", bbox_to_anchor=(0, 1.12))
    save(figure, path)


def draw(database: Path, folder: Path) -> None:
    """Draw both pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_rates(database, folder / "measured_and_predicted.svg")
    draw_parts(database, folder / "parts_of_published_steps.svg")


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path("docs/pictures"))
