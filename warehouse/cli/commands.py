"""The commands: where each is, its summary and its example. None is imported before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Listing:
    """One command, and its function, which has its name; a word of Python ends in _ there.

    `example` has command lines that run after `warehouse quickstart`. `module` of `warehouse.cli`
    has the function; empty: the module of the same name.
    """

    name: str
    example: str
    module: str = ""

    def summary(self) -> str:
        """Return the first sentence of the function's docstring from its source, not imported."""
        source = Path(__file__).with_name(f"{self.module or self.name}.py").read_text("utf-8")
        docstring = source.partition(f"\ndef {self._function}(")[2].partition('"""')[2]
        return docstring.splitlines()[0].removesuffix('"""')

    @property
    def _function(self) -> str:
        return f"{self.name}_" if iskeyword(self.name) else self.name

    def function(self) -> Callable[..., None]:
        """Import the command and return its function."""
        module = import_module(f"warehouse.cli.{self.module or self.name}")
        return cast("Callable[..., None]", getattr(module, self._function))


COMMANDS = (
    Listing("quickstart", "warehouse quickstart"),
    Listing("init", "warehouse init", "database"),
    Listing("sweep", "warehouse sweep gpt3_1T_1d"),
    Listing("drop", "warehouse drop gpt3_1T_1d", "database"),
    Listing(
        "evaluate",
        "warehouse sql \"from current_roofline where variant = 'corrected' limit 100\" "
        "--format csv > configs.csv\n"
        "warehouse evaluate --estimator roofline configs.csv --out results.csv",
    ),
    Listing(
        "show",
        "warehouse show --estimator pipeline chip=A100_40GB num_layers=120 hidden_size=12288 "
        "data_parallel=8",
    ),
    Listing("rank", "warehouse rank --model gpt3_1T --accelerator H200 --num-gpus 4096"),
    Listing(
        "operations",
        "warehouse operations --best --model gpt3_1T --accelerator H200 --num-gpus 4096",
    ),
    Listing(
        "explain",
        "warehouse explain model=llama3_70B 'accelerator=H100 SXM 80GB' num_gpus=64 "
        "tensor_parallel=8 pipeline_parallel=2 global_batch_size=256",
    ),
    Listing(
        "why",
        "warehouse why model=llama3_8B 'accelerator=H100 SXM 80GB' num_gpus=64 "
        "global_batch_size=256 tensor_parallel=4 pipeline_parallel=2",
    ),
    Listing("plan", "warehouse plan --model llama3_8B --tokens 1e12 --accelerator H100 --gpus 128"),
    Listing(
        "report",
        "warehouse report --model llama3_8B --tokens 1e12 --accelerator H100 --gpus 128 "
        "--out plan.html",
        "plan",
    ),
    Listing("cost", "warehouse cost --model gpt3_1T --tokens 20e12"),
    Listing(
        "energy", "warehouse energy --model gpt3_1T --tokens 20e12 --pue 1.2 --carbon 0.385", "cost"
    ),
    Listing("plot", "warehouse plot training_days --model gpt3_1T --out days.svg"),
    Listing("explore", "warehouse explore"),
    Listing("serve", "warehouse serve --mcp"),
    Listing(
        "measure",
        "printf 'model,accelerator,num_gpus,tensor_parallel,global_batch_size,step_seconds\\n"
        "llama3_8B,H100,64,2,256,4.4\\n' > runs.csv\nwarehouse measure runs.csv --name ours",
    ),
    Listing("validate", "warehouse validate"),
    Listing("calibrate", "warehouse calibrate published_megatron_recompute --name megatron_2022"),
    Listing("profiles", "warehouse profiles", "calibrate"),
    Listing(
        "sql", 'warehouse sql "select model, count(*) from configuration group by model"', "query"
    ),
    Listing("export", "warehouse export configuration_rank --out ranks.parquet"),
    Listing("import", "warehouse export --facts facts\nwarehouse import facts", "export"),
    Listing(
        "collect",
        "warehouse sweep gpt3_1T_1d --lake lake --shard 1/2\n"
        "warehouse sweep gpt3_1T_1d --lake lake --shard 2/2\n"
        "warehouse collect lake",
        "lake",
    ),
    Listing("backup", "warehouse backup copy.duckdb", "database"),
    Listing("rebuild", "warehouse rebuild"),
    Listing("repair", "warehouse repair", "rebuild"),
    Listing("compact", "warehouse compact", "database"),
    Listing("schema", "warehouse schema configuration_rank"),
    Listing("catalog", "warehouse catalog --from H100 --name ours network_bytes_per_second=25e9"),
    Listing("config", "warehouse config"),
    Listing("status", "warehouse status"),
)
"""The commands in the order of --help."""

FORMER_OPTIONS: dict[str, str] = {}
"""Former name of an option -> its name now. It works for one more minor version, and says so."""

FIRST = ("plan", "why", "rank", "measure", "report", "sql")
"""Commands that `warehouse` alone shows with what they do, in the order of the tasks."""

GROUPS = {
    "begin": ("quickstart", "init"),
    "ask": ("cost", "energy", "explain", "operations", "show", "plot", "explore", "serve"),
    "evaluate": ("sweep", "evaluate", "collect", "drop"),
    "check": ("validate", "calibrate", "profiles"),
    "exchange": ("export", "import"),
    "keep": ("backup", "rebuild", "repair", "compact"),
    "look up": ("schema", "catalog", "config", "status"),
}
"""The other commands by what they are for."""
