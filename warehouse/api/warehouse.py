"""`Warehouse`: a database file, with a method for each question that the commands answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from estimators import registry
from warehouse.api.arguments import (
    as_pairs,
    count,
    question_of,
    refuse_control_characters,
    refuse_unknown,
    short_names,
    value_of,
)
from warehouse.api.database_file import warn
from warehouse.api.given_frame import Rows, given_frame
from warehouse.api.results import (
    compared_runs,
    frame_of_rows,
    layout_diagnosis,
    planned_run,
    step_explanation,
)
from warehouse.api.stored import StoredRows
from warehouse.ask.explain import explain_pairs
from warehouse.ask.why import diagnose_pairs
from warehouse.database.connection import open_once
from warehouse.database.copies import back_up_before_sweep
from warehouse.errors import InputError
from warehouse.evaluate.csv_parquet import check_source, read_configs, values_of
from warehouse.evaluate.file import evaluate_frame, find_relation
from warehouse.evaluate.inputs import input_names
from warehouse.evaluate.profiles import profiled_catalog
from warehouse.limits import FIT_PROBABILITY
from warehouse.measure.compare import measure_runs
from warehouse.options import (
    MAX_GPUS,
    ConfigurationOptions,
    FitProbability,
    LaunchPath,
    PlanOptions,
    Tokens,
)
from warehouse.plan.run import answer_plan, first_sweep, store_sweep
from warehouse.plan.several import answer_all, asks_several, read_questions
from warehouse.studies.definitions import every_definition
from warehouse.studies.variants import mends_of_options
from warehouse.sweep.estimate import estimate
from warehouse.sweep.runner import run_study
from warehouse.sweep.study import study_under_options

if TYPE_CHECKING:
    from estimators.contract import Scalar
    from warehouse.api.results import LayoutDiagnosis, PlannedRun, StepExplanation
    from warehouse.plan.search import Sweep
    from warehouse.sweep.runner import SweepReport


class Warehouse(StoredRows):
    """A database of estimates.

    Each call opens the file and closes it again, so that a notebook does not block a sweep. In a
    ``with`` block the file stays open for reading: calls are faster, no other process can write,
    and `relation` works. Arguments have the meaning, the limits and the spellings of the options of
    the same name: ``warehouse rank --help`` describes those of `rank`.

    Without a `path` it is the file that `warehouse config` shows. `plan` stores what it evaluates,
    as the command does, and creates a missing file. Only a `writable` warehouse has `sweep`,
    `measure` and `execute`. An argument may also have the short name of its option: `gpus`,
    `batch`.

    Methods raise the errors of `warehouse.errors`, with the text and the hint of the command:
    `InputError` for refused input, `UsageError` for arguments that are unknown or exclude one
    another, and `DatabaseError` for a file that is missing, locked or damaged.

    Examples
    --------
    >>> from warehouse import Warehouse
    >>> warehouse = Warehouse(path)
    >>> best = warehouse.rank(model="gpt3_1T", num_gpus=4096, nvlink_size=8)
    >>> best.height, best["rank_by_time"].to_list()[:3]
    (3, [1, 1, 1])
    """

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
        missing. A warning names columns that are likely misspelt, and rows that are left out.

        Parameters
        ----------
        frame
            A row for each configuration, shape (rows, inputs): a polars or pandas frame, a pyarrow
            table, a dict of columns, a list of dicts, or the path of a .csv or .parquet file. A
            missing column or value takes the default of the `estimator`.
        variant, relation, profile, catalog
            The options of the command.
        keep_valid
            Leave refused rows out, instead of refusing the frame.
        interval
            Add low_step_seconds and high_step_seconds: two evaluations a constant.

        Returns
        -------
        polars.DataFrame
            The same rows in the same order. Result columns that `frame` has are replaced, others
            are appended.

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
            configurations = given_frame(rows)
            defined = every_definition(self.path, catalog, values_of(configurations, "model"))
            evaluated, report = evaluate_frame(
                *(chosen, configurations),
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

    @short_names
    def why(
        self,
        *,
        estimator: str | None = None,
        variant: str | None = None,
        tokens: float | str | None = None,
        profile: str | None = None,
        catalog: Path | None = None,
        launch: str | Path | None = None,
        fit_probability: float = FIT_PROBABILITY,
        **layout: Scalar,
    ) -> LayoutDiagnosis:
        """Say why a layout is not the best, as ``warehouse why``.

        Every layout of the same problem is evaluated in memory. A layout that breaks a rule is
        diagnosed, not refused. The `layout` consists of inputs of the estimator. Options of the
        command are `estimator`, `variant`, `tokens`, `profile`, `catalog`, `fit_probability` and
        `launch`, the launch file of ``--from``.

        Examples
        --------
        >>> why = warehouse.why(
        ...     model="megatron_1.7B", accelerator="A100", num_gpus=32, global_batch_size=512,
        ...     tensor_parallel=8, microbatch_size=4,
        ... )
        >>> why.rank > 1, why.parts.columns
        (True, ['part', 'seconds', 'best_seconds', 'difference_seconds'])
        >>> warehouse.why(model="megatron_1.7B", accelerator="A100", num_gpus=32,
        ...               tensor_parallel=7).is_admitted
        False
        """
        refuse_control_characters(locals())
        with self._asking():
            query, diagnosis = diagnose_pairs(
                *(self.path, as_pairs(layout)),
                ConfigurationOptions(
                    tokens=value_of(Tokens, "tokens", tokens),
                    profile=profile,
                    catalog=catalog,
                    launch=value_of(LaunchPath, "launch", launch),
                ),
                estimator=estimator,
                variant=variant,
                fit_probability=value_of(FitProbability, "fit_probability", fit_probability),
            )
        return layout_diagnosis(query, diagnosis)

    @short_names
    def explain(
        self,
        *,
        best: bool = False,
        estimator: str | None = None,
        variant: str | None = None,
        tokens: float | str | None = None,
        profile: str | None = None,
        catalog: Path | None = None,
        launch: str | Path | None = None,
        **configuration: Scalar,
    ) -> StepExplanation:
        """Say why a step takes as long as it does, as ``warehouse explain``.

        The `configuration` consists of inputs of the estimator; `best` takes the fastest stored
        layout with these values. `estimator`, `variant`, `tokens`, `profile`, `catalog` and
        `launch` are as in `why`.

        Examples
        --------
        >>> step = warehouse.explain(best=True, model="megatron_1.7B", num_gpus=32)
        >>> abs(step.parts["seconds"].sum() / step.step_seconds - 1) < 1e-9
        True
        >>> low, high = step.likely_step_seconds
        >>> low < step.step_seconds < high
        True
        """
        refuse_control_characters(locals())
        with self._asking():
            explanation = explain_pairs(
                *(self.path, as_pairs(configuration)),
                ConfigurationOptions(
                    tokens=value_of(Tokens, "tokens", tokens),
                    profile=profile,
                    catalog=catalog,
                    launch=value_of(LaunchPath, "launch", launch),
                ),
                best=best,
                estimator=estimator,
                variant=variant,
            )
        return step_explanation(explanation)

    # ---- questions that may store rows ----

    @short_names
    def plan(
        self,
        *,
        tokens: float | str | Sequence[float | str],
        model: str | Path | None = None,
        accelerator: str | Sequence[str] | None = None,
        num_gpus: int | Sequence[int] | None = None,
        budget_usd: float | None = None,
        days: float | None = None,
        max_mw: float | None = None,
        max_gpus: int = MAX_GPUS,
        global_batch_size: int | Sequence[int] | None = None,
        seq_len: int | None = None,
        framework: str | None = None,
        nvlink_size: int | None = None,
        profile: str | None = None,
        catalog: Path | None = None,
        launch: str | Path | None = None,
        headroom_gb: float = 0.0,
        fit_probability: float = FIT_PROBABILITY,
        strict_fit: bool = False,
        price: float | str | Sequence[float | str] | None = None,
        basis: str | None = None,
        electricity_price: float | Sequence[float] | None = None,
        pue: float | str | Sequence[float | str] | None = None,
        watts: float | None = None,
        carbon: float | str | Sequence[float | str] | None = None,
        goodput: float | str | None = None,
        critical_batch: float | str | None = None,
        top: int = 3,
        estimator: str | None = None,
        allow_large: bool = False,
        **inputs: Scalar,
    ) -> PlannedRun:
        """Plan a run: its best layouts, time, dollars and energy, as ``warehouse plan``.

        Layouts that are not stored are evaluated and stored first.
        The arguments are the options of the command:

        - the run: `tokens`, `model`, `accelerator`, `global_batch_size`, `seq_len`, `framework`,
          `nvlink_size`, `profile`, `catalog`, `launch`, `headroom_gb`, `fit_probability`,
          `strict_fit`, `estimator`. Further `inputs` are a shape, attributes of the system, or
          columns that every layout must have;
        - its size: `num_gpus`, or the limits `budget_usd`, `days`, `max_mw` and `max_gpus`;
        - terms: `price`, `basis`, `electricity_price`, `pue`, `watts`, `carbon`, `goodput`,
          `critical_batch`;
        - several `tokens`, accelerators or GPU counts, as lists, or `accelerator` "all": a question
          each. The best answer is returned, with `answers` and `comparison`;
        - `top`, the layouts to return, and `allow_large`, to evaluate also more than 50 million
          rows, or more than the disk has space for.

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
        options = replace(question_of(PlanOptions, locals()), pairs=as_pairs(inputs))
        top = count("top", top) or 1
        with self._asking(may_write=True), open_once(self.path):
            refuse_unknown(self.plan, inputs, registry.get(options.estimator))
            store = partial(self._store, allow_large=allow_large)
            if asks_several(options):
                questions = read_questions(options, self.path)
                return compared_runs(answer_all(questions, self.path, top, store), top)
            run, sweep = first_sweep(options, self.path)
            return planned_run(answer_plan(run, sweep, self.path, top, store), top)

    def _store(self, sweep: Sweep, database: Path, *, allow_large: bool) -> None:
        if sweep.missing_cells or (self.writable and sweep.is_needed(database)):
            with self._writing():
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

        Stored cells are evaluated again only if `force` is set.

        Parameters
        ----------
        study
            A TOML file, the name of a study that comes with the package, or a mapping with the
            content of such a file. If it is refused, every fault is listed and nothing is written.
        variant, profile
            Take the place of those of the study.
        workers
            Processes that evaluate; None: by the cores.
        allow_large
            Sweep also more than 50 million rows, or more than the disk has space for.

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
            if found.size.missing_rows:
                back_up_before_sweep(self.path)
            return run_study(self.path, asked, force=force, workers=workers, cells=found.cells)

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

        The same as ``warehouse measure``, with its options `estimator`, `profile` and `catalog`. If
        a row is refused, every fault is listed and nothing is written. Warnings name columns that
        are not read, and say what the seconds of a run follow from that gives another speed.

        Parameters
        ----------
        frame
            A row for each run, in any form that `evaluate` takes: its inputs, num_gpus and
            global_batch_size among them, the measured step_seconds (or tokens_per_second,
            tokens_per_second_per_gpu, model_flops_per_second_per_gpu, mfu) and, where known,
            memory_bytes with measured_memory_kind.
        name, replace
            The name that the runs are stored under; whether they replace those of that name.

        Returns
        -------
        polars.DataFrame
            A row for each run, estimator, variant and profile; time_relative_error is estimated
            over measured less one.

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
            comparison = measure_runs(
                *(self.path, source, name),
                estimator=estimator,
                replaces=replace,
                profile=profile,
                catalog=catalog,
                warn=warn,
            )
        for line in comparison.derived:
            warn(line)
        return frame_of_rows(comparison.columns, comparison.rows)
