"""`warehouse evaluate`: a file of configurations in, the same rows with their results out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import say
from warehouse.cli.options import (
    DEFAULT_DATABASE,
    Database,
    IntoDatabase,
    Mending,
    Relation,
    UsualEstimator,
    WithInterval,
    chosen_estimator,
)
from warehouse.options import CatalogFile, Profile
from warehouse.show.formats import count

if TYPE_CHECKING:
    from warehouse.evaluate.file import BatchReport


def evaluate(
    *,
    configs: Annotated[
        Path, typer.Argument(metavar="CONFIGS", readable=False, help="A .csv or .parquet file.")
    ],
    after_estimator: Annotated[
        Path | None, typer.Argument(metavar=" ", readable=False, hidden=True)
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            readable=False,
            help="Write the rows to this .csv or .parquet file; an existing one is replaced.",
        ),
    ],
    estimator: UsualEstimator = None,
    mending: Mending,
    relation: Relation = None,
    profile: Profile = None,
    keep_valid: Annotated[
        bool, typer.Option("--keep-valid", help="Leave refused rows out and evaluate the rest.")
    ] = False,
    into_db: IntoDatabase = False,
    interval: WithInterval = True,
    catalog: CatalogFile = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Evaluate a file of configurations, row for row.

    Every row of CONFIGS is written to --out with its results, in the same order. Columns keep their
    place and type. Result columns that CONFIGS has already are replaced, others are appended, and
    columns that the estimator does not know are kept. A missing column or an empty cell takes the
    estimator's default; the default is not added to the output. A step that depends on constants
    has an interval as well: low_step_seconds and high_step_seconds hold nine steps in ten.

    Rows of view current_ESTIMATOR can be used as CONFIGS: its columns are the estimator's inputs.
    Columns of view configuration have one meaning for all estimators, which may differ from that of
    an estimator's input.

    All rows are checked before any is evaluated. If some are refused, every refusal is listed,
    nothing is written and the exit code is 3; with --keep-valid the other rows are evaluated. A
    file without rows gives a result without rows.
    """
    from warehouse.evaluate.csv_parquet import values_of
    from warehouse.evaluate.file import evaluate_file, find_relation
    from warehouse.studies.definitions import every_definition

    former = None
    if after_estimator is not None:
        former, configs = str(configs), after_estimator
    chosen = chosen_estimator(estimator, former)
    defined = every_definition(db, catalog, values_of(configs, "model"))
    mends, grain = mending.mends(chosen), find_relation(chosen, relation)
    run = partial(
        evaluate_file,
        chosen,
        configs,
        out,
        mends,
        relation=grain,
        keep_valid=keep_valid,
        with_interval=interval,
        warn=lambda message: say(f"warning: {message}"),
    )
    if not into_db:
        from warehouse.evaluate.profiles import profiled_catalog

        known = profiled_catalog(db, chosen, profile, defined)
        report = run(catalog=known, with_cells=False)
    else:
        from warehouse.database.catalog import packaged_catalog
        from warehouse.database.connection import writing
        from warehouse.evaluate.profiles import read_profiles, with_profiles
        from warehouse.sweep.record import evaluated_study, store_evaluated

        with writing(db) as connection:  # first, so that a lock ends the command at once
            known = defined.added_to(packaged_catalog())
            known = with_profiles(known, lambda: read_profiles(connection), chosen, profile)
            report = run(catalog=known, with_cells=True)
            study = evaluated_study(chosen, grain, mends, configs, profile=profile, defined=defined)
            new = store_evaluated(connection, grain, report.cells, study)
        rows = sum(len(next(iter(columns.values()))) for _, columns in report.cells)
        distinct, cells = count(rows, "distinct row"), count(len(report.cells), "cell")
        say(f"{db}: {distinct} in {cells}, {new:,} of them new")
    _say_report(report, configs, out)


def _say_report(report: BatchReport, configs: Path, out: Path) -> None:
    from warehouse.errors import InputError

    if report.refusals:
        left_out = count(report.num_refused, "row")
        say(str(InputError.from_refusals(report.refusals, str(configs))))
        say(f"{left_out} refused and left out")
    rate = report.num_rows / report.seconds if report.seconds else 0
    rows = count(report.num_rows, "row")
    say(f"{out}: {rows} evaluated in {report.seconds:.1f} s ({rate:,.0f} rows/s)")
