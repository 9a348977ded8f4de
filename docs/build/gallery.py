"""docs/gallery.md: each plot with its command, its query, and its picture in docs/pictures."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from docs.build.console import printed
from warehouse.plot.registry import PLOTS

PAGE = Path(__file__).parents[1] / "gallery.md"
PICTURES = PAGE.parent / "pictures"


class Shown(NamedTuple):
    """A picture of the gallery: the plot, its options, and what the reader may take from it."""

    name: str
    options: str
    text: str


LLAMA = """\
name = "llama"
estimator = "training_step"

[space]
model = "llama3_70B"
accelerator = "H100 SXM 80GB"
num_gpus = {powers_of_two = [6, 12]}
global_batch_size = 1024
"""

SWEEPS = (
    *("quickstart --small", "sweep paper_grid --variant corrected", "sweep hbm_bandwidth_capacity"),
    *("sweep flops_capacity_bandwidth", "sweep nvlink_size", "sweep network_bandwidth"),
    *("sweep dataflow_bandwidth", "sweep cluster_notebook", "sweep errata", "sweep llama.toml"),
    "operations --best --model gpt3_1T --accelerator H200 --num-gpus 4096 --nvlink-size 8 "
    "--into-db",
)
"""Commands that store what the plots show."""

B200 = "--model gpt3_1T --accelerator B200 --nvlink-size 8"

GALLERY = {
    "Published figures": (
        Shown(
            "training_days",
            "--model gpt3_1T --strategy tensor_1d",
            "Time falls with every GPU, less than the dotted lines of perfect scaling.",
        ),
        Shown(
            "throughput_per_gpu",
            "--model gpt3_1T --strategy tensor_1d",
            "On the fewest GPUs the model hardly fits, so that more GPUs first help each of them.",
        ),
        Shown(
            "best_layouts",
            f"{B200} --strategy tensor_1d",
            "Memory and parts of the step of the best layout as GPUs are added.",
        ),
        Shown(
            "strategies",
            "--model gpt3_1T --variant corrected",
            "Context parallelism helps on every system, SUMMA where memory is short.",
        ),
        Shown(
            "configurations",
            f"{B200} --num-gpus 16384 --strategy tensor_1d --variant corrected",
            "Fewer stages mean a smaller bubble, and more memory and exchange of gradients.",
        ),
        Shown(
            "hbm_capacity_and_bandwidth",
            "--num-gpus 4096",
            "Borders between colours are contours. More memory than a B200's gains nothing here.",
        ),
        Shown(
            "flops_and_hbm_capacity",
            "--num-gpus 8192",
            "Arithmetic decides; memory matters below some 110 GB.",
        ),
        Shown(
            "nvlink_domain",
            "--model gpt3_1T --study nvlink_size",
            "Larger domains matter most on most GPUs.",
        ),
        Shown(
            "network_bandwidth",
            "--model gpt3_1T",
            "Large NVLink domains make a fast network less important.",
        ),
    ),
    "How good the estimates are": (
        Shown("accuracy", "", "Dense steps are close; mixtures and eager programs take longer."),
        Shown("measured_rates", "", "The points far above the line are eager, small steps."),
        Shown("published_parts", "", "Parts of each predicted step, over the measured one."),
        Shown("layout_rank", "", "Published layouts are good ones, seldom the best."),
        Shown("errata", "", "Each mend of a published formula changes the best step on its own."),
        Shown(
            "kernels",
            "",
            "Thin products are slow, most of all in the formats with the highest peaks.",
        ),
    ),
    "Plans and their price": (
        Shown(
            "pareto",
            f"{B200} --variant corrected",
            "Each line is what memory can be traded for time on one number of GPUs.",
        ),
        Shown(
            "cost",
            "--model gpt3_1T --num-gpus 4096 --tokens 20T --variant corrected",
            "Prices differ by vendor and commitment, carbon by the grid of the site.",
        ),
        Shown(
            "tornado",
            "--model llama3_70B --accelerator H100 --num-gpus 1024",
            "Which constant to measure before trusting a plan.",
        ),
        Shown(
            "roofline_of_step",
            "--model gpt3_1T --accelerator H200 --num-gpus 4096",
            "Products are limited by arithmetic, all others by memory or latency.",
        ),
    ),
    "Several sites": (
        Shown(
            "bandwidth_between_clusters",
            "",
            "Inter-cluster bandwidth that a mixture of experts like GPT-4 needs.",
        ),
        Shown("sites", "", "GPUs, dollars lost to waiting, and latency of a run on ten sites."),
    ),
}
"""Sections of the page."""

HEAD = """\
# Gallery

`warehouse plot` draws these pictures from stored rows. Each has its command and its query,
which `warehouse sql` and any DuckDB shell run as well. The title says what the rows show.
`.png` and `.html` may take the place of `.svg`; an HTML file needs no network. `--dark` draws for
dark pages.

The rows come from these commands, with `llama.toml` of [questions.md](questions.md):

```
"""


def stored(folder: Path) -> Path:
    """Return a new database that has what the plots show."""
    database = folder / "warehouse.duckdb"
    (folder / "llama.toml").write_text(LLAMA, encoding="utf-8")
    for command in SWEEPS:
        printed(f"warehouse {command}", folder, database)
    return database


def command_of(shown: Shown, out: str) -> str:
    """Return the command that draws a picture into a file; without one, its beginning."""
    words = ("warehouse plot", shown.name, shown.options, out and f"--out {out}")
    return " ".join(filter(None, words))


def section(shown: Shown, database: Path, folder: Path) -> str:
    """Draw one picture, and return its part of the page."""
    name = f"{shown.name}.svg"
    command = command_of(shown, name)
    said = printed(command, folder, database).splitlines()
    title = said[-1].removeprefix(f"{name}: ")
    query = printed(f"{command_of(shown, '')} --show-sql", folder, database)
    (PICTURES / name).write_bytes((folder / name).read_bytes())
    return f"""\
### {shown.name.replace("_", " ").capitalize()}

![{title}](pictures/{name})

{shown.text} {PLOTS[shown.name].summary}

```
{command}
```

```sql
{query.strip()}
```
"""


def gallery(folder: Path) -> str:
    """Return the page and draw its pictures, from a new database in an empty folder."""
    PICTURES.mkdir(exist_ok=True)
    database = stored(folder)
    commands = "\n".join(f"warehouse {command}" for command in SWEEPS)
    parts = [f"{HEAD}{commands}\n```\n"]
    for heading, pictures in GALLERY.items():
        parts.append(f"## {heading}\n")
        parts += [section(shown, database, folder) for shown in pictures]
    return "\n".join(parts)
