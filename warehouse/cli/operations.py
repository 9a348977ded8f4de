"""`warehouse operations`: the time of a step, operation by operation."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from estimators import registry
from warehouse.cli.common import put_for_people, say, title_line
from warehouse.cli.options import (
    DEFAULT_DATABASE,
    Best,
    Database,
    IntoDatabase,
    Mending,
    refuse_given,
)
from warehouse.cli.output import Output
from warehouse.options import ConfigurationOptions, EstimatorName, ProblemFilters, whole_option
from warehouse.show.formats import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from estimators.contract import Columns, Mends
    from estimators.estimator import Estimator


DEFAULT_ESTIMATOR = registry.default("operations")


@dataclass(frozen=True)
class SourceOptions:
    """Other sources of the configurations: KEY=VALUE, a file, or --best."""

    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Any column of one configuration."),
    ] = None
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="The same as the argument; may be repeated."
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="The configurations of a .csv or .parquet file."
        ),
    ] = None
    row: Annotated[
        int | None, whole_option("--row", "Only this row of --config, counted from 1.")
    ] = None
    best: Best = False

    @property
    def given(self) -> list[str]:
        """The columns that are given as KEY=VALUE."""
        return [*(self.pairs or ()), *(self.setting or ())]


_FILTERS = (*(field.name for field in fields(ProblemFilters)), "attention")
"""Columns that a line or a table names; the other columns of a layout follow."""

_SHOWN = (
    *("operation", "forward_collectives", "backward_collectives"),
    *("comm_group_size", "nvlink_comm_group", "comm_group_size_2", "nvlink_comm_group_2"),
    *("flops_per_gpu", "hbm_traffic_bytes", "comm_bytes", "weights_bytes", "activations_bytes"),
    *("compute_seconds", "memory_seconds", "comm_seconds", "operation_seconds"),
    *("step_fraction", "binding_resource"),
)
"""Columns of an operation in a table."""


def operations(
    source: SourceOptions,
    problem: ConfigurationOptions,
    mending: Mending,
    output: Output,
    estimator: EstimatorName = DEFAULT_ESTIMATOR,
    into_db: IntoDatabase = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Show where the time of a step goes, operation by operation.

    Options and KEY=VALUE describe one configuration; the layout and the defaults are those of
    `why`. --config takes several from a file, with the defaults of `evaluate`. --best takes the
    best layout of every stored problem that passes, as in `rank`. Operations are in the order of a
    layer, then the collectives of replicas and the transfers between stages. The bubble takes the
    rest of the step.

    Figures of a table are for one GPU and one step. JSON and CSV also have the figures for one
    layer and one microbatch, forward and backward: the columns of view operation_breakdown. Nothing
    is stored without --into-db.
    """
    from estimators.columns import COLUMNS
    from warehouse.ask.configuration import read_configuration
    from warehouse.ask.operations import (
        break_down,
        breakdown,
        configurations_of,
        given_configuration,
        operations_of,
        store_breakdown,
    )
    from warehouse.database.catalog import packaged_catalog
    from warehouse.database.connection import writing
    from warehouse.database.meanings import OTHER_COLUMNS
    from warehouse.plan.question_words import batch_in_words
    from warehouse.studies.definitions import every_definition

    output.expect((*COLUMNS, *OTHER_COLUMNS))
    chosen = registry.get(estimator or DEFAULT_ESTIMATOR)
    operations_of(chosen)
    mends = mending.mends(chosen)
    pairs = [*problem.pairs(), *source.given]
    _refuse_mixtures(pairs, source, problem.launch)
    defined = every_definition(db, problem.catalog, [problem.model])
    known = defined.added_to(packaged_catalog())
    rule = ""
    if source.best:
        configurations = _best(db, chosen, pairs, mends)
    elif source.config:
        configurations = configurations_of(chosen, source.config, source.row, known, mends)
    else:
        query, _, known = read_configuration(db, chosen, source.given, problem, mends)
        configurations = given_configuration(chosen, query.given, known, mends)
        rule = query.rule
        for line in () if query.launch is None else query.launch.every_line():
            say(line)
    cells = break_down(chosen, configurations, mends, known)
    columns, rows = breakdown(chosen, cells)
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    layout = [*chosen.choice_columns, *chosen.relations[0].keys]
    told = [name for name in dict.fromkeys((*_FILTERS, *layout)) if name in columns]
    differing = _differing(records, told)
    if output.is_for_people:
        columns = (*differing, *(name for name in _SHOWN if _is_used(name, records)))
        rows = [[record[name] for name in columns] for record in records]
    output.expect(columns)
    if into_db:
        with writing(db) as connection:
            study, new = store_breakdown(connection, chosen, cells, mends, defined)
        say(f'{db}: {count(len(cells), "cell")} in study "{study}", {new:,} of them new')
    say(title_line(chosen.name))
    for line in _summary(records, told, differing):
        say(line)
    if rule:
        say(batch_in_words(records[0]["global_batch_size"], records[0]) + rule)
    with output.opened():
        put_for_people(columns, rows)


def _refuse_mixtures(pairs: Sequence[str], source: SourceOptions, launch: Path | None) -> None:
    """Refuse options that contradict one another."""
    from warehouse.errors import UsageError

    config, best = source.config, source.best
    names = [pair.partition("=")[0].removeprefix("--").replace("-", "_") for pair in pairs]
    named = [f"--{n.replace('_', '-')}" for n in names if config or n not in _FILTERS]
    named += ["--from"] if launch is not None else []
    if config and best:
        raise UsageError("`--config` and `--best` exclude each other", "use one of them")
    if (config or best) and named:
        other = "--config" if config else "--best"
        hint = "write it into the file" if config else "--best takes options of the problem only"
        raise UsageError(f"`{named[0]}` and `{other}` exclude each other", hint)
    if not config:
        refuse_given({"--row": source.row}, "needs `--config`", "name the file that has the row")
    if not (named or pairs or config or best):
        hint = "name --model, --accelerator and --num-gpus, a file with --config, or --best"
        raise UsageError("no configuration is named", hint)


def _best(db: Path, estimator: Estimator, pairs: Sequence[str], mends: Mends) -> Columns:
    from estimators.contract import variant_name
    from warehouse.ask.operations import best_configurations
    from warehouse.database.connection import open_for_read
    from warehouse.evaluate.one import read_pairs, read_values

    relation = estimator.relations[0]
    values = read_values(relation, read_pairs(estimator, relation, pairs))
    given = {name: value for name, value in values.items() if isinstance(value, (int, str))}
    filters = {**given, "variant": variant_name(mends, estimator.mends)}
    with open_for_read(db) as connection:
        configurations, num_without = best_configurations(connection, estimator, filters)
    if num_without:
        say(f"no layout fits in memory: {count(num_without, 'problem')}")
    return configurations


def _differing(rows: list[dict[str, Any]], told: Sequence[str]) -> list[str]:
    """Return the columns of problem and layout that differ between the configurations."""
    names = [name for name in told if len({row[name] for row in rows}) > 1]
    kinds = {tuple(row[name] for name in names) for row in rows}
    # the points of a hardware sweep differ in columns that the view lacks
    is_told_apart = len(kinds) == len({row["cell_id"] for row in rows})
    return names if is_told_apart else ["problem_id", *names]


def _is_used(name: str, rows: list[dict[str, Any]]) -> bool:
    """Return whether a column describes a group of more than one GPU in any row."""
    if not name.startswith(("comm_group", "nvlink_comm_group")):
        return True
    ending = "_2" if name.endswith("_2") else ""
    return any(row[f"comm_group_size{ending}"] > 1 for row in rows)


def _summary(
    rows: list[dict[str, Any]], told: Sequence[str], differing: list[str]
) -> Iterator[str]:
    """Yield what all configurations share, then the step and the longest operation of each."""
    from estimators.columns import COLUMNS

    first = rows[0]
    common = [
        name
        for name in ("variant", *told)
        if name not in differing
        and first[name] is not None
        and (COLUMNS[name].kind == "str" or first[name] != COLUMNS[name].neutral)
    ]
    yield ", ".join(f"{name} {first[name]}" for name in common)
    for row in rows:
        if row["operation_rank"] == 1:
            which = "".join(f"{name} {row[name]}, " for name in differing)
            yield (
                f"{which}step {row['step_seconds']:.4g} s, "
                f"bubble {100 * row['bubble_fraction']:z.1f} %; "
                f"most of it: {row['operation']} {100 * row['step_fraction']:.1f} %, "
                f"waits for {row['binding_resource']}"
            )
