"""`warehouse rank`: the best layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from warehouse.cli.common import put_for_people, say, title_line
from warehouse.cli.options import DEFAULT_DATABASE, ReadDatabase, Top
from warehouse.cli.output import Output
from warehouse.limits import FIT_PROBABILITY
from warehouse.options import (
    EstimatorName,
    FitProbability,
    HardwareVariants,
    RankFilters,
    StudyName,
    Variant,
    given,
)
from warehouse.show.formats import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warehouse.ask.rank import Ranking


HEADINGS = {"uses_sequence_parallel": "seq", "zero_stage": "ZeRO"}
"""Short headings of columns, as in layouts in words."""


def rank(
    *,
    problem: RankFilters,
    study: StudyName = None,
    estimator: EstimatorName = None,
    variant: Variant = None,
    by: Annotated[
        str,
        typer.Option("--by", metavar="COLUMN", help="A column of configuration, best value first."),
    ] = "step_seconds",
    hardware_variants: HardwareVariants = False,
    top: Top = None,
    fit_probability: FitProbability = FIT_PROBABILITY,
    output: Output,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Show the fastest layouts that are likely to fit in memory.

    Layouts that fit by the estimate, but with less than --fit-probability, come after them.
    Layouts compete within one problem: one model on one system with one number of GPUs and one
    batch. Filters that leave one problem show its 10 fastest layouts; filters that leave several
    show the fastest of each. --top sets how many layouts of each problem are shown. With --strategy
    layouts are ranked within that strategy. An estimator without a model of memory excludes no
    layout. --study keeps the problems of one study; other stored layouts of them compete as well.
    Without --estimator the most detailed estimator with matching rows answers.

    Only layouts that a search found have a rank. Single layouts, from a file of configurations or
    of measurements, have none; they are shown if no search is stored.

    A study may change the rates of a product and keep its name. Such problems are shown only if
    --study or --hardware-variants asks for them, or if no other is stored.

    --by ranks by another column, such as network_bytes_per_flop, utilization or memory_bytes.
    Tables use GB and percent, and omit columns with the same value in all rows. JSON and CSV use
    base units and have every column.
    """
    from estimators.columns import COLUMNS
    from warehouse.ask.rank import ranking
    from warehouse.database.connection import open_for_read

    output.expect((*COLUMNS, "rank"))  # problems may differ in any column
    with open_for_read(db) as connection:
        filters, layouts = ranking(
            connection,
            given(problem),
            estimator=estimator,
            variant=variant,
            top=top,
            by=by,
            study=study,
            fit_probability=fit_probability,
            hardware_variants=hardware_variants,
        )
    say(title_line(str(filters["estimator"])))
    _say_scope(layouts, filters, by)
    drop = set(layouts.constants)
    sizes = [row[layouts.columns.index("microbatch_size")] for row in layouts.rows]
    if None not in sizes:
        drop.add("num_microbatches")  # follows from the size
    with output.opened():
        put_for_people(layouts.columns, layouts.rows, drop, HEADINGS)


def _say_scope(ranking: Ranking, filters: Mapping[str, Any], by: str) -> None:
    """Print which problems are shown, and which have no layout to show."""
    common = {**filters, **ranking.constants}
    from estimators.columns import COLUMNS
    from warehouse.ask.rank import SAID_ONCE, USUAL
    from warehouse.database.stamp import reference_in_words

    unsaid = {name: COLUMNS[name].neutral for name in SAID_ONCE} | USUAL
    words = (
        f"{name} {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in common.items()
        if value is not None and value != unsaid.get(name)
    )
    say(", ".join(words))
    shown = f"{count(ranking.num_problems, 'problem')}, {count(len(ranking.rows), 'layout')} shown"
    say(f"{shown}; {reference_in_words()}")
    apart = (
        ("evaluated alone, without a search", ranking.num_single),
        ("searched in part, with some values held", ranking.num_in_part),
        ("no layout fits in memory", ranking.num_without),
        (f"without {by}", ranking.num_without_figure),
        ("without a step time", ranking.num_without_time),
        ("left out, accelerators with changed rates (--hardware-variants)", ranking.num_changed),
    )
    for reason, number in apart:
        if number:
            say(f"{reason}: {count(number, 'problem')}")
