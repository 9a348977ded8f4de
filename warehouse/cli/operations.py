"""`warehouse operations`: where the time of a step goes, operation by operation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warehouse.cli.common import (
    DEFAULT_DATABASE,
    Database,
    FormatOption,
    count,
    put_for_people,
    say,
)
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from estimators.contract import Catalog, Columns, Mends
    from warehouse.show.formats import Row

_FILTERS = (
    *("model", "accelerator", "nvlink_size", "num_gpus", "global_batch_size", "strategy"),
    "attention",
)
"""Options that choose problems of --best as well as the one of a single configuration."""

_LAYOUT = (
    *("activation_recompute", "data_parallel", "tensor_parallel", "tensor_parallel_2"),
    *("context_parallel", "pipeline_parallel", "virtual_pipeline", "microbatch_size"),
    *("summa_panels", "nvlink_tensor_parallel", "nvlink_tensor_parallel_2"),
    *("nvlink_context_parallel", "nvlink_data_parallel", "nvlink_pipeline_parallel"),
)

_SHOWN = (
    *("operation", "forward_collectives", "backward_collectives"),
    *("comm_group_size", "nvlink_comm_group", "comm_group_size_2", "nvlink_comm_group_2"),
    *("flops_per_gpu", "hbm_traffic_bytes", "comm_bytes", "weights_bytes", "activations_bytes"),
    *("compute_seconds", "memory_seconds", "comm_seconds", "operation_seconds"),
    *("step_fraction", "binding_resource"),
)
"""What a table shows of an operation."""

_UNUSED = {
    **dict.fromkeys(("tensor_parallel_2", "context_parallel", "virtual_pipeline"), 1),
    **dict.fromkeys(("nvlink_tensor_parallel_2", "nvlink_context_parallel"), 1),
    "summa_panels": 0,
}
"""Values that stand for unused: not worth telling."""


def _number(text: str) -> Any:
    return typer.Option(min=1, metavar="N", help=text)


def _name(text: str) -> Any:
    return typer.Option(metavar="NAME", help=text)


def operations(
    model: Annotated[str | None, _name("The model.")] = None,
    accelerator: Annotated[str | None, _name("The accelerator, by any of its names.")] = None,
    nvlink_size: Annotated[int | None, _number("GPUs in an NVLink domain.")] = None,
    num_gpus: Annotated[int | None, _number("GPUs of the run.")] = None,
    global_batch_size: Annotated[int | None, _number("Sequences of a step.")] = None,
    strategy: Annotated[str | None, _name("tensor_1d, summa_2d or context_2d.")] = None,
    attention: Annotated[str | None, _name("flash, unfused ...")] = None,
    activation_recompute: Annotated[str | None, _name("none or full.")] = None,
    data_parallel: Annotated[int | None, _number("Replicas.")] = None,
    tensor_parallel: Annotated[int | None, _number("Tensor-parallel degree.")] = None,
    tensor_parallel_2: Annotated[int | None, _number("Second SUMMA axis.")] = None,
    context_parallel: Annotated[int | None, _number("Context-parallel degree.")] = None,
    pipeline_parallel: Annotated[int | None, _number("Pipeline stages.")] = None,
    virtual_pipeline: Annotated[int | None, _number("Interleaved chunks of a stage.")] = None,
    microbatch_size: Annotated[int | None, _number("Sequences of a microbatch.")] = None,
    summa_panels: Annotated[int | None, _number("Panels of a SUMMA product.")] = None,
    nvlink_tensor_parallel: Annotated[
        int | None, _number("Of the tensor group, GPUs in one domain.")
    ] = None,
    nvlink_tensor_parallel_2: Annotated[int | None, _number("Of the second axis.")] = None,
    nvlink_context_parallel: Annotated[int | None, _number("Of the context group.")] = None,
    nvlink_data_parallel: Annotated[int | None, _number("Of the replicas.")] = None,
    nvlink_pipeline_parallel: Annotated[int | None, _number("Of the stages.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other column; may be repeated."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The configurations of a .csv or .parquet file."),
    ] = None,
    row: Annotated[int | None, _number("Of --config, only this row, counted from 1.")] = None,
    best: Annotated[
        bool, typer.Option("--best", help="The fastest stored layout of each problem.")
    ] = False,
    variant: Annotated[
        str | None, _name("published, corrected (default), or mends such as R2,R4.")
    ] = None,
    mend: Annotated[
        str | None, typer.Option(metavar="R1,R2", help="Mend these errata only.")
    ] = None,
    into_db: Annotated[
        bool, typer.Option("--into-db", help="Store the rows in the database as well.")
    ] = False,
    form: FormatOption = Format.TABLE,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Show where the time of a step goes, operation by operation.

    One configuration comes from options, with defaults as in `evaluate`; several come from
    --config, or from --best: the fastest layout that fits of every stored problem that the
    first options leave, as in `rank`. Operations come in the order of a layer, then the exchange
    between replicas and the transfers between stages; the bubble takes the rest of the step.

    Figures of a table are of one GPU and one step. JSON and CSV have those of one layer and one
    microbatch too, in both directions: the columns of the view operation_breakdown. Nothing is
    stored without --into-db.
    """
    given = {name: value for name, value in locals().items() if name in (*_FILTERS, *_LAYOUT)}
    given = {name: value for name, value in given.items() if value is not None}
    _refuse_mixtures(given, setting, config, row, best)
    given |= _settings(setting or [])
    from estimators.registry import get
    from warehouse.studies.variants import mends_of_options

    mends = mends_of_options(get("roofline"), variant, mend)
    if best:
        configurations = _best(db, given, mends)
    elif not into_db:
        from warehouse.database.catalog import packaged_catalog

        configurations = _asked(given, config, row, packaged_catalog(), mends)
    else:
        from warehouse.database.catalog import load_catalog
        from warehouse.database.connection import open_for_write

        with open_for_write(db) as connection:
            configurations = _asked(given, config, row, load_catalog(connection), mends)
    _show(configurations, mends, form, db if into_db else None)


def _refuse_mixtures(
    given: dict[str, Any],
    setting: list[str] | None,
    config: Path | None,
    row: int | None,
    best: bool,
) -> None:
    """Refuse options that contradict one another."""
    from warehouse.errors import UsageError

    named = [_option(name) for name in given if config or name not in _FILTERS]
    named += ["--set"] if setting else []
    if config and best:
        raise UsageError("`--config` cannot stand beside `--best`", "use one of them")
    if (config or best) and named:
        other = "--config" if config else "--best"
        hint = "write it into the file" if config else "only options that choose a problem can"
        raise UsageError(f"`{named[0]}` cannot stand beside `{other}`", hint)
    if row and not config:
        raise UsageError("`--row` needs `--config`", "name the file that has the row")
    if not (given or setting or config or best):
        hint = "name --model, --accelerator and --num-gpus, a file with --config, or --best"
        raise UsageError("no configuration is named", hint)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _settings(settings: list[str]) -> dict[str, str]:
    from warehouse.errors import UsageError

    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name and equals and value.strip()):
            raise UsageError(f"`--set` {setting} is not KEY=VALUE", "as --set seq_len=4096")
        found[name.strip()] = value
    return found


def _best(db: Path, filters: dict[str, Any], mends: Mends) -> Columns:
    from estimators.contract import variant_name
    from estimators.registry import get
    from warehouse.ask.operations import best_configurations
    from warehouse.database.connection import open_for_read

    filters = {**filters, "variant": variant_name(mends, get("roofline").mends)}
    with open_for_read(db) as connection:
        configurations, num_without = best_configurations(connection, filters)
    if num_without:
        say(f"no layout fits in memory: {count(num_without, 'problem')}")
    return configurations


def _asked(
    given: dict[str, Any], config: Path | None, row: int | None, catalog: Catalog, mends: Mends
) -> Columns:
    from warehouse.ask.operations import configurations_of, given_configuration

    if config:
        return configurations_of(config, row, catalog, mends)
    return given_configuration(given, catalog, mends)


def _show(configurations: Columns, mends: Mends, form: Format, db: Path | None) -> None:
    """Print the operations of each configuration, after they were stored where asked for."""
    from warehouse.ask.operations import break_down, breakdown, store_breakdown
    from warehouse.database.connection import open_for_write

    cells = break_down(configurations, mends)
    if db:
        with open_for_write(db) as connection:
            study, new = store_breakdown(connection, cells, mends)
        say(f'{db}: {count(len(cells), "cell")} in study "{study}", {new:,} of them new')
    columns, rows = breakdown(cells)
    named = [dict(zip(columns, values, strict=True)) for values in rows]
    told = _told_apart(named)
    _say_what_is_common(named, told)
    if form in (Format.JSON, Format.CSV):
        put_for_people(columns, rows, form)
        return
    shown = [name for name in _SHOWN if _says_something(name, named)]
    table: Sequence[Row] = [[record[name] for name in (*told, *shown)] for record in named]
    put_for_people((*told, *shown), table, form)


def _told_apart(rows: list[dict[str, Any]]) -> list[str]:
    """Return the columns of problem and layout that differ between the configurations."""
    names = (*_FILTERS, *_LAYOUT)
    told = [name for name in names if len({record[name] for record in rows}) > 1]
    kinds = {tuple(record[name] for name in told) for record in rows}
    # Points of a hardware sweep differ in what the view does not show.
    return (
        told if len(kinds) == len({record["cell_id"] for record in rows}) else ["problem_id", *told]
    )


def _says_something(name: str, rows: list[dict[str, Any]]) -> bool:
    if not name.startswith(("comm_group", "nvlink_comm_group")):
        return True
    ending = "_2" if name.endswith("_2") else ""
    return any(record[f"comm_group_size{ending}"] > 1 for record in rows)


def _say_what_is_common(rows: list[dict[str, Any]], told: list[str]) -> None:
    first = rows[0]
    common = [name for name in ("variant", *_FILTERS, *_LAYOUT) if name not in told]
    say(", ".join(f"{n} {first[n]}" for n in common if first[n] not in (None, _UNUSED.get(n))))
    for record in rows:
        if record["operation_rank"] == 1:
            own = "".join(f"{name} {record[name]}, " for name in told)
            say(
                f"{own}step {record['step_seconds']:.4g} s, bubble "
                f"{record['bubble_fraction']:.1%}; most of it: {record['operation']} "
                f"{record['step_fraction']:.1%}, waits for {record['binding_resource']}"
            )
