"""`warehouse measure`: measured runs, stored and compared with the estimates."""

from __future__ import annotations

import dataclasses
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from estimators import registry
from warehouse.cli.common import put_for_people, say
from warehouse.cli.options import DEFAULT_DATABASE, Database, Drop, Name, Replace
from warehouse.cli.output import Output
from warehouse.cli.waiting import working
from warehouse.options import (
    CatalogFile,
    EstimatorName,
    LaunchPath,
    Profile,
    RunOptions,
    SpeedOptions,
    given,
)
from warehouse.show.formats import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from warehouse.show.values import Row

    Record = Mapping[str, Any]

DEFAULT_ESTIMATOR = registry.default("measure")

_SAID_ONCE = ("variant", "profile", "model", "accelerator", "num_gpus")
"""Columns that a line states if all rows have one value; the table then omits them."""


_SAID = {"fits_memory", "hbm_bytes"}
"""Columns that lines state and the table omits."""

_SPEED_OPTIONS = ", ".join(
    "--" + field.name.replace("_", "-") for field in dataclasses.fields(SpeedOptions)
)


@dataclasses.dataclass(frozen=True)
class MeasureFiles:
    """Options of what is read for runs."""

    profile: Profile = None
    catalog: CatalogFile = None
    launch: LaunchPath = None


def measure(
    output: Output,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            readable=False,
            help="A .csv or .parquet file of runs; with --from the log of one run.",
        ),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE...",
            help="In place of FILE, with a speed: one run, as tensor_parallel=2 or dp32 tp2.",
        ),
    ] = None,
    *,
    speed: SpeedOptions,
    run: RunOptions,
    read: MeasureFiles,
    estimator: EstimatorName = DEFAULT_ESTIMATOR,
    name: Name = None,
    replace: Replace = False,
    drop: Drop = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Compare runs that you measured with their estimates.

    Each row of FILE is a run: the columns that `evaluate` takes, `num_gpus` and
    `global_batch_size` among them, the measured `step_seconds` and, where known, `memory_bytes` of
    the fullest GPU with its `measured_memory_kind` (allocated or reserved by PyTorch, or device),
    `run` (its name), `source` and `note`. In place of `step_seconds` a run may give
    `tokens_per_second`, `tokens_per_second_per_gpu`, `model_flops_per_second_per_gpu` or `mfu`: its
    seconds follow, by the tokens or the model FLOPs of its step, which are printed. All rows are
    checked first: if any is refused, nothing is stored. The layouts are evaluated and stored as by
    `evaluate --into-db`, under --name or the name of the file. With --profile, runs that name no
    profile are estimated twice: with the published constants and with those of the profile. Views
    measurement_comparison, for time and memory, and published_accuracy then include the runs;
    --drop removes them.

    One run may be given without a file, by KEY=VALUE and options, with its speed as --seconds,
    --tokens-per-second, --tokens-per-second-per-gpu, --tflops or --mfu. With --from, a launch file
    describes the run, and FILE may be its log: lines of Megatron-LM, torchtitan or NeMo, or metrics
    that W&B or TensorBoard export as CSV. The first five iterations after a start and lines far
    from the median are dropped; the step is the median of the others.
    """
    from warehouse.errors import UsageError

    words = [str(word) for word in (file, *(pairs or ())) if word is not None]
    if drop is not None:
        if words or given(speed) or given(run) or (name, read.profile) != (None, None) or replace:
            others = "FILE, --name, --replace or --profile"
            raise UsageError(f"`--drop` removes stored runs: give no {others}")
        _drop(db, drop)
        return
    from warehouse.measure.compare import SHOWN, measure_runs

    output.expect(SHOWN)
    source, place, called = _source(words, name, speed, run, read.launch, estimator)
    comparison = measure_runs(
        *(db, source, called),
        estimator=estimator,
        replaces=replace,
        profile=read.profile,
        catalog=read.catalog,
        warn=lambda text: say(f"warning: {text}"),
        called=place,
    )
    runs, cells = count(comparison.num_runs, "run"), count(comparison.num_cells, "cell")
    new = comparison.num_new_cells
    say(f"{place}: {runs} stored in {db} as {called}, estimated in {cells}, {new:,} of them new")
    for line in comparison.derived:
        say(line)
    for reason, names in comparison.left_out.items():
        say(f"not in published_accuracy: {', '.join(names)}: {reason}")
    with output.opened():
        _put(comparison.columns, comparison.rows, output)


def _source(
    words: Sequence[str],
    name: str | None,
    speed: SpeedOptions,
    run: RunOptions,
    launch: Path | None,
    estimator: str | None,
) -> tuple[Path | pl.DataFrame, str, str]:
    """Return the runs, what errors call them, and the name that they are stored under."""
    from warehouse.errors import UsageError
    from warehouse.evaluate.csv_parquet import SUFFIXES
    from warehouse.measure.one_run import PLACE, one_run

    has_speed = bool(given(speed))
    file = Path(words[0]) if words else None
    is_table = file is not None and file.suffix in SUFFIXES
    if has_speed and is_table:
        hint = f"leave {_SPEED_OPTIONS} out: a file has the speeds of its runs as columns"
        raise UsageError(f"{file} and a speed: give one of them", hint)
    if has_speed or launch is not None:
        log = None if has_speed else file
        if log is None and not has_speed:
            hint = f"give the log of the run, or one of {_SPEED_OPTIONS}"
            raise UsageError("a launch file has no speed", hint)
        called = name or (log.stem if log else None)
        if called is None:
            raise UsageError("Missing option '--name'.", "name the run that is stored")
        of_run = words[1:] if log else words
        frame, remarks = one_run(called, of_run, run, speed, estimator, launch, log)
        for line in remarks:
            say(line)
        return frame, str(log) if log else PLACE, called
    if len(words) > 1 or given(run):
        raise UsageError("a run without a file needs its speed", f"give one of {_SPEED_OPTIONS}")
    if file is None:
        raise UsageError("Missing argument 'FILE'.", "name a file of runs, or --drop stored ones")
    return file, str(file), file.stem if name is None else name


def _drop(db: Path, name: str) -> None:
    from warehouse.measure.store import drop_measurements

    with working("dropping rows"):
        runs, report = drop_measurements(db, name)
    say(
        f"dropped {name}: {count(runs, 'run')}, with {count(report.cells, 'cell')} evaluated "
        f"for them alone; {report.free_in_words}"
    )


def _put(columns: Sequence[str], rows: Sequence[Row], output: Output) -> None:
    drop = set()
    if output.is_for_people:
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        values = {name: {record[name] for record in records} for name in columns}
        for name in _SAID_ONCE:
            if len(values[name]) == 1 and None not in values[name]:
                drop.add(name)
                say(f"{name} {values[name].pop()}")
        drop |= {name for name, some in values.items() if some == {None}} | _SAID
        if "measured_memory_bytes" in drop:
            drop.add("compared_memory_bytes")  # with no measured memory
        _say_errors(records)
        _say_too_large(records)
    put_for_people(columns, rows, drop=drop)


def _say_errors(records: Sequence[Record]) -> None:
    """Print the errors of each estimator, variant and profile: mean and largest size, and bias."""
    from warehouse.measure.compare import KEY

    for _, group in groupby(records, lambda record: [record[name] for name in KEY]):
        runs = list(group)
        who = _estimated_by(runs[0], records)
        for measure in ("time", "memory"):
            errors = [run[f"{measure}_relative_error"] for run in runs]
            errors = [100 * error for error in errors if error is not None]
            if errors:
                say(
                    f"{who}: error of {measure} {sum(map(abs, errors)) / len(errors):.1f} % in "
                    f"the mean, {max(map(abs, errors)):.1f} % at most, bias "
                    f"{sum(errors) / len(errors):+.1f} %, {count(len(errors), 'run')}"
                )


def _estimated_by(run: Record, records: Sequence[Record]) -> str:
    """Return the estimator of a record, with its variant and profile where other records differ."""
    who = str(run["estimator"])
    if len({other["variant"] for other in records}) > 1:
        who += f", variant {run['variant']}"
    if run["profile"] not in (None, "default"):
        who += f", profile {run['profile']}"
    return who


def _say_too_large(records: Sequence[Record]) -> None:
    """Print which runs do not fit by their estimate although they ran."""
    for run in records:
        if run["fits_memory"] is not False:
            continue
        excess = run["memory_bytes"] - run["hbm_bytes"]
        who = _estimated_by(run, records)
        sizes = f"{run['memory_bytes'] / 1e9:,.1f} of {run['hbm_bytes'] / 1e9:,.1f} GB"
        say(
            f"{who}: {run['measured_row']} does not fit by its estimate, {sizes}, and yet it ran: "
            f"the estimate is at least {excess / 1e9:,.1f} GB too large, or the run differs from "
            "its row, such as in `activation_recompute`, `recompute_modules` or `virtual_pipeline`"
        )
