"""`warehouse collect`, and sweeps into a lake: a folder that many machines write to."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import say
from warehouse.cli.options import DEFAULT_DATABASE, Database, refuse_given
from warehouse.cli.waiting import LogLines
from warehouse.errors import MAX_SHOWN, CheckError, UsageError
from warehouse.lake.jobs import EngineName, Shard, read_shard
from warehouse.options import whole_option
from warehouse.show.formats import count

if TYPE_CHECKING:
    from warehouse.lake.collect import Collected
    from warehouse.studies.study import Study
    from warehouse.sweep.estimate import Estimate


@dataclass(frozen=True)
class Sharing:
    """The lake, and the shards or the engine of a sweep."""

    lake: Annotated[
        Path | None,
        typer.Option(
            "--lake",
            metavar="DIR",
            readable=False,
            help="Write Parquet files to this folder, which machines share, and no database.",
        ),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="With --lake: evaluate the Ith of N parts."),
    ] = None
    engine: Annotated[
        EngineName | None,
        typer.Option(
            "--engine", help="With --lake: start every shard, wait, and collect into the database."
        ),
    ] = None
    shards: Annotated[
        int | None,
        whole_option("--shards", "With --engine: how many parts."),
    ] = None
    engine_option: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-option",
            metavar="NAME=VALUE",
            help="An option of sbatch, or an argument of ray.init; may be repeated.",
        ),
    ] = None

    def check(self, *, force: bool, workers: int | None) -> None:
        """Raise `UsageError` if options of a lake, of an engine or of a database are mixed."""
        of_engine = {"--shards": self.shards, "--engine-option": self.engine_option}
        if self.lake is None:
            of_lake = {"--shard": self.shard, "--engine": self.engine, **of_engine}
            refuse_given(of_lake, "needs `--lake DIR`", "a folder that the machines share")
            return
        of_database = {"--force": force, "--workers": workers}
        hint = "it is for a sweep into a database"
        refuse_given(of_database, "cannot be combined with `--lake`", hint)
        if self.engine is None:
            refuse_given(of_engine, "needs `--engine`", "slurm, ray or local")
        elif self.shard is not None:
            raise UsageError("`--engine` starts every shard: leave `--shard` out", "--shards N")
        elif self.shards is None and self.engine is not EngineName.LOCAL:
            raise UsageError(f"`--engine` {self.engine} needs `--shards N`", "one for each job")

    def chosen_shard(self) -> Shard | None:
        """Return the shard to evaluate; None: an engine runs all shards."""
        return read_shard(self.shard or "1/1") if self.engine is None else None

    def study(self, name: str) -> Study | None:
        """Return the study of the lake with this name; None: it has none, or this is a file."""
        if self.lake is None or Path(name).is_file():
            return None
        from warehouse.lake.folder import Lake

        lake = Lake(self.lake)
        return lake.study(name) if lake.has_study(name) else None


def sweep_into_lake(study: Study, folder: Path, sharing: Sharing, db: Path) -> None:
    """Run the shards that the options name, and print the outcome."""
    shard = sharing.chosen_shard()
    try:
        if shard is None:
            _run_all(study, folder, sharing, db)
        else:
            _run_one(study, folder, shard)
    except KeyboardInterrupt:
        say(f"{study.name}: stopped; written cells stay, the same command resumes")
        raise


def estimate_of_shards(
    study: Study, folder: Path, shard: Shard | None
) -> tuple[Estimate, dict[str, str]]:
    """Print what a shard, or all of them, would evaluate; return its size and its name."""
    from warehouse.lake.shard import estimate_shard
    from warehouse.show.units import sweep_time_in_words

    estimate = estimate_shard(folder, study, shard or Shard(1, 1))
    size = estimate.size
    name = f"{study.name}, {'all shards' if shard is None else f'shard {shard}'}"
    if size.missing_rows:
        about = "about " if estimate.is_sampled else ""
        rows = f"{count(size.missing_rows, 'row')} of {count(size.missing_cells, 'cell')}"
        time = sweep_time_in_words(estimate.cost.seconds)
        say(f"{name}: {about}{rows} to evaluate and write, about {time} of one process")
    else:
        say(f"{name}: all {count(size.cells, 'cell')} are in {folder} already")
    return estimate, {"study": study.name, "shard": "" if shard is None else str(shard)}


def _run_one(study: Study, folder: Path, shard: Shard) -> None:
    from warehouse.lake.shard import prepare_lake, run_shard

    lines = LogLines()

    def on_cells(cells: int, rows: int) -> None:
        if lines.is_due():
            written = f"{count(cells, 'cell')}, {count(rows, 'row')} written"
            say(f"{study.name}, shard {shard}: {written}")

    prepare_lake(folder, study)
    report = run_shard(folder, study.name, shard, on_cells)
    before = f"; {count(report.cells_before, 'cell')} were there" if report.cells_before else ""
    say(
        f"{study.name}, shard {shard}: {count(report.rows, 'row')} of"
        f" {count(report.cells, 'cell')} written in {report.seconds:.1f} s{before}"
    )
    if shard.of == 1:
        say(f"next: warehouse collect {shlex.quote(str(folder))}")


def _run_all(study: Study, folder: Path, sharing: Sharing, db: Path) -> None:
    from warehouse.lake.engines import engine, run_shards
    from warehouse.lake.shard import prepare_lake
    from warehouse.sweep.machine import usable_cores

    assert sharing.engine is not None
    lines = LogLines()

    def on_cells(cells: int) -> None:
        if lines.is_due():
            say(f"{study.name}: {count(cells, 'cell')} written")

    options = dict(map(_option, sharing.engine_option or []))
    prepare_lake(folder, study)
    starter = engine(sharing.engine, folder, options)
    shards = sharing.shards or usable_cores()
    report = run_shards(starter, folder, study.name, shards, on_cells=on_cells)
    again = f"; {count(report.restarts, 'lost shard')} started again" if report.restarts else ""
    say(
        f"{study.name}: {count(report.rows, 'row')} of {count(report.cells, 'cell')} written by"
        f" {count(shards, 'shard')}{again}"
    )
    collect(folder=folder, db=db)


def _option(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise UsageError(f"`--engine-option` {text!r} must be NAME=VALUE", "partition=gpu")
    return name, value


def collect(
    *,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A folder that `warehouse sweep --lake` wrote.", readable=False
        ),
    ],
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Take the finished cells of a lake into the database.

    Each cell is stored once, however often this runs. Each file is compared with its hash first.
    Shards with unfinished cells are named, with the command that runs them again on any machine
    that sees the folder, and so are damaged files of studies. All other cells are stored, and the
    exit code is 4.
    """
    from warehouse.lake.collect import collect as collect_lake

    report = collect_lake(db, folder)
    for study in report.studies:
        _say_collected(study, folder)
    if report.num_foreign_cells:
        say(
            f"{count(report.num_foreign_cells, 'cell')} of {folder}: another version of an"
            " estimator evaluated them; they are left out"
        )
    for reason in report.refused:
        say(reason)
    missing = sum(sum(study.missing.values()) for study in report.studies)
    lacks = [f"lacks {count(missing, 'cell')}"] if missing else []
    if report.refused:
        lacks.append(f"has {count(len(report.refused), 'study file')} that cannot be used")
    if lacks:
        raise CheckError(
            f"{folder}: {' and '.join(lacks)}; all others are stored",
            "do what the lines above say, then run `warehouse collect` again",
        )


def _say_collected(study: Collected, folder: Path) -> None:
    before = f"; {count(study.cells_before, 'cell')} stored before" if study.cells_before else ""
    say(f"{study.study}: {count(study.rows, 'row')} of {count(study.cells, 'cell')} new{before}")
    for fault in study.damaged[:MAX_SHOWN]:
        say(f"{fault}; the cell counts as missing")
    if len(study.damaged) > MAX_SHOWN:
        say(f"{len(study.damaged) - MAX_SHOWN:,} other cells are damaged as well")
    for shard, cells in list(study.missing.items())[:MAX_SHOWN]:
        again = ["warehouse", "sweep", study.study, "--lake", str(folder), "--shard", str(shard)]
        say(f"shard {shard} lacks {count(cells, 'cell')}: run it again with `{shlex.join(again)}`")
    if len(study.missing) > MAX_SHOWN:
        say(f"{len(study.missing) - MAX_SHOWN:,} other shards lack cells as well")
