"""`Warehouse`: a database file, with a method for each question that the commands answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import duckdb
import polars as pl

from estimators import registry
from warehouse.api.arguments import (
    as_pairs,
    as_text,
    checked_query,
    checked_value,
    cost_options,
    given_values,
    plain,
    refuse_control_characters,
    refuse_unknown,
    refuse_unused,
    several,
)
from warehouse.api.database_file import DatabaseFile, warn
from warehouse.api.given_frame import Rows, given_frame, is_table
from warehouse.api.results import layout_diagnosis, planned_run, step_explanation
from warehouse.api.tables import frame_of_rows
from warehouse.ask.cost import costs, energies
from warehouse.ask.explain import explain_pairs
from warehouse.ask.rank import ranking
from warehouse.ask.why import diagnose_pairs
from warehouse.database.connection import open_for_write, open_once
from warehouse.database.copies import back_up_before_sweep
from warehouse.database.describe import Description, usual_name
from warehouse.database.paths import file_of
from warehouse.database.recast import frame_of
from warehouse.database.sandbox import explained, sandboxed
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError, UsageError
from warehouse.evaluate.csv_parquet import check_source, read_configs
from warehouse.evaluate.file import evaluate_frame, find_relation
from warehouse.evaluate.inputs import input_names
from warehouse.evaluate.profiles import profiled_catalog
from warehouse.measure.compare import measure_runs
from warehouse.plan.question import MAX_GPUS, PlanOptions
from warehouse.plan.run import answer_plan, first_sweep, store_sweep
from warehouse.studies.known import every_definition
from warehouse.studies.variants import mends_of_options
from warehouse.sweep.estimate import estimate
from warehouse.sweep.runner import run_study
from warehouse.sweep.study import study_under_options

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from estimators.contract import Scalar
    from warehouse.api.results import LayoutDiagnosis, PlannedRun, StepExplanation
    from warehouse.ask.cost import RunTable
    from warehouse.plan.search import Sweep
    from warehouse.sweep.runner import SweepReport


class Warehouse(DatabaseFile):
    """A database of estimates.

    Each call opens the file and closes it again, so that a notebook does not block a sweep. In a
    ``with`` block the file stays open for reading: calls are faster, no other process can write,
    and `relation` works.

    Parameters
    ----------
    path
        The database file; None: the one that `warehouse config` shows.
    writable
        Whether methods may write: `sweep`, `measure`, and `plan` where it has to evaluate. The
        file is created if it is missing.

    Raises
    ------
    WarehouseError
        Every method raises errors of `warehouse.errors`, with the text and the hint of the
        command: `InputError`, `UsageError` or `DatabaseError`.

    Examples
    --------
    >>> from warehouse import Warehouse
    >>> warehouse = Warehouse(path)
    >>> best = warehouse.rank(model="gpt3_1T", num_gpus=4096, nvlink_size=8)
    >>> best.height, best["rank_by_time"].to_list()[:3]
    (3, [1, 1, 1])
    """

    # ---- stored rows ----

    def sql(self, query: str, /, **parameters: Any) -> pl.DataFrame:
        """Return the rows of one SELECT, as ``warehouse sql``.

        The query reads the tables and views, and no file or network address. `execute` runs
        any other statement.

        Parameters
        ----------
        query
            One SELECT; FROM, WITH, VALUES, DESCRIBE, SUMMARIZE and SHOW TABLES count as one.
            ``warehouse schema`` lists the tables and views.
        **parameters
            Values of ``$name`` in the query. A polars or pandas frame, or a pyarrow table, is a
            table of that name. A parameter that the query does not use is refused.

        Returns
        -------
        polars.DataFrame
            The rows in the order of the query, with the types of the database. Types that polars
            does not have, such as intervals, are texts.

        Raises
        ------
        UsageError
            If the query does not use a parameter.
        InputError
            If the text is not one SELECT, or DuckDB refuses it.
        DatabaseError
            If the file is missing, locked or no database.

        Examples
        --------
        >>> warehouse.sql("select num_layers from model where model = $name", name="gpt3").item()
        96
        >>> import polars as pl
        >>> mine = pl.DataFrame({"model": ["gpt3", "gpt3_1T"]})
        >>> warehouse.sql("from mine join model using (model) select model order by all", mine=mine)
        shape: (2, 1)
        ┌─────────┐
        │ model   │
        │ ---     │
        │ str     │
        ╞═════════╡
        │ gpt3    │
        │ gpt3_1T │
        └─────────┘
        """
        with self._reading() as connection, explained(self.path):
            return frame_of(_relation(connection, query, parameters))

    def relation(self, query: str, /, **parameters: Any) -> DuckDBPyRelation:
        """Return a query as a DuckDB relation, which further queries can use.

        A relation is evaluated when its rows are read. It ends with the ``with`` block, and when a
        method writes. Relations of one thread can be joined. They write no files either: read the
        rows as a frame with ``pl()``, which can.

        Parameters
        ----------
        query, **parameters
            As `sql` takes them.

        Raises
        ------
        UsageError
            Outside a ``with`` block.
        InputError
            As `sql`.

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
        """Return the rows of a view or table.

        Parameters
        ----------
        name
            Its name, in any spelling that ``warehouse schema`` accepts.
        limit
            Rows at most; None: all. View configuration has a row for each stored layout.

        Raises
        ------
        InputError
            If there is none of that name; the hint has similar names.

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
            found = connection.execute(query, [usual_name(checked_query(name))]).fetchone()
            if found is None:
                Description(connection).find(name)  # refuses an unknown name, with similar ones
                raise InputError(f"`{name}` is no table or view", "`warehouse schema` lists them")
            rows = "" if limit is None else f" limit {checked_value('limit', limit)}"
            return frame_of(_relation(connection, f"from {quoted(found[0])}{rows}", {}))

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
        top: int | None = None,
        **unknown: Never,
    ) -> pl.DataFrame:
        """Return the best stored layouts of each problem, as ``warehouse rank``.

        Layouts compete within one problem: one model on one system with one number of GPUs and one
        batch. A problem without a layout that fits in memory has no row.

        Parameters
        ----------
        model, accelerator, num_gpus, nvlink_size, num_clusters, global_batch_size, strategy
            Values that a problem must have; names in any spelling. With a strategy layouts are
            ranked within it.
        study
            Name of a stored study: only its problems. Other stored layouts of them compete as well.
        estimator
            Its name; None: the study's, or the most detailed one that has rows of what is asked.
        variant
            ``published``, ``corrected`` or errata such as ``R2,R4``; None: corrected, or published
            where the estimator has no mends.
        by
            A numeric column of view configuration to rank by, best value first.
        top
            Layouts of each problem; None: ten of one problem, the best one of several.
        **unknown
            Refused, with the arguments that they may mean.

        Returns
        -------
        polars.DataFrame
            A row for each layout, best first within a problem. Columns: estimator, variant, those
            that name the problem, the rank, the layout and its results.

        Raises
        ------
        UsageError
            If there is no such argument.
        InputError
            If nothing is stored that passes the filters; the hint lists what is.

        Examples
        --------
        >>> best = warehouse.rank(model="gpt3_1T", accelerator="B200", num_gpus=1024, nvlink_size=8)
        >>> best["rank_by_time"].to_list()
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
        >>> best["step_seconds"].is_sorted()
        True
        """
        refuse_control_characters(locals())
        refuse_unknown(self.rank, unknown)
        asked = given_values(
            model=model,
            accelerator=accelerator,
            nvlink_size=nvlink_size,
            num_gpus=num_gpus,
            global_batch_size=global_batch_size,
            strategy=strategy,
            num_clusters=num_clusters,
        )
        top = given_values(top=top).get("top")
        with self._reading() as connection:
            filters, found = ranking(
                connection,
                asked,
                estimator=estimator,
                variant=variant,
                top=top,
                by=by,
                study=study,
            )
        frame = frame_of_rows(found.columns, found.rows)
        named = [pl.lit(filters[name]).alias(name) for name in ("estimator", "variant")]
        return frame.select(*named, pl.all())

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
        **unknown: Never,
    ) -> pl.DataFrame:
        """Return what stored runs cost, rented and owned, as ``warehouse cost``.

        Parameters
        ----------
        model, accelerator, num_gpus, seq_len, estimator, variant
            Values that a run must have; variant ``all`` compares every variant.
        tokens
            Tokens of every run, such as 15e12 or "15T"; None: each run's own.
        identity
            Id of a cell or of a problem: only its runs.
        study
            Name of a stored study: only the runs of its problems.
        price
            USD of an hour of one GPU, instead of published prices; several values give rows for
            each.
        year, all_years
            Prices of one year, or of every year; by default of the last one.
        goodput, pue
            A number, or the name of a row of table goodput or facility_pue.
        electricity_price
            USD a kWh.
        watts
            Power of one GPU with its server, while training.
        **unknown
            Refused, with the arguments that they may mean.

        Returns
        -------
        polars.DataFrame
            A row for each model, system and price: hours in GPU-hours, costs in USD.

        Raises
        ------
        UsageError
            If there is no such argument.
        InputError
            If no run is left, or a term is not known.

        Warns
        -----
        UserWarning
            If runs are left out, with the reason.

        Examples
        --------
        >>> costs = warehouse.cost(model="megatron_1.7B", tokens="300G", price=2.0)
        >>> costs["lowest_cost_usd"].min() == 2 * costs["lowest_gpu_hours"].min()
        True
        """
        refuse_control_characters(locals())
        refuse_unknown(self.cost, unknown)
        options = cost_options(
            *(goodput, pue),
            model=model,
            accelerator=accelerator,
            num_gpus=num_gpus,
            seq_len=seq_len,
            tokens=tokens,
            estimator=estimator,
            variant=variant,
            identity=identity,
            study=study,
            electricity_price=electricity_price,
            watts=watts,
        )
        prices = [checked_value("price", each) for each in several(price)]
        with self._reading() as connection:
            found = costs(connection, options, prices, plain(year), all_years=all_years)
        return _run_frame(found)

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
        **unknown: Never,
    ) -> pl.DataFrame:
        """Return the energy of stored runs and its CO2e, as ``warehouse energy``.

        Parameters
        ----------
        model, accelerator, num_gpus, seq_len, tokens, estimator, variant, identity, study
            As `cost` takes them.
        carbon
            kg CO2e of a kWh, or a grid of table grid_carbon by any of its names; several values
            give rows for each. None: the grids of published runs.
        all_powers
            Also at full load, and of the accelerator alone.
        goodput, pue, electricity_price, watts
            As `cost` takes them.
        **unknown
            Refused, with the arguments that they may mean.

        Returns
        -------
        polars.DataFrame
            A row for each model, system, power and grid: kWh, kg CO2e and W.

        Raises
        ------
        UsageError
            If there is no such argument.
        InputError
            If no run is left, or a term is not known.

        Warns
        -----
        UserWarning
            If runs are left out, with the reason.

        Examples
        --------
        >>> energies = warehouse.energy(model="megatron_1.7B", tokens="300G", carbon=0.1)
        >>> energies["kg_co2e_per_kwh"].unique().to_list()
        [0.1]
        """
        refuse_control_characters(locals())
        refuse_unknown(self.energy, unknown)
        options = cost_options(
            *(goodput, pue),
            model=model,
            accelerator=accelerator,
            num_gpus=num_gpus,
            seq_len=seq_len,
            tokens=tokens,
            estimator=estimator,
            variant=variant,
            identity=identity,
            study=study,
            electricity_price=electricity_price,
            watts=watts,
        )
        grids = [str(each) for each in several(carbon)]
        with self._reading() as connection:
            found = energies(connection, options, grids, all_powers=all_powers)
        return _run_frame(found)

    # ---- questions that are evaluated in memory ----

    def evaluate(
        self,
        estimator: str,
        frame: Rows,
        *,
        variant: str | None = None,
        relation: str | None = None,
        profile: str | None = None,
        catalog: Path | None = None,
        keep_valid: bool = False,
        interval: bool = True,
    ) -> pl.DataFrame:
        """Return a frame of configurations with their results, as ``warehouse evaluate``.

        Nothing is stored. The database is read for `profile` and for systems of studies; it may be
        missing.

        Parameters
        ----------
        estimator
            Its name.
        frame
            A row for each configuration, shape (rows, inputs): a polars or pandas frame, a pyarrow
            table, a dict of columns, a list of dicts, or the path of a .csv or .parquet file. A
            missing column or value takes the default of the estimator.
        variant
            ``published``, ``corrected`` or errata such as ``R2,R4``.
        relation
            The grain of the results; None: the first one of the estimator.
        profile
            The stored profile of rows that name none.
        catalog
            A TOML file with models and systems of your own.
        keep_valid
            Leave refused rows out, instead of refusing the frame.
        interval
            Add low_step_seconds and high_step_seconds: two evaluations a constant.

        Returns
        -------
        polars.DataFrame
            The same rows in the same order. Result columns that `frame` has are replaced, others
            are appended.

        Raises
        ------
        InputError
            If a row is refused; every refusal is listed.

        Warns
        -----
        UserWarning
            If a column is likely misspelt, or rows were left out.

        Examples
        --------
        >>> best = warehouse.rank(model="megatron_1.7B", num_gpus=32, top=1)
        >>> again = warehouse.evaluate(best["estimator"][0], best.drop("variant"))
        >>> again["step_seconds"].round(6).equals(best["step_seconds"].round(6))
        True
        """
        refuse_control_characters(locals())
        with self._asking():
            chosen = registry.get(estimator)
            grain = find_relation(chosen, relation)
            called, rows = "frame", frame
            if isinstance(rows, str | Path):
                called = str(rows)
                check_source(Path(rows))
                rows = read_configs(Path(rows), input_names(chosen, grain), keep_text=False)
            defined = every_definition(self.path, catalog)
            evaluated, report = evaluate_frame(
                *(chosen, given_frame(rows)),
                mends_of_options(chosen, variant, None),
                profiled_catalog(self.path, chosen, profile, defined),
                relation=grain,
                keep_valid=keep_valid,
                with_interval=interval,
                warn=warn,
                called=called,
            )
        if report.refusals:
            warn(str(InputError.from_refusals(report.refusals, called)))
        return evaluated

    def why(
        self,
        *,
        estimator: str | None = None,
        variant: str | None = None,
        tokens: float | str | None = None,
        profile: str | None = None,
        catalog: Path | None = None,
        **layout: Scalar,
    ) -> LayoutDiagnosis:
        """Say why a layout is not the best, as ``warehouse why``.

        Every layout of the same problem is evaluated in memory.

        Parameters
        ----------
        estimator, variant
            As `rank` takes them; the default estimator is that of the command.
        tokens
            Tokens of the run, for the default batch.
        profile
            The stored profile to take constants from.
        catalog
            A TOML file with models and systems of your own.
        **layout
            Inputs of the estimator: model, accelerator, num_gpus, tensor_parallel ...

        Raises
        ------
        InputError
            If an input is unknown or faulty. A layout that breaks a rule is diagnosed.
        UsageError
            If the estimator searches no layouts.

        Examples
        --------
        >>> found = warehouse.why(
        ...     model="megatron_1.7B", accelerator="A100", num_gpus=32, global_batch_size=512,
        ...     tensor_parallel=8, microbatch_size=4,
        ... )
        >>> found.rank > 1, found.parts.columns
        (True, ['part', 'seconds', 'best_seconds', 'difference_seconds'])
        >>> warehouse.why(model="megatron_1.7B", accelerator="A100", num_gpus=32,
        ...               tensor_parallel=7).is_admitted
        False
        """
        refuse_control_characters(locals())
        with self._asking():
            query, found = diagnose_pairs(
                *(self.path, as_pairs(layout)),
                estimator=estimator,
                variant=variant,
                tokens=given_values(tokens=tokens).get("tokens"),
                profile=profile,
                catalog=catalog,
            )
        return layout_diagnosis(query, found)

    def explain(
        self,
        *,
        best: bool = False,
        estimator: str | None = None,
        variant: str | None = None,
        profile: str | None = None,
        catalog: Path | None = None,
        **configuration: Scalar,
    ) -> StepExplanation:
        """Say why a step takes as long as it does, as ``warehouse explain``.

        Parameters
        ----------
        best
            Take the fastest stored layout that has the given values.
        estimator, variant, profile, catalog
            As `why` takes them.
        **configuration
            Inputs of the estimator: model, accelerator, num_gpus, tensor_parallel ...

        Raises
        ------
        InputError
            If an input is unknown or faulty, or no stored layout has the values.
        UsageError
            If the estimator has no formulas.

        Examples
        --------
        >>> found = warehouse.explain(best=True, model="megatron_1.7B", num_gpus=32)
        >>> abs(found.parts["seconds"].sum() / found.step_seconds - 1) < 1e-9
        True
        >>> low, high = found.likely_step_seconds
        >>> low < found.step_seconds < high
        True
        """
        refuse_control_characters(locals())
        with self._asking():
            found = explain_pairs(
                *(self.path, as_pairs(configuration)),
                best=best,
                estimator=estimator,
                variant=variant,
                profile=profile,
                catalog=catalog,
            )
        return step_explanation(found)

    # ---- questions that may store rows ----

    def plan(
        self,
        *,
        tokens: float | str,
        model: str | None = None,
        accelerator: str | None = None,
        num_gpus: int | None = None,
        budget_usd: float | None = None,
        days: float | None = None,
        max_mw: float | None = None,
        max_gpus: int = MAX_GPUS,
        global_batch_size: int | None = None,
        seq_len: int | None = None,
        framework: str | None = None,
        nvlink_size: int | None = None,
        profile: str | None = None,
        catalog: Path | None = None,
        headroom_gb: float = 0.0,
        price: float | str | Sequence[float | str] | None = None,
        basis: str | None = None,
        electricity_price: float | None = None,
        pue: float | str | None = None,
        watts: float | None = None,
        carbon: float | str | Sequence[float | str] | None = None,
        goodput: float | str | None = None,
        top: int = 3,
        estimator: str | None = None,
        allow_large: bool = False,
        **inputs: Scalar,
    ) -> PlannedRun:
        """Plan a run: its best layouts, time, dollars and energy, as ``warehouse plan``.

        Layouts that are not stored are evaluated and stored first; that needs a writable warehouse.

        Parameters
        ----------
        tokens
            Tokens of the run, such as 15e12 or "15T".
        model, accelerator
            Names in any spelling. A shape in `inputs` takes the place of the model.
        num_gpus
            The number of GPUs; None: the limits decide.
        budget_usd, days, max_mw, max_gpus
            Limits of the run.
        global_batch_size
            Sequences of a step; None: the default of the estimator.
        seq_len, framework, nvlink_size, profile
            Inputs; None: those of the model, of the estimator and of the product.
        catalog
            A TOML file with models and systems of your own.
        headroom_gb
            GB of memory that a layout must leave free.
        price, basis, electricity_price, pue, watts, carbon, goodput
            Terms of cost and energy, as `cost` and `energy` take them; `basis` is on_demand,
            one_year, three_year or owned.
        top
            Layouts to return.
        allow_large
            Evaluate also more than 50 million rows, or more than the disk has space for.
        **inputs
            A shape, attributes of the system, or columns that every layout must have.

        Raises
        ------
        UsageError
            If a keyword is no argument or input, options exclude one another, layouts are missing
            and the warehouse is read-only, or there are too many rows without `allow_large`.
        DatabaseError
            If the disk has too little space, without `allow_large`.
        InputError
            If an input is not known, nothing fits, or no number of GPUs meets every limit.

        Examples
        --------
        >>> run = warehouse.plan(
        ...     model="megatron_1.7B", accelerator="A100 SXM 80GB", num_gpus=32, tokens="300G",
        ...     global_batch_size=512, framework="megatron_lm_2021",
        ... )
        >>> run.num_gpus, run.layouts.height
        (32, 3)
        >>> low, high = run.likely_training_seconds
        >>> low < run.training_seconds < high
        True
        """
        refuse_control_characters(locals())
        numbers = given_values(
            tokens=tokens,
            num_gpus=num_gpus,
            budget_usd=budget_usd,
            days=days,
            max_mw=max_mw,
            max_gpus=max_gpus,
            global_batch_size=global_batch_size,
            seq_len=seq_len,
            nvlink_size=nvlink_size,
            headroom_gb=headroom_gb,
            electricity_price=electricity_price,
            watts=watts,
            top=top,
        )
        top = numbers.pop("top")
        prices = [checked_value("price", each) for each in several(price)]
        options = PlanOptions(
            gpus=numbers.pop("num_gpus", None),
            batch=numbers.pop("global_batch_size", None),
            estimator=estimator or registry.default("plan"),
            pairs=as_pairs(inputs),
            model=model,
            accelerator=accelerator,
            framework=framework,
            profile=profile,
            catalog=catalog,
            price=prices,
            basis=basis,
            goodput=as_text(goodput),
            pue=as_text(pue),
            carbon=[str(each) for each in several(carbon)],
            **numbers,
        )
        with self._asking(may_write=self.writable), open_once(self.path):
            refuse_unknown(self.plan, inputs, registry.get(options.estimator))
            run, sweep = first_sweep(options, self.path)
            store = partial(self._store, allow_large=allow_large)
            return planned_run(answer_plan(run, sweep, self.path, top, store), top)

    def _store(self, sweep: Sweep, database: Path, *, allow_large: bool) -> None:
        """Store the layouts that a plan needs and that are not stored."""
        if sweep.missing_cells or (self.writable and sweep.is_needed(database)):
            with self._writing("plan"):
                store_sweep(sweep, database, allow_large=allow_large)

    def sweep(
        self,
        study: str | Path | Mapping[str, Any],
        *,
        variant: str | None = None,
        profile: str | None = None,
        force: bool = False,
        workers: int | None = None,
        allow_large: bool = False,
    ) -> SweepReport:
        """Evaluate every layout of a study and store each as a row, as ``warehouse sweep``.

        Stored cells are not evaluated again.

        Parameters
        ----------
        study
            A TOML file, the name of a study that comes with the package, or a mapping with what
            such a file holds.
        variant, profile
            Take the place of the study's own.
        force
            Evaluate stored cells again and replace them.
        workers
            Processes that evaluate; None: by the cores.
        allow_large
            Sweep also more than 50 million rows, or more than the disk has space for.

        Returns
        -------
        SweepReport
            Cells and rows that were evaluated, and those that were stored before.

        Raises
        ------
        UsageError
            If the warehouse is read-only, or there are too many rows without `allow_large`.
        InputError
            If the study is refused; every fault is listed and nothing is written.
        DatabaseError
            If the disk has too little space, without `allow_large`.

        Examples
        --------
        >>> study = {
        ...     "name": "mine",
        ...     "estimator": best["estimator"][0],
        ...     "space": {
        ...         "model": "gpt3_1.3B",
        ...         "accelerator": "A100 SXM 80GB",
        ...         "num_gpus": [4, 8],
        ...         "global_batch_size": 64,
        ...     },
        ... }
        >>> report = Warehouse(copy, writable=True).sweep(study)
        >>> report.rows > 0, report.cells_before
        (True, 0)
        """
        refuse_control_characters(locals())
        with self._writing("sweep"):
            asked = study_under_options(study, self.path, variant, None, profile)
            found = estimate(asked, self.path, force=force)
            if not allow_large:
                found.refuse_too_large(self.path)
            if found.missing_rows:
                back_up_before_sweep(self.path)
            return run_study(self.path, asked, force=force, workers=workers, cells=found.cells)

    def execute(self, statements: str, /, **parameters: Any) -> pl.DataFrame:
        """Run any statements of DuckDB, with the rights of this program.

        No sandbox surrounds them: they can change the database, read and write files. The tables of
        the package follow from one another. Change none of them: make tables and views of your own.

        Parameters
        ----------
        statements
            One or more. Several are one transaction: if one fails, the database stays as it was.
            Statements that begin or end transactions themselves are run as they are. A transaction
            that they leave open is rolled back and refused.
        **parameters
            As `sql` takes them.

        Returns
        -------
        polars.DataFrame
            The rows of the last statement: none if it returns no rows.

        Raises
        ------
        UsageError
            If the warehouse is read-only, or no statement uses a parameter.
        InputError
            If DuckDB refuses a statement, or a transaction is left open.

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

    def measure(
        self,
        frame: Rows,
        name: str,
        *,
        estimator: str | None = None,
        replace: bool = False,
        profile: str | None = None,
        catalog: Path | None = None,
    ) -> pl.DataFrame:
        """Store runs that you measured and compare them with their estimates.

        The same as ``warehouse measure``.

        Parameters
        ----------
        frame
            A row for each run, in any form that `evaluate` takes: its inputs, num_gpus and
            global_batch_size among them, the measured step_seconds and, where known, memory_bytes
            with measured_memory_kind.
        name
            The name that the runs are stored under.
        estimator
            Its name; None: the default of the command.
        replace
            Replace runs that are stored under that name.
        profile
            A stored profile: runs that name none are estimated with its constants as well.
        catalog
            A TOML file with models and systems of your own.

        Returns
        -------
        polars.DataFrame
            A row for each run, estimator, variant and profile; time_relative_error is estimated
            over measured less one.

        Raises
        ------
        UsageError
            If the warehouse is read-only.
        InputError
            If anything is refused; every fault is listed and nothing is written.

        Warns
        -----
        UserWarning
            If columns are not read.

        Examples
        --------
        >>> measured = pl.DataFrame({
        ...     "model": ["gpt3_1.3B"], "accelerator": ["A100 SXM 80GB"], "num_gpus": [8],
        ...     "global_batch_size": [64], "microbatch_size": [4], "step_seconds": [2.0],
        ... })
        >>> compared = Warehouse(copy, writable=True).measure(measured, name="first runs")
        >>> compared["measured_step_seconds"].to_list()
        [2.0]
        """
        refuse_control_characters(locals())
        source = Path(frame) if isinstance(frame, str | Path) else given_frame(frame)
        with self._writing("measure"):
            found = measure_runs(
                *(self.path, source, name),
                estimator=estimator,
                replaces=replace,
                profile=profile,
                catalog=catalog,
                warn=warn,
            )
        return frame_of_rows(found.columns, found.rows)


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
    """Run statements, several as one transaction; return the rows of the last one."""
    statements = connection.extract_statements(text)
    kinds = {statement.type for statement in statements}
    is_one_transaction = len(statements) > 1 and duckdb.StatementType.TRANSACTION not in kinds
    values = _registered(connection, text, parameters)
    rows = pl.DataFrame()
    if is_one_transaction:
        connection.begin()
    for statement in statements:
        named = {name.lower() for name in statement.named_parameters}
        given = {name: value for name, value in values.items() if name.lower() in named}
        found = connection.sql(statement.query, params=given or None)
        rows = pl.DataFrame() if found is None else frame_of(found)
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
    """Make tables of a connection of those parameters that are some; return the other values."""
    tables = {name: value for name, value in parameters.items() if is_table(value)}
    values = {name: plain(value) for name, value in parameters.items() if name not in tables}
    statements = connection.extract_statements(query)
    named = {name for statement in statements for name in statement.named_parameters}
    refuse_unused(query, tables, values, named)
    for name, value in tables.items():
        connection.register(name, given_frame(value, name))
    return values


def _run_frame(found: RunTable) -> pl.DataFrame:
    """Return runs as a frame; warn of those left out."""
    for reason, number in found.left_out.items():
        warn(f"left out, {reason}: {number:,} runs")
    return frame_of_rows(found.columns, found.rows)
