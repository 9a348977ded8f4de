"""From a name and filters to a chart: the query, the rows of one picture, the chart."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from warehouse.ask.names import with_known_names
from warehouse.errors import InputError, UsageError
from warehouse.plot.files import plain_title
from warehouse.plot.query import filtered, with_values
from warehouse.plot.registry import PLOTS, plot_named
from warehouse.plot.theme import LIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl
    from altair.typing import ChartType
    from duckdb import DuckDBPyConnection

    from estimators.contract import Scalar
    from warehouse.plot.registry import Plot
    from warehouse.plot.theme import Theme

PREFERRED = {"assumptions": "", "variant": "corrected"}
"""Column -> the value that is preferred if rows have several."""

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
    chart
        The chart, in the colours of its theme.
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
    """Check that the packages of the extra `plots` are installed.

    Raises
    ------
    InputError
        If one is missing.
    """
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
    """Return a picture of the stored rows that pass some filters.

    Parameters
    ----------
    connection
        An open database.
    name
        A plot of `warehouse.plot.registry`.
    filters
        Parameter of its query -> value.

    Raises
    ------
    InputError
        If the packages are missing, or no row passes the filters.
    UsageError
        If there is no such plot, or its query has no such filter.
    """
    require_packages()
    plot = plot_named(name)
    # the temporary views of one plot must not affect the queries of the next
    with connection.cursor() as own:
        rows, values, chosen = rows_of(own, plot, filters or {})
        frame = plot.completed(rows, own)
    chart = plot.chart(frame, theme).configure(**theme.config)
    return Drawing(chart, frame, with_values(plot.sql, values), chosen)


def rows_of(
    connection: DuckDBPyConnection, plot: Plot, filters: Mapping[str, Scalar]
) -> tuple[pl.DataFrame, dict[str, Scalar], dict[str, tuple[Scalar, tuple[Scalar, ...]]]]:
    """Return the rows of one picture, the values in its query, and values that no filter named.

    Raises
    ------
    InputError
        If no row passes the filters.
    UsageError
        If the query has no such filter.
    """
    values = {**plot.defaults, **_known(connection, plot, filters)}
    frame = _answer(connection, plot, values)
    if frame.is_empty():
        raise _nothing(connection, plot, {name: values[name] for name in filters})
    chosen: dict[str, tuple[Scalar, tuple[Scalar, ...]]] = {}
    for column in plot.single:
        counted: Counter[Any] = Counter(
            value for value in frame[column].to_list() if value is not None
        )
        found = sorted(counted, key=lambda value: (-counted[value], value))
        if not found:
            continue
        taken = PREFERRED[column] if PREFERRED.get(column) in found else found[0]
        if len(found) > 1:
            chosen[column] = (taken, tuple(other for other in found if other != taken))
            frame = frame.filter(frame[column] == taken)
        elif column == "assumptions" and taken and column not in filters:
            chosen[column] = (taken, ())
        parameter = PARAMETERS.get(column, column)
        if parameter in plot.filters:
            values[parameter] = taken
    return frame, values, chosen


def _known(
    connection: DuckDBPyConnection, plot: Plot, filters: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """Return the filters with each name as it is stored."""
    for name, value in filters.items():
        if name not in plot.filters:
            taken = (each for each in plot.filters if each in OPTIONS)
            options = ", ".join(f"--{each.replace('_', '-')}" for each in taken)
            others = ", ".join(each.name for each in PLOTS.values() if name in each.filters)
            raise UsageError(
                f"`--{name.replace('_', '-')}` {value}: plot {plot.name} has no such filter",
                (f"it takes {options}" if options else "it takes none")
                + (f"; plots with this filter: {others}" if others else "; no plot has it"),
            )
    named = {name: value for name, value in filters.items() if name in ("model", "accelerator")}
    found = with_known_names(connection, {name: str(value) for name, value in named.items()})
    return {**filters, **found}


def _answer(
    connection: DuckDBPyConnection, plot: Plot, values: Mapping[str, Scalar]
) -> pl.DataFrame:
    """Return the rows of a plot's query with some values of its parameters."""
    found: pl.DataFrame = connection.sql(filtered(plot.sql, values), params=dict(values)).pl()
    return found


def _nothing(
    connection: DuckDBPyConnection, plot: Plot, filters: Mapping[str, Scalar]
) -> InputError:
    """Return the error of a plot without rows; its hint lists stored values, or commands to run."""
    asked = ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in filters.items()
    )
    with_these = f" with {asked}" if asked else ""
    said = f"plot {plot.name}: no stored row to show{with_these}"
    filled = " or ".join(f"`{command}`" for command in plot.filled_by)
    narrowing = {name for name in filters if name not in plot.defaults}
    if not narrowing:
        return InputError(said, f"store some: {filled}")
    kept = {name: value for name, value in filters.items() if name not in narrowing}
    with connection.cursor() as whole:  # `connection` may be narrowed to an estimator
        stored = _answer(whole, plot, {**plot.defaults, **kept})
    if stored.is_empty():
        return InputError(said, f"store some: {filled}")
    lines = []
    for name in sorted(narrowing.intersection(stored.columns)):
        values = sorted(stored[name].drop_nulls().unique().to_list())
        if filters[name] not in values:
            lines.append(f"{name} {_some(['none' if each == '' else each for each in values])}")
    known = f"; stored: {'; '.join(lines)}" if lines else ""
    return InputError(said, f"leave out a filter{known}, or store some: {filled}")


def _some(values: Sequence[object]) -> str:
    """Return the first of some values as text."""
    shown = ", ".join(map(str, values[:MOST_NAMED]))
    return f"{shown} ..." if len(values) > MOST_NAMED else shown
