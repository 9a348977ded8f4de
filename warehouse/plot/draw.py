"""From a name and filters to a picture: the query, the rows of one picture, the chart."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from warehouse.ask.names import with_known_names
from warehouse.errors import InputError, UsageError
from warehouse.plot.files import plain_title
from warehouse.plot.registry import PLOTS, filtered, plot_named, with_values
from warehouse.plot.theme import LIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl
    from altair.typing import ChartType
    from duckdb import DuckDBPyConnection

    from estimators.contract import Scalar
    from warehouse.plot.registry import Plot
    from warehouse.plot.theme import Theme

PREFERRED = {"assumptions": "", "variant": "corrected", "model": "gpt3_1T"}
"""Column -> the value that is preferred if rows have several; the model is that of README."""

MOST_NAMED = 5
"""Most values that a message lists."""

PARAMETERS = {"dataset_tokens": "tokens"}
"""Column -> the parameter that filters it, where it has another name."""

OPTIONS = (
    *("model", "accelerator", "nvlink_size", "num_gpus", "global_batch_size", "strategy"),
    *("estimator", "variant", "assumptions", "study", "tokens"),
)
"""Filters that are options of the command; others can only be given from Python."""


@dataclass(frozen=True)
class Drawing:
    """A picture with its rows and query.

    Attributes
    ----------
    frame
        The rows behind its marks.
    sql
        The query of these rows, for any shell. A few plots add evaluated values to its rows, such
        as steps with changed constants.
    chosen
        Columns whose value no filter named, with the value that was taken and the others; there
        are none where only problems with assumptions are stored.
    """

    chart: ChartType
    frame: pl.DataFrame
    sql: str
    chosen: Mapping[str, tuple[Scalar, tuple[Scalar, ...]]]

    @property
    def title(self) -> str:
        """The finding that the picture shows."""
        return plain_title(self.chart)


def require_packages() -> None:
    """Raise `InputError` if a package of the extra `plots` is missing."""
    for package in ("altair", "vl_convert"):
        if find_spec(package) is None:
            raise InputError(
                f"plots need the package {package.replace('_', '-')}",
                "install it with `pip install 'training-warehouse[plots]'`",
            )


def draw(
    connection: DuckDBPyConnection,
    name: str,
    filters: Mapping[str, Scalar] | None = None,
    theme: Theme = LIGHT,
) -> Drawing:
    """Return a picture of the stored rows that pass some filters, parameters of its query.

    Raise `InputError` if a package is missing or no row passes the filters, and `UsageError` if
    there is no such plot or its query has no such filter.
    """
    require_packages()
    plot = plot_named(name)
    rows, values, chosen = rows_of(connection, plot, filters or {})
    frame = plot.completed(rows, connection)
    if frame.is_empty():
        raise _nothing(connection, plot, filters or {})
    chart = plot.chart(frame, theme).configure(**theme.config)
    return Drawing(chart, frame, with_values(plot.sql, values), chosen)


def rows_of(
    connection: DuckDBPyConnection, plot: Plot, filters: Mapping[str, Scalar]
) -> tuple[pl.DataFrame, dict[str, Scalar], dict[str, tuple[Scalar, tuple[Scalar, ...]]]]:
    """Return the rows of one picture, the values in its query, and values that no filter named."""
    values = {**plot.defaults, **_known(connection, plot, filters)}
    frame = _answer(connection, plot, values)
    if frame.is_empty():
        raise _nothing(connection, plot, {name: values[name] for name in filters})
    chosen: dict[str, tuple[Scalar, tuple[Scalar, ...]]] = {}
    for column in plot.single:
        counted: Counter[Any] = Counter(frame[column].drop_nulls().to_list())
        stored = sorted(counted, key=lambda value: (-counted[value], value))
        if not stored:
            continue
        taken = PREFERRED[column] if PREFERRED.get(column) in stored else stored[0]
        if len(stored) > 1:
            chosen[column] = (taken, tuple(other for other in stored if other != taken))
        elif column == "assumptions" and taken and column not in filters:
            chosen[column] = (taken, ())
        frame = frame.filter(frame[column] == taken)  # rows without a value are left out, too
        parameter = PARAMETERS.get(column, column)
        if parameter in plot.filters:
            values[parameter] = taken
    return frame, values, chosen


def _known(
    connection: DuckDBPyConnection, plot: Plot, filters: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    for name, value in filters.items():
        if name not in plot.filters:
            options = ", ".join(_option(other) for other in plot.filters if other in OPTIONS)
            others = ", ".join(other.name for other in PLOTS.values() if name in other.filters)
            raise UsageError(
                f"`{_option(name)}` {value}: plot {plot.name} has no such filter",
                (f"it takes {options}" if options else "it takes none")
                + (f"; plots with this filter: {others}" if others else "; no plot has it"),
            )
    names = {n: str(value) for n, value in filters.items() if n in ("model", "accelerator")}
    return {**filters, **with_known_names(connection, names)}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _answer(
    connection: DuckDBPyConnection, plot: Plot, values: Mapping[str, Scalar]
) -> pl.DataFrame:
    rows: pl.DataFrame = connection.sql(filtered(plot.sql, values), params=dict(values)).pl()
    return rows


def _nothing(
    connection: DuckDBPyConnection, plot: Plot, filters: Mapping[str, Scalar]
) -> InputError:
    """Return the error of a plot without rows; its hint lists stored values, or commands to run."""
    question = ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in filters.items()
    )
    said = f"plot {plot.name}: no stored row to show{f' with {question}' if question else ''}"
    filled = " or ".join(f"`{command}`" for command in plot.filled_by)
    narrowing = {name: value for name, value in filters.items() if name not in plot.defaults}
    others = {name: value for name, value in filters.items() if name in plot.defaults}
    if not narrowing or (rows := _answer(connection, plot, {**plot.defaults, **others})).is_empty():
        return InputError(said, f"store some: {filled}")
    lines = []
    for name in sorted(narrowing.keys() & set(rows.columns)):
        stored = sorted(rows[name].drop_nulls().unique().to_list())
        if narrowing[name] not in stored:
            some = ", ".join("none" if value == "" else str(value) for value in stored[:MOST_NAMED])
            lines.append(f"{name} {some}{' ...' if len(stored) > MOST_NAMED else ''}")
    known = f"; stored: {'; '.join(lines)}" if lines else ""
    return InputError(said, f"leave out a filter{known}, or store some: {filled}")
