"""``warehouse evaluate``: a file of configurations in, the same rows with their results out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import DEFAULT_DATABASE, Database, ProfileOption, count, say

if TYPE_CHECKING:
    from estimators.contract import Catalog, Estimator, Mends, Relation
    from warehouse.evaluate.file import BatchReport
    from warehouse.studies.definitions import Definitions


def evaluate(
    estimator: Annotated[str, typer.Argument(metavar="ESTIMATOR", help="Such as roofline.")],
    configs: Annotated[
        Path, typer.Argument(metavar="CONFIGS", readable=False, help="A .csv or .parquet file.")
    ],
    out: Annotated[
        Path, typer.Option("--out", readable=False, help="The .csv or .parquet file to write.")
    ],
    variant: Annotated[
        str | None,
        typer.Option(metavar="published|corrected", help="Which figures; default: corrected."),
    ] = None,
    mend: Annotated[
        str | None, typer.Option(metavar="R1,R2", help="Mend these errata only.")
    ] = None,
    relation: Annotated[
        str | None, typer.Option(help="The grain to evaluate; default: the estimator's first.")
    ] = None,
    profile: ProfileOption = None,
    keep_valid: Annotated[
        bool, typer.Option("--keep-valid", help="Leave refused rows out and evaluate the rest.")
    ] = False,
    into_db: Annotated[
        bool, typer.Option("--into-db", help="Store the rows in the database as well.")
    ] = False,
    catalog: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML", readable=False, help="Define models and systems, as a study does."
        ),
    ] = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Evaluate a file of configurations, row for row.

    Every row of CONFIGS is written, with its results, to the file given by --out. Rows keep
    their order, and columns their place and type; result columns that CONFIGS has already are
    replaced, the others are appended. Columns that the estimator does not know are passed
    through. A column that is missing, or a cell that is empty, takes the estimator's default;
    what was taken is not added to the file.

    Stored rows come as CONFIGS out of the view current_ESTIMATOR, whose columns are the inputs
    of that estimator. Columns of the view configuration mean the same for all estimators, and
    not always what one of them reads.

    All rows are checked first. If any is refused, every refusal is told, nothing is written and
    the exit code is 3; with --keep-valid the other rows are evaluated. A file without rows gives
    a result without rows. The file given by --out is replaced if it exists.
    """
    from estimators import registry
    from warehouse.evaluate.file import find_relation
    from warehouse.studies.definitions import Definitions, load_definitions
    from warehouse.studies.variants import mends_of_options

    model = registry.get(estimator)
    mends = mends_of_options(model, variant, mend)
    grain = find_relation(model, relation)
    defined = load_definitions(catalog) if catalog else Definitions()
    if into_db:
        report = _evaluate_into(db, model, configs, out, mends, defined, grain, keep_valid, profile)
    else:
        from warehouse.database.catalog import packaged_catalog
        from warehouse.evaluate.profiles import load_profiles, with_profiles

        known = defined.added_to(packaged_catalog())
        known = with_profiles(known, lambda: load_profiles(db), model, profile)
        report = _evaluate(model, configs, out, mends, known, grain, keep_valid, with_cells=False)
    _tell(report, configs, out)


def _evaluate(
    model: Estimator,
    configs: Path,
    out: Path,
    mends: Mends,
    catalog: Catalog,
    relation: Relation,
    keep_valid: bool,
    with_cells: bool,
) -> BatchReport:
    from warehouse.evaluate.file import evaluate_file

    return evaluate_file(
        model,
        configs,
        out,
        mends,
        catalog,
        relation=relation,
        keep_valid=keep_valid,
        with_cells=with_cells,
        warn=lambda message: say(f"warning: {message}"),
    )


def _evaluate_into(
    db: Path,
    model: Estimator,
    configs: Path,
    out: Path,
    mends: Mends,
    defined: Definitions,
    relation: Relation,
    keep_valid: bool,
    profile: str | None,
) -> BatchReport:
    """Evaluate and store; the database is opened first, so that a lock is told at once."""
    from warehouse.database.catalog import load_catalog
    from warehouse.database.connection import open_for_write
    from warehouse.evaluate.profiles import read_profiles, with_profiles
    from warehouse.sweep.record import store_batch

    with open_for_write(db) as connection:
        catalog = defined.added_to(load_catalog(connection))
        catalog = with_profiles(catalog, lambda: read_profiles(connection), model, profile)
        report = _evaluate(
            model, configs, out, mends, catalog, relation, keep_valid, with_cells=True
        )
        new = store_batch(
            connection, model, relation, report.cells, mends, configs, profile=profile
        )
    rows = sum(len(next(iter(columns.values()))) for _, columns in report.cells)
    distinct, cells = count(rows, "distinct row"), count(len(report.cells), "cell")
    say(f"{db}: {distinct} in {cells}, {new:,} of them new")
    return report


def _tell(report: BatchReport, configs: Path, out: Path) -> None:
    from warehouse.errors import InputError

    if report.refusals:
        left_out = count(report.num_refused, "row")
        say(str(InputError.from_refusals(report.refusals, str(configs))))
        say(f"{left_out} refused and left out")
    rate = report.num_rows / report.seconds if report.seconds else 0
    rows = count(report.num_rows, "row")
    say(f"{out}: {rows} evaluated in {report.seconds:.1f} s ({rate:,.0f} rows/s)")
