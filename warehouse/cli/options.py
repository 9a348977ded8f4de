"""One definition of every option that several commands share, and groups of them.

A command takes a group as one parameter, of which `groups.expanded` gives typer the fields::

    def rank(*, problem: ProblemFilters, top: Top = None, output: Output) -> None: ...

`--model` then has the same meaning, parser and help in every command.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from warehouse import settings
from warehouse.cli import completion
from warehouse.database.access import READER_SECONDS, WRITER_SECONDS
from warehouse.limits import Number

if TYPE_CHECKING:
    from collections.abc import Callable

    from estimators.contract import Estimator, Mends

DEFAULT_DATABASE = settings.usual_database()
"""The database where neither an option nor a setting names another."""


# ---- numbers as people write them ----


def number_option(
    name: str,
    text: str,
    *more_names: str,
    metavar: str = "N",
    show_default: bool | str = True,
    envvar: str | None = None,
    **limits: Any,
) -> Any:
    """Return an option that holds a number."""
    return typer.Option(
        name,
        *more_names,
        envvar=envvar,
        metavar=metavar,
        help=text,
        show_default=show_default,
        parser=Number(name, **limits),
    )


def whole_option(name: str, text: str, *more_names: str, show_default: bool | str = True) -> Any:
    """Return an option that holds a whole number of at least 1."""
    return number_option(name, text, *more_names, show_default=show_default, whole=True, least=1)


def text_option(
    name: str,
    metavar: str,
    text: str,
    *,
    show_default: bool | str = True,
    complete: Callable[[str], list[str]] | None = None,
) -> Any:
    """Return an option that holds a text; `complete` gives the values that begin as a word does."""
    return typer.Option(
        name,
        metavar=metavar,
        help=text,
        show_default=show_default,
        autocompletion=complete,
    )


# ---- the database, models and figures ----


def _remember(context: typer.Context, database: Path) -> Path:
    """Take the settings' database if none was given, and note it for errors that do not name it."""
    source = context.get_parameter_source("db")
    if source is not None and source.name == "DEFAULT" and not context.resilient_parsing:
        database = settings.database()
    if isinstance(context.obj, dict):
        context.obj["database"] = database
    return database


_DATABASE = typer.Option(
    "--db",
    envvar="WAREHOUSE_DB",
    metavar="PATH",
    help="The database file.",
    readable=False,  # typer would call a file that may not be read wrong usage
    callback=_remember,
)


class Opened(NamedTuple):
    """Marks a database that a command opens: `groups.expanded` adds option --wait."""

    writes: bool = False


DatabasePath = Annotated[Path, _DATABASE]
"""A database that is named, but not opened."""
Database = Annotated[Path, _DATABASE, Opened(writes=True)]
"""A database that the command writes to, or may write to."""
ReadDatabase = Annotated[Path, _DATABASE, Opened()]
"""A database that the command only reads."""

Wait = Annotated[
    float | None,
    number_option(
        "--wait",
        "Wait this long for a database that another process has open.",
        metavar="SECONDS",
        show_default=f"{WRITER_SECONDS:g} to write, {READER_SECONDS:g} to read",
        envvar="WAREHOUSE_WAIT",
        least=0,
    ),
]
Variant = Annotated[
    str | None,
    text_option(
        "--variant",
        "NAME",
        "published, corrected, or the errata to mend, such as R2,R4.",
        show_default="corrected; published where an estimator has no mends",
        complete=completion.variants,
    ),
]
Mend = Annotated[
    str | None,
    text_option("--mend", "R1,R2", "Mend these errata only; the same as --variant R1,R2."),
]
Profile = Annotated[
    str | None,
    text_option("--profile", "NAME", "Take constants that are not given from this stored profile."),
]
CatalogFile = Annotated[
    Path | None,
    typer.Option(
        "--catalog",
        metavar="TOML",
        readable=False,
        help="Define models and systems in this file, as a study does.",
    ),
]
EstimatorName = Annotated[
    str | None,
    text_option(
        "--estimator",
        "NAME",
        "Use this estimator.",
        complete=completion.estimators,
    ),
]
Relation = Annotated[
    str | None,
    text_option(
        "--relation", "NAME", "The grain of the results.", show_default="the estimator's first"
    ),
]

# ---- problems ----

Model = Annotated[
    str | None,
    text_option("--model", "NAME", "The model, in any spelling.", complete=completion.models),
]
Accelerator = Annotated[
    str | None,
    text_option(
        "--accelerator",
        "NAME",
        "The accelerator, by any of its names.",
        complete=completion.accelerators,
    ),
]
NvlinkSize = Annotated[int | None, whole_option("--nvlink-size", "GPUs in one NVLink domain.")]
NumGpus = Annotated[int | None, whole_option("--num-gpus", "GPUs of the run.", "--gpus")]
NumClusters = Annotated[int | None, whole_option("--num-clusters", "Clusters of the run.")]
GlobalBatchSize = Annotated[
    int | None, whole_option("--global-batch-size", "Sequences of a step.", "--batch")
]
SequenceLength = Annotated[int | None, whole_option("--seq-len", "Tokens of a sequence.")]
Framework = Annotated[
    str | None,
    text_option(
        "--framework",
        "NAME",
        "The program whose choices are assumed: a row of table framework.",
        complete=completion.of_tables("framework"),
    ),
]
StudyName = Annotated[
    str | None,
    text_option("--study", "NAME", "Only this stored study; `warehouse status` lists them."),
]
Precision = Annotated[
    str | None,
    text_option(
        "--precision",
        "FORMAT",
        "Number format of the matrix products: bf16, fp16, fp8 or fp4.",
        show_default="bf16, or that of --framework",
        complete=completion.precisions,
    ),
]
Strategy = Annotated[
    str | None,
    text_option("--strategy", "NAME", "The strategy of tensor parallelism, such as tensor_1d."),
]

# ---- terms of a run ----

Tokens = Annotated[
    float | None, number_option("--tokens", "Tokens of the run, such as 15T or 15e12.", above=0)
]
Goodput = Annotated[
    str | None,
    text_option(
        "--goodput",
        "SHARE|NAME",
        "Share of the time that makes progress, or a run of table goodput.",
        show_default="1, or that of a budgeted run",
        complete=completion.of_tables("goodput"),
    ),
]
Prices = Annotated[
    list[float] | None,
    number_option(
        "--price",
        "Price of an hour of one GPU, instead of published ones; repeat it for several prices.",
        metavar="USD",
        above=0,
    ),
]
ElectricityPrice = Annotated[
    float | None,
    number_option("--electricity-price", "Price of a kWh.", metavar="USD", least=0),
]
Pue = Annotated[
    str | None,
    text_option(
        "--pue",
        "RATIO|NAME",
        "Overhead of the site, or a site of table facility_pue.",
        complete=completion.of_tables("facility_pue"),
    ),
]
Watts = Annotated[
    float | None,
    number_option(
        "--watts", "Power of one GPU with its server, while training.", metavar="W", above=0
    ),
]
Carbon = Annotated[
    list[str] | None,
    text_option(
        "--carbon",
        "KG|NAME",
        "kg CO2e of a kWh, or a country, a state or another grid of table grid_carbon; repeat it "
        "for several grids.",
        show_default="the grids of published runs",
    ),
]

# ---- what a command does ----

Top = Annotated[int | None, whole_option("--top", "Rows to show at most.")]
Best = Annotated[
    bool, typer.Option("--best", help="Take the fastest stored layout that passes the filters.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be evaluated; write nothing.")
]
Yes = Annotated[
    bool,
    typer.Option("--yes", help="Sweep more than 50 million rows, or more than the disk has free."),
]
IntoDatabase = Annotated[
    bool, typer.Option("--into-db", help="Store the rows in the database as well.")
]
WithInterval = Annotated[
    bool,
    typer.Option(
        "--interval/--no-interval",
        help="Add both ends of the interval of the step: two evaluations a constant.",
    ),
]
Name = Annotated[str | None, text_option("--name", "NAME", "Store the result under this name.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace the one stored under that name.")]
Overwrite = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Drop = Annotated[
    str | None,
    text_option("--drop", "NAME", "Remove what is stored under this name; show nothing."),
]

# ---- groups ----


@dataclass(frozen=True)
class ProblemFilters:
    """Filters: values that a problem must have."""

    model: Model = None
    accelerator: Accelerator = None
    nvlink_size: NvlinkSize = None
    num_gpus: NumGpus = None
    global_batch_size: GlobalBatchSize = None
    strategy: Strategy = None


@dataclass(frozen=True)
class Mending:
    """Which errata are mended."""

    variant: Variant = None
    mend: Mend = None

    def mends(self, estimator: Estimator) -> Mends:
        """Return the mends of one variant; by default all.

        Raises
        ------
        UsageError
            If both options are given, or one names no single variant.
        """
        from warehouse.studies.variants import mends_of_options

        return mends_of_options(estimator, self.variant, self.mend)


@dataclass(frozen=True)
class PowerTerms:
    """Terms for the hours and the energy of a run."""

    goodput: Goodput = None
    electricity_price: ElectricityPrice = None
    pue: Pue = None
    watts: Watts = None


def given(group: object) -> dict[str, Any]:
    """Return the values of a group of options that were given."""
    return {
        field.name: getattr(group, field.name)
        for field in fields(group)  # type: ignore[arg-type]
        if getattr(group, field.name) is not None
    }
