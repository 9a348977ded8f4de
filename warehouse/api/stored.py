"""Questions that stored rows answer: in SQL, and those of `rank`, `cost` and `energy`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

import duckdb
import polars as pl

from warehouse.api.arguments import (
    checked_query,
    count,
    plain,
    question_of,
    refuse_control_characters,
    refuse_unknown,
    short_names,
    value_of,
)
from warehouse.api.database_file import DatabaseFile, warn
from warehouse.api.given_frame import given_frame, is_table
from warehouse.api.results import frame_of_rows
from warehouse.ask.cost import costs, energies
from warehouse.ask.rank import ranking
from warehouse.database.connection import open_for_write
from warehouse.database.describe import Description, usual_name
from warehouse.database.paths import file_of
from warehouse.database.recast import frame_of
from warehouse.database.sandbox import explained, sandboxed
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError, UsageError
from warehouse.limits import FIT_PROBABILITY
from warehouse.options import Carbon, CostOptions, FitProbability, Prices, RankFilters, given

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from warehouse.ask.cost import RunTable


class StoredRows(DatabaseFile):
    """The rows of a database file."""

    def sql(self, query: str, /, **parameters: Any) -> pl.DataFrame:
        """Return the rows of one SELECT, as ``warehouse sql``.

        The query reads the tables and views, and no file or network address. FROM, WITH, VALUES,
        DESCRIBE, SUMMARIZE and SHOW TABLES count as SELECT; `execute` runs any other statement.

        The `parameters` are values of ``$name`` in the query; a frame of polars or pandas, or a
        table of pyarrow, is a table of that name. One that the query does not use is refused.

        Rows have the order of the query and the types of the database. Types that polars does not
        have, such as intervals, are texts.

        Examples
        --------
        >>> warehouse.sql("select num_layers from model where model = $name", name="gpt3").item()
        96
        >>> import polars as pl
        >>> mine = pl.DataFrame({"model": ["gpt3", "gpt3_1T"]})
        >>> query = "from mine join model using (model) select model order by all"
        >>> warehouse.sql(query, mine=mine)["model"].to_list()
        ['gpt3', 'gpt3_1T']
        """
        with self._reading() as connection, explained(self.path):
            return frame_of(_relation(connection, query, parameters))

    def relation(self, query: str, /, **parameters: Any) -> DuckDBPyRelation:
        """Return a query as a DuckDB relation, which further queries can use.

        It takes `query` and `parameters` as `sql` does. A relation is evaluated when its rows are
        read. It ends with the ``with`` block, and when a method writes. Relations of one thread can
        be joined. They write no files either: read the rows as a frame with ``pl()``, which can.
        Outside a ``with`` block it raises UsageError.

        Examples
        --------
        >>> with warehouse:
        ...     layouts = warehouse.relation("from configuration where num_gpus = $n", n=4096)
        ...     layouts.filter("fits_memory").aggregate("count(*) > 0").fetchall()
        [(True,)]
        """
        if not self._num_blocks:
            raise UsageError(
                "a relation needs the file to stay open",
                f"ask for it inside `with Warehouse({str(self.path)!r}) as warehouse:`",
            )
        with self._asking(), explained(self.path):
            return _relation(self._of_thread(), query, parameters)

    def view(self, name: str, limit: int | None = None) -> pl.DataFrame:
        """Return the rows of a view or table, at most `limit`.

        The `name` is as ``warehouse schema`` takes it. View configuration has a row for each stored
        layout.

        Examples
        --------
        >>> warehouse.view("configuration_rank", limit=3).height
        3
        """
        refuse_control_characters(locals())
        with self._reading() as connection, explained(self.path):
            query = (
                "select table_name from information_schema.tables where lower(table_name) = ? "
                "and table_schema = 'main' and table_catalog = current_database()"
            )
            stored = connection.execute(query, [usual_name(checked_query(name))]).fetchone()
            if stored is None:
                Description(connection).find(name)  # refuses an unknown name, with similar ones
                raise InputError(f"`{name}` is no table or view", "`warehouse schema` lists them")
            rows = "" if limit is None else f" limit {count('limit', limit, least=0)}"
            return frame_of(_relation(connection, f"from {quoted(stored[0])}{rows}", {}))

    @short_names
    def rank(
        self,
        *,
        model: str | None = None,
        accelerator: str | None = None,
        num_gpus: int | None = None,
        nvlink_size: int | None = None,
        num_clusters: int | None = None,
        global_batch_size: int | None = None,
        strategy: str | None = None,
        study: str | None = None,
        estimator: str | None = None,
        variant: str | None = None,
        by: str = "step_seconds",
        hardware_variants: bool = False,
        top: int | None = None,
        fit_probability: float = FIT_PROBABILITY,
        **unknown: Never,
    ) -> pl.DataFrame:
        """Return the best stored layouts of each problem, as ``warehouse rank``.

        Layouts compete within one problem: one model on one system with one number of GPUs and one
        batch. A problem without a layout that fits in memory has no row. Keywords that are
        `unknown` are refused, with the arguments that they may mean.

        Parameters
        ----------
        model, accelerator, num_gpus, nvlink_size, num_clusters, global_batch_size, strategy
            Values that a problem must have. With a strategy layouts are ranked within it.
        study, estimator, variant, by, hardware_variants, fit_probability
            The options of the command.
        top
            Layouts of each problem; None: ten of one problem, the best one of several.

        Returns
        -------
        polars.DataFrame
            A row for each layout, best first within a problem. Columns: estimator, variant, those
            that name the problem, the rank, the layout and its results.

        Examples
        --------
        >>> best = warehouse.rank(model="gpt3_1T", accelerator="B200", num_gpus=1024, nvlink_size=8)
        >>> best["rank_by_time"].to_list()
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
        >>> best["step_seconds"].is_sorted()
        True
        """
        problem = question_of(RankFilters, locals())
        refuse_unknown(self.rank, unknown)
        top = count("top", top)
        with self._reading() as connection:
            filters, ranked = ranking(
                *(connection, given(problem)),
                estimator=estimator,
                variant=variant,
                top=top,
                by=by,
                study=study,
                fit_probability=value_of(FitProbability, "fit_probability", fit_probability),
                hardware_variants=hardware_variants,
            )
        frame = frame_of_rows(ranked.columns, ranked.rows)
        named = [pl.lit(filters[name]).alias(name) for name in ("estimator", "variant")]
        return frame.select(*named, pl.all())

    @short_names
    def cost(
        self,
        *,
        model: str | None = None,
        accelerator: str | None = None,
        num_gpus: int | None = None,
        seq_len: int | None = None,
        tokens: float | str | None = None,
        estimator: str | None = None,
        variant: str | None = None,
        identity: int | None = None,
        study: str | None = None,
        price: float | Sequence[float] | None = None,
        year: int | None = None,
        all_years: bool = False,
        goodput: float | str | None = None,
        pue: float | str | None = None,
        electricity_price: float | None = None,
        watts: float | None = None,
        fit_probability: float = FIT_PROBABILITY,
        **unknown: Never,
    ) -> pl.DataFrame:
        """Return what stored runs cost, rented and owned, as ``warehouse cost``.

        A warning says which runs are left out, and why. Keywords that are `unknown` are refused.

        Parameters
        ----------
        model, accelerator, num_gpus, seq_len, estimator, variant, identity, study
            Values that a run must have; `identity` is the option ``--id``.
        tokens
            Tokens of every run, such as 15e12 or "15T"; None: those of each run.
        price, year, all_years, goodput, pue, electricity_price, watts, fit_probability
            The options of the command: a list of prices gives rows for each.

        Returns
        -------
        polars.DataFrame
            A row for each model, system and price: hours in GPU-hours, costs in USD.

        Examples
        --------
        >>> costs = warehouse.cost(model="megatron_1.7B", tokens="300G", price=2.0)
        >>> costs["lowest_cost_usd"].min() == 2 * costs["lowest_gpu_hours"].min()
        True
        """
        options = question_of(CostOptions, locals())
        refuse_unknown(self.cost, unknown)
        prices = value_of(Prices, "price", price) or ()
        with self._reading() as connection:
            runs = costs(connection, options, prices, plain(year), all_years=all_years)
        return _run_frame(runs)

    @short_names
    def energy(
        self,
        *,
        model: str | None = None,
        accelerator: str | None = None,
        num_gpus: int | None = None,
        seq_len: int | None = None,
        tokens: float | str | None = None,
        estimator: str | None = None,
        variant: str | None = None,
        identity: int | None = None,
        study: str | None = None,
        carbon: float | str | Sequence[float | str] | None = None,
        all_powers: bool = False,
        goodput: float | str | None = None,
        pue: float | str | None = None,
        electricity_price: float | None = None,
        watts: float | None = None,
        fit_probability: float = FIT_PROBABILITY,
        **unknown: Never,
    ) -> pl.DataFrame:
        """Return the energy of stored runs and its CO2e, as ``warehouse energy``.

        A warning says which runs are left out, and why. Keywords that are `unknown` are refused.

        Parameters
        ----------
        model, accelerator, num_gpus, seq_len, tokens, estimator, variant, identity, study, goodput,
        pue, electricity_price, watts, fit_probability
            As in `cost`.
        carbon, all_powers
            The options of the command: a list of grids gives rows for each.

        Returns
        -------
        polars.DataFrame
            A row for each model, system, power and grid: kWh, kg CO2e and W.

        Examples
        --------
        >>> energies = warehouse.energy(model="megatron_1.7B", tokens="300G", carbon=0.1)
        >>> energies["kg_co2e_per_kwh"].unique().to_list()
        [0.1]
        """
        options = question_of(CostOptions, locals())
        refuse_unknown(self.energy, unknown)
        grids = value_of(Carbon, "carbon", carbon) or ()
        with self._reading() as connection:
            runs = energies(connection, options, grids, all_powers=all_powers)
        return _run_frame(runs)

    def execute(self, statements: str, /, **parameters: Any) -> pl.DataFrame:
        """Run any statements of DuckDB, with the rights of this program.

        No sandbox surrounds them: they can change the database, read and write files. The tables of
        the package follow from one another. Change none of them: make tables and views of your own.

        Several `statements` are one transaction: if one fails, the database stays as it was. Those
        that begin or end transactions themselves are run as they are; a transaction that they leave
        open is rolled back and refused. The `parameters` are as in `sql`. The frame has the rows of
        the last statement.

        Examples
        --------
        >>> own = Warehouse(copy, writable=True)
        >>> own.execute(
        ...     "create table budget (model varchar, usd double);"
        ...     "insert into budget values ($model, 5e6);"
        ...     "from budget",
        ...     model="gpt3",
        ... ).rows()
        [('gpt3', 5000000.0)]
        >>> own.sql("select usd from budget join model using (model)").item()
        5000000.0
        """
        checked_query(statements)  # before the file is opened
        with (
            self._writing("execute"),
            open_for_write(self.path) as connection,
            explained(self.path),
        ):
            try:
                return _executed(connection, statements, parameters)
            except duckdb.IOException as error:
                if str(file_of(self.path)) in str(error):
                    raise
                raise InputError(str(error), "only what a statement committed is stored") from None


def _relation(
    connection: DuckDBPyConnection, query: str, parameters: Mapping[str, Any]
) -> DuckDBPyRelation:
    """Return the relation of one SELECT, in the sandbox of ``warehouse sql``."""
    statement = sandboxed(connection, checked_query(query))
    values = _registered(connection, statement, parameters)
    return connection.sql(statement, params=values or None)


def _executed(
    connection: DuckDBPyConnection, text: str, parameters: Mapping[str, Any]
) -> pl.DataFrame:
    statements = connection.extract_statements(text)
    kinds = {statement.type for statement in statements}
    is_one_transaction = len(statements) > 1 and duckdb.StatementType.TRANSACTION not in kinds
    values = _registered(connection, text, parameters)
    rows = pl.DataFrame()
    if is_one_transaction:
        connection.begin()
    for statement in statements:
        named = {name.lower() for name in statement.named_parameters}
        given_values = {name: value for name, value in values.items() if name.lower() in named}
        relation = connection.sql(statement.query, params=given_values or None)
        rows = pl.DataFrame() if relation is None else frame_of(relation)
    if is_one_transaction:
        connection.commit()
    elif _rolled_back(connection):
        raise InputError(
            "the last transaction is not committed: nothing of it is stored",
            "add `commit` at the end, or leave out `begin`: all statements are one transaction",
        )
    return rows


def _rolled_back(connection: DuckDBPyConnection) -> bool:
    """Roll back a transaction that is still open; return whether there was one."""
    try:
        connection.rollback()
    except duckdb.TransactionException:
        return False
    return True


def _registered(
    connection: DuckDBPyConnection, query: str, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Make tables of a connection of those parameters that are some; return the other values.

    A parameter that the query does not name is refused; case makes no difference.
    """
    tables = {name: value for name, value in parameters.items() if is_table(value)}
    values = {name: plain(value) for name, value in parameters.items() if name not in tables}
    statements = connection.extract_statements(query)
    known = {name.lower() for statement in statements for name in statement.named_parameters}
    for name in values:
        if name.lower() not in known:
            raise UsageError(
                f"the query has no `${name}`", "write it in the query, or leave it out"
            )
    for name in tables:
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", query, re.IGNORECASE):
            raise UsageError(
                f"the query has no table `{name}`", f"read it with `from {name}`, or leave it out"
            )
    for name, value in tables.items():
        connection.register(name, given_frame(value, name))
    return values


def _run_frame(runs: RunTable) -> pl.DataFrame:
    for reason, number in runs.left_out.items():
        warn(f"left out, {reason}: {number:,} runs")
    return frame_of_rows(runs.columns, runs.rows)
