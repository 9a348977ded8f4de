"""One definition of every option that several commands share, and groups of them.

A command takes a group as one parameter; `expanded` gives the group's fields to typer one by one::

    def rank(*, problem: ProblemFilters, top: Top = None, output: Output) -> None: ...

`--model` then has the same meaning, parser and help in every command.
"""

from __future__ import annotations

import functools
import inspect
import sys
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_type_hints

import typer

from warehouse import settings
from warehouse.cli import completion
from warehouse.database.access import WRITER_SECONDS, access_for, accessing
from warehouse.numbers import Number
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from estimators.contract import Estimator, Mends
    from warehouse.database.access import Access

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
    """Marks a database that a command opens: `expanded` adds the options that go with it."""

    writes: bool = False
    may_be_snapshot: bool = False


DatabasePath = Annotated[Path, _DATABASE]
"""A database that is named, but not opened."""
Database = Annotated[Path, _DATABASE, Opened(writes=True)]
"""A database that the command writes to, or may write to."""
WatchedDatabase = Annotated[Path, _DATABASE, Opened()]
"""A database that the command reads as it is now, or not at all."""
ReadDatabase = Annotated[Path, _DATABASE, Opened(may_be_snapshot=True)]
"""A database that the command only reads."""

Wait = Annotated[
    float | None,
    number_option(
        "--wait",
        "Wait this long for a database that another process has open.",
        metavar="SECONDS",
        show_default=f"{WRITER_SECONDS:g} to write, 0 to read",
        envvar="WAREHOUSE_WAIT",
        least=0,
    ),
]
Snapshot = Annotated[
    bool,
    typer.Option(
        "--snapshot", help="While a sweep has the database, read what it has published so far."
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
Replace = Annotated[bool, typer.Option("--replace", help="Replace what is stored under that name.")]
Overwrite = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Drop = Annotated[
    str | None,
    text_option("--drop", "NAME", "Remove what is stored under this name; show nothing."),
]

# ---- output ----

ENDINGS = {
    ".txt": Format.TABLE,
    ".json": Format.JSON,
    ".csv": Format.CSV,
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
}
"""Ending of a file -> the format that `--out` writes to it."""

FormatName = Annotated[
    Format | None,
    typer.Option(
        "--format",
        case_sensitive=False,
        help="Format of the result.",
        show_default="table, or by the ending of --out",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        readable=False,
        help="Write the result to this file; an existing one is replaced.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json: base units.")]
Wide = Annotated[
    bool, typer.Option("--wide", help="Show every column, however narrow the terminal is.")
]
Columns = Annotated[
    str | None,
    text_option("--columns", "NAME,...", "Show these columns alone, by name or heading."),
]


@dataclass(frozen=True)
class Output:
    """Where a result goes, and in which format.

    Raises
    ------
    UsageError
        If `--json` contradicts `--format`, or neither says the format of a file.
    InputError
        If no file can be written at `--out`.
    """

    named: FormatName = None
    out: Out = None
    as_json: Json = False
    wide: Wide = False
    columns: Columns = None

    def __post_init__(self) -> None:
        if self.as_json and self.named not in (None, Format.JSON):
            from warehouse.errors import UsageError

            raise UsageError(f"`--json` contradicts `--format` {self.named}", "give one of them")
        if self.out is not None:
            from warehouse.files import check_target

            check_target(self.out)
            _ = self.form

    @property
    def form(self) -> Format:
        """The format: as it was named, or by the ending of the file."""
        if self.as_json:
            return Format.JSON
        if self.named is not None:
            return self.named
        if self.out is None:
            return Format.TABLE
        if self.out.suffix.lower() not in ENDINGS:
            from warehouse.errors import UsageError

            raise UsageError(
                f"`--out` {self.out} does not say which format to write",
                f"end it in {', '.join(ENDINGS)}, or give --format",
            )
        return ENDINGS[self.out.suffix.lower()]

    @property
    def chosen(self) -> list[str]:
        """The names that `--columns` has."""
        return _names_in(self.columns)

    @property
    def is_json(self) -> bool:
        """Whether the result is written as JSON."""
        return self.form is Format.JSON

    @property
    def is_for_people(self) -> bool:
        """Whether the result is a text that people read: a table or Markdown."""
        return self.form in (Format.TABLE, Format.MARKDOWN)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Redirect what the block writes to stdout to `--out`, whole or not at all.

        Raises
        ------
        InputError
            If the file cannot be written.
        UsageError
            If no table has a column that `--columns` names.
        """
        from warehouse.cli.display import displayed, held_back

        columns = _names_in(self.columns)
        with (
            self._redirected(),
            held_back() if columns else nullcontext(),
            displayed(is_wide=self.wide, columns=columns),
        ):
            yield

    @contextmanager
    def _redirected(self) -> Iterator[None]:
        if self.out is None:
            yield
            return
        from warehouse.files import written_whole

        sys.stdout.flush()
        with (
            written_whole(self.out) as partial,
            partial.open("w", encoding="utf-8", newline="") as file,
            redirect_stdout(file),
        ):
            yield


def _names_in(text: str | None) -> list[str]:
    """Return the names in the value of ``--columns``, none where it was not given.

    Raises
    ------
    UsageError
        If it was given and names nothing.
    """
    if text is None:
        return []
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        from warehouse.errors import UsageError

        raise UsageError('`--columns` "" names no column', "leave --columns out to show all")
    return names


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


def _refuse_overwriting(values: Mapping[str, Any]) -> None:
    """Refuse an `--out` that is the database, or a file that another option or argument names."""
    if values.get("out") is None:
        return
    from warehouse.files import refuse_overwriting

    read = [value for name, value in values.items() if name not in ("out", "db")]
    read = [value for value in read if isinstance(value, Path)]
    read += [Path(values[name]) for name in _PATH_OR_NAME if values.get(name)]
    refuse_overwriting(values["out"], read=read, database=values.get("db"))


_PATH_OR_NAME = ("study", "reference")
"""Arguments that are a file, or the name of something that comes with the package."""


def _opened(hints: Mapping[str, Any]) -> Opened | None:
    """Return how a command opens its database, by the types of its parameters."""
    found = [mark for mark in get_args(hints.get("db"))[1:] if isinstance(mark, Opened)]
    return found[0] if found else None


def _options_of_database(opened: Opened | None) -> list[inspect.Parameter]:
    """Return the options of every command that opens its database in this way."""
    options: dict[str, tuple[Any, Any]] = {}
    if opened is not None:
        options["wait"] = (Wait, None)
        if opened.may_be_snapshot:
            options["snapshot"] = (Snapshot, False)
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, (annotation, default) in options.items()
    ]


def _access(opened: Opened | None, wait: float | None, *, snapshot: bool) -> Access:
    """Return how a command line opens the database."""
    from warehouse.cli.common import say

    writes = opened is not None and opened.writes
    may_be_snapshot = opened is None or opened.may_be_snapshot
    return access_for(
        wait, writes=writes, snapshot=snapshot, may_be_snapshot=may_be_snapshot, say=say
    )


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose groups of options are single parameters, as typer reads them.

    Raises
    ------
    TypeError
        If two groups have an option of the same name.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[type, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not (isinstance(kind, type) and is_dataclass(kind)):
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        groups[name] = (kind, [field.name for field in fields(kind)])
        types = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=types[field.name],
            )
            for field in fields(kind)
        ]
    opened = _opened(hints)
    parameters += _options_of_database(opened)
    # Every --help ends in the formats and the database.
    last = (*(field.name for field in fields(Output)), "db")
    parameters.sort(key=lambda p: last.index(p.name) + 1 if p.name in last else 0)
    names = [parameter.name for parameter in parameters]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TypeError(f"{command.__name__} has options twice: {', '.join(sorted(twice))}")

    @functools.wraps(command)
    def run(**values: Any) -> None:
        from warehouse.database.source import seen_once

        _refuse_overwriting(values)
        wait, snapshot = values.pop("wait", None), values.pop("snapshot", False)
        for name, (kind, members) in groups.items():
            values[name] = kind(**{member: values.pop(member) for member in members})
        with accessing(_access(opened, wait, snapshot=snapshot)), seen_once():
            command(**values)

    # typer reads these two; by `__wrapped__` it would find the command itself.
    one_by_one = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    vars(run).pop("__wrapped__")
    vars(run)["__signature__"] = inspect.Signature(one_by_one)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
