"""`warehouse rank`: the best layouts."""

from __future__ import annotations

from typing import Annotated

import typer

from warehouse.cli.common import (
    DEFAULT_DATABASE,
    Database,
    FormatOption,
    count,
    put_for_people,
    say,
    title_line,
)
from warehouse.show.formats import Format


def rank(
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Only this model.")] = None,
    accelerator: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this accelerator, by any of its names.")
    ] = None,
    nvlink_size: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Only this many GPUs in an NVLink domain."),
    ] = None,
    num_gpus: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only this many GPUs.")
    ] = None,
    global_batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only this many sequences a step.")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this strategy, and ranks within it.")
    ] = None,
    num_clusters: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only this many clusters.")
    ] = None,
    estimator: Annotated[str, typer.Option(metavar="NAME", help="Whose estimates.")] = "roofline",
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="published, corrected, or a list of mends such as R2,R4.",
            show_default="corrected; published of an estimator without mends",
        ),
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="COLUMN", help="A column of configuration, best value first.")
    ] = "step_seconds",
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Layouts of each problem.",
            show_default="10 of one problem, the best one of several",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Show the fastest layouts that fit in memory.

    Layouts compete within one problem only: one model on one system with one number of GPUs
    and one batch. With --by another column decides: network_bytes_per_flop, utilization,
    memory_bytes. An estimator without a model of memory excludes none. Filters that leave
    several problems give the best of each. Tables are in units of people (GB, percent) and
    leave out what is the same in all rows; JSON and CSV have base units and every column.
    """
    from warehouse.ask.rank import rank_layouts
    from warehouse.database.connection import open_for_read

    asked: dict[str, str | int | None] = {
        "estimator": estimator,
        "variant": variant or _default_variant(estimator),
        "model": model,
        "accelerator": accelerator,
        "nvlink_size": nvlink_size,
        "num_gpus": num_gpus,
        "num_clusters": num_clusters,
        "global_batch_size": global_batch_size,
        "strategy": strategy,
    }
    filters = {name: value for name, value in asked.items() if value is not None}
    with open_for_read(db) as connection:
        ranking = rank_layouts(connection, filters, top, by)
    common = {**filters, **ranking.constants}
    say(title_line(estimator))
    say(", ".join(f"{name} {value}" for name, value in common.items() if value is not None))
    say(f"{count(ranking.num_problems, 'problem')}, {count(len(ranking.rows), 'layout')} shown")
    if ranking.num_without:
        say(f"no layout fits in memory: {count(ranking.num_without, 'problem')}")
    if ranking.num_without_figure:
        say(f"no {by} is given: {count(ranking.num_without_figure, 'problem')}")
    if ranking.num_without_time:
        say(f"no time of a step is given: {count(ranking.num_without_time, 'problem')}")
    drop = set(ranking.constants)
    sizes = [row[ranking.columns.index("microbatch_size")] for row in ranking.rows]
    if None not in sizes:
        drop.add("num_microbatches")  # follows from the size
    put_for_people(ranking.columns, ranking.rows, form, drop=drop)


def _default_variant(estimator: str) -> str:
    from estimators import registry

    return "corrected" if registry.get(estimator).mends else "published"
