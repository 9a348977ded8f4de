"""The commands: where each is, its summary and its example. None is imported before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Entry:
    """One command.

    Attributes
    ----------
    name
        Its name, also that of its function; one that is a word of Python ends in _ there.
    summary
        The first sentence of the function's docstring, which `warehouse --help` shows.
    example
        Command lines that run as they are after `warehouse quickstart`.
    module
        Module of `warehouse.cli` that has the function; empty: the one of the same name.
    """

    name: str
    summary: str
    example: str
    module: str = ""

    def function(self) -> Callable[..., None]:
        """Import the command and return its function."""
        found = import_module(f"warehouse.cli.{self.module or self.name}")
        name = f"{self.name}_" if iskeyword(self.name) else self.name
        return cast("Callable[..., None]", getattr(found, name))


COMMANDS = (
    Entry(
        "quickstart",
        "Build a database, run the main searches, print an answer.",
        "warehouse quickstart",
    ),
    Entry("init", "Create the database, or bring it up to date.", "warehouse init", "database"),
    Entry(
        "sweep",
        "Evaluate every layout of a study and store each as a row.",
        "warehouse sweep gpt3_1T_1d",
    ),
    Entry(
        "drop",
        "Remove a study and the rows that no other study asks for.",
        "warehouse drop gpt3_1T_1d",
        "database",
    ),
    Entry(
        "evaluate",
        "Evaluate a file of configurations, row for row.",
        "warehouse sql \"from current_roofline where variant = 'corrected' limit 100\" "
        "--format csv > configs.csv\n"
        "warehouse evaluate roofline configs.csv --out results.csv",
    ),
    Entry(
        "show",
        "Show the estimate of one configuration.",
        "warehouse show pipeline chip=A100_40GB num_layers=120 hidden_size=12288 data_parallel=8",
    ),
    Entry(
        "rank",
        "Show the fastest layouts that fit in memory.",
        "warehouse rank --model gpt3_1T --accelerator H200 --num-gpus 4096",
    ),
    Entry(
        "operations",
        "Show where the time of a step goes, operation by operation.",
        "warehouse operations --best --model gpt3_1T --accelerator H200 --num-gpus 4096",
    ),
    Entry(
        "explain",
        "Show why a training step takes as long as it does.",
        "warehouse explain model=llama3_70B 'accelerator=H100 SXM 80GB' num_gpus=64 "
        "tensor_parallel=8 pipeline_parallel=2 global_batch_size=256",
    ),
    Entry(
        "why",
        "Say why a layout is not the best.",
        "warehouse why model=llama3_8B 'accelerator=H100 SXM 80GB' num_gpus=64 "
        "global_batch_size=256 tensor_parallel=4 pipeline_parallel=2",
    ),
    Entry(
        "plan",
        "Plan a run: its best layouts, days, dollars and energy.",
        "warehouse plan --model llama3_8B --tokens 1e12 --accelerator H100 --gpus 128",
    ),
    Entry(
        "report",
        "Write a plan as one page that opens offline.",
        "warehouse report --model llama3_8B --tokens 1e12 --accelerator H100 --gpus 128 "
        "--out plan.html",
    ),
    Entry(
        "cost",
        "Show what stored runs cost, rented and owned.",
        "warehouse cost --model gpt3_1T --tokens 20e12",
    ),
    Entry(
        "energy",
        "Show the energy that stored runs take, and its CO2e.",
        "warehouse energy --model gpt3_1T --tokens 20e12 --pue 1.2 --carbon 0.385",
        "cost",
    ),
    Entry(
        "plot",
        "Draw a picture of stored rows, or list the plots.",
        "warehouse plot training_days --model gpt3_1T --out days.svg",
    ),
    Entry(
        "explore",
        "Open stored runs in a notebook: sliders, charts and SQL.",
        "warehouse explore",
    ),
    Entry(
        "measure",
        "Compare runs that you measured with their estimates.",
        "printf 'model,accelerator,num_gpus,tensor_parallel,global_batch_size,step_seconds\\n"
        "llama3_8B,H100,64,2,256,4.4\\n' > runs.csv\nwarehouse measure runs.csv --name ours",
    ),
    Entry(
        "validate",
        "Run the checks and compare estimates with measurements.",
        "warehouse validate",
    ),
    Entry(
        "calibrate",
        "Fit constants to published steps, or to timed kernels.",
        "warehouse calibrate published_megatron_recompute --name megatron_2022",
    ),
    Entry("profiles", "Show the calibrated profiles, or drop one.", "warehouse profiles"),
    Entry(
        "sql",
        "Run one SELECT over the tables and views.",
        'warehouse sql "select model, count(*) from configuration group by model"',
        "query",
    ),
    Entry(
        "export",
        "Write a query to a file, or all facts to a folder.",
        "warehouse export configuration_rank --out ranks.parquet",
    ),
    Entry(
        "import",
        "Take a folder of facts into the database.",
        "warehouse export --facts facts\nwarehouse import facts",
        "export",
    ),
    Entry(
        "collect",
        "Take the finished cells of a lake into the database.",
        "warehouse sweep gpt3_1T_1d --lake lake --shard 1/2\n"
        "warehouse sweep gpt3_1T_1d --lake lake --shard 2/2\n"
        "warehouse collect lake",
        "lake",
    ),
    Entry(
        "backup",
        "Copy the database to a file, and check the copy.",
        "warehouse backup copy.duckdb",
        "database",
    ),
    Entry("rebuild", "Make the database again from its facts.", "warehouse rebuild"),
    Entry(
        "repair",
        "Make the database again: the former name of `rebuild`.",
        "warehouse repair",
        "rebuild",
    ),
    Entry(
        "compact",
        "Shrink the database file.",
        "warehouse compact",
        "database",
    ),
    Entry(
        "schema",
        "Say what there is to ask, and what it means.",
        "warehouse schema configuration_rank",
    ),
    Entry("config", "Show the settings in force, and where each comes from.", "warehouse config"),
    Entry("status", "Show what is stored, and how far a running sweep is.", "warehouse status"),
)
"""The commands in the order of --help."""
