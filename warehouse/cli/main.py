"""The program `warehouse`: joins the commands, and turns errors into messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from warehouse.cli.calibrate import calibrate
from warehouse.cli.common import interruptible
from warehouse.cli.cost import cost, energy
from warehouse.cli.database import drop, init
from warehouse.cli.evaluate import evaluate
from warehouse.cli.explain import explain
from warehouse.cli.measure import measure
from warehouse.cli.operations import operations
from warehouse.cli.options import expanded
from warehouse.cli.plan import plan
from warehouse.cli.profiles import profiles
from warehouse.cli.query import sql
from warehouse.cli.quickstart import quickstart
from warehouse.cli.rank import rank
from warehouse.cli.schema import schema
from warehouse.cli.show import show
from warehouse.cli.status import status
from warehouse.cli.sweep import sweep
from warehouse.cli.validate import validate
from warehouse.cli.why import why

INTERRUPTED = 130
"""Exit code after ^C, as shells give it: 128 + SIGINT."""

COMMANDS = (
    (quickstart, "warehouse quickstart"),
    (init, "warehouse init"),
    (sweep, "warehouse sweep gpt3_1T_1d"),
    (drop, "warehouse drop gpt3_1T_1d"),
    (
        evaluate,
        "warehouse sql \"from current_roofline where variant = 'corrected' limit 100\" "
        "--format csv > configs.csv\n"
        "warehouse evaluate roofline configs.csv --out results.csv",
    ),
    (
        show,
        "warehouse show pipeline chip=A100_40GB num_layers=120 hidden_size=12288 data_parallel=8",
    ),
    (rank, "warehouse rank --model gpt3_1T --accelerator H200 --num-gpus 4096"),
    (operations, "warehouse operations --best --model gpt3_1T --accelerator H200 --num-gpus 4096"),
    (
        explain,
        "warehouse explain model=llama3_70B 'accelerator=H100 SXM 80GB' num_gpus=64 "
        "tensor_parallel=8 pipeline_parallel=2 global_batch_size=256",
    ),
    (
        why,
        "warehouse why model=llama3_8B 'accelerator=H100 SXM 80GB' num_gpus=64 "
        "global_batch_size=256 tensor_parallel=4 pipeline_parallel=2",
    ),
    (
        plan,
        "warehouse plan --model llama3_8B --tokens 1e12 --accelerator H100 --gpus 128",
    ),
    (cost, "warehouse cost --model gpt3_1T --tokens 20e12"),
    (energy, "warehouse energy --model gpt3_1T --tokens 20e12 --pue 1.2 --carbon 0.385"),
    (
        measure,
        "printf 'model,accelerator,num_gpus,tensor_parallel,global_batch_size,step_seconds\\n"
        "llama3_8B,H100,64,2,256,4.4\\n' > runs.csv\nwarehouse measure runs.csv --name ours",
    ),
    (validate, "warehouse validate"),
    (calibrate, "warehouse calibrate published_megatron_recompute --name megatron_2022"),
    (profiles, "warehouse profiles"),
    (sql, 'warehouse sql "select model, count(*) from configuration group by model"'),
    (schema, "warehouse schema configuration_rank"),
    (status, "warehouse status"),
)
"""The commands in the order of --help, each with an example that runs as printed."""

app = typer.Typer(
    name="warehouse",
    help=(
        "Evaluate whole search spaces of large-transformer training layouts and query every "
        "configuration in SQL.\n\nExit codes: 0 done, 2 wrong usage, 3 input refused, "
        "4 checks failed, 5 database locked or damaged."
    ),
    epilog="\b\nStart with:\n  warehouse quickstart",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)
for _command, _example in COMMANDS:
    _lines = _example.replace("\n", "\n  ")
    app.command(epilog=f"\b\nExample:\n  {_lines}")(expanded(_command))


def _show_version(is_given: bool) -> None:
    if is_given:
        from warehouse import __version__

        sys.stdout.write(f"warehouse {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a user's mistake becomes a message on stderr."""
    context: dict[str, Path] = {}
    try:
        with interruptible():
            app(arguments, prog_name="warehouse", obj=context)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
        if code == INTERRUPTED:
            sys.stderr.write("interrupted\n")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        code = INTERRUPTED
    except Exception as error:
        message = _explained(error, context.get("database"))
        if message is None:
            raise
        text, code = message
        _flush()
        sys.stderr.write(f"error: {text}\n")
    lost = _flush()
    if lost is not None and code == 0:
        sys.stderr.write(f"error: {lost.strerror}\n")
        code = 1
    return code


def _explained(error: Exception, database: Path | None) -> tuple[str, int] | None:
    """Return the message and exit code of an error that is not a fault of the program."""
    from estimators.contract import RefusedError
    from warehouse.errors import InputError, WarehouseError

    if isinstance(error, WarehouseError):
        return str(error), error.exit_code
    if isinstance(error, RefusedError):
        return str(error), InputError.exit_code
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror or error}", WarehouseError.exit_code
    duckdb = sys.modules.get("duckdb")
    if duckdb and isinstance(error, duckdb.Error):
        from warehouse.database.connection import database_error

        known = database_error(error, database or Path("the database"))
        return str(known), known.exit_code
    return None


def _flush() -> OSError | None:
    """Flush stdout; return the error, or None if only the reader of a pipe has gone."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python would try again at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return None if isinstance(error, BrokenPipeError) else error
    return None


if __name__ == "__main__":
    sys.exit(run())
