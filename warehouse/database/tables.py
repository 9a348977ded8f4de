"""Tables and their DDL, from the data dictionary and the declarations of the estimators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from estimators.columns import COLUMNS, Column
from warehouse.database.meanings import comment_of
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError

if TYPE_CHECKING:
    from estimators.contract import Relation
    from estimators.estimator import Estimator

CELL_RECORD = (
    *("cell_id", "problem_id", "estimator", "estimator_version", "relation"),
    *("mends", "variant", "kept", "num_rows", "evaluated_at"),
)
"""Columns of a cell of any estimator; the choices of all estimators follow."""


ROW_IDS = ("cell_id", "problem_id")
"""Columns of every fact table before those that its relation stores. A row has the id of its
problem, too: a condition on it then reaches the scan, and DuckDB reads few blocks."""

TOP = 20
"""Number of fastest rows of a cell that table `leading_row` has: its ranks, and those of the views,
end there."""

IS_REPEATED = "is_repeated"
"""Column of every fact table; `warehouse.database.in_force` keeps it up to date."""

SUPERSEDED = "is_superseded"

MARKS = (SUPERSEDED, "sibling", "num_siblings", "first_sibling", "sibling_record")
"""Columns of table `cell` that follow from all cells (`warehouse.database.in_force`)."""

STORED_PROBLEM = "stored_problem"
"""Table of the facts of problems; `warehouse.database.problem_facts` keeps it up to date."""

CELL_FACTS = ("is_default_variant", "num_layouts", "num_fitting_layouts")
"""Columns of `cell` that follow from its record and its rows. The numbers are of the layouts that
the cell shows."""

MEASUREMENTS = "published_measurement"
"""The published steps that leave no choice open: each is evaluated as it is."""

_DEFAULTS = {
    IS_REPEATED: "false",
    "evaluated_at": "(now() at time zone 'UTC')",
    "created_at": "(now() at time zone 'UTC')",
}


@dataclass(frozen=True)
class Table:
    """A table by dictionary names.

    `key` is its primary key. `required` columns are NOT NULL. `real` columns hold real numbers
    although the dictionary declares whole numbers. `role` is one of
    `warehouse.database.meanings.ROLES`.
    """

    name: str
    meaning: str
    columns: tuple[str, ...]
    key: str = ""
    required: tuple[str, ...] = ()
    real: frozenset[str] = frozenset()
    role: str = "record"

    @property
    def comment(self) -> str:
        """Its role and meaning, for COMMENT ON."""
        return comment_of(self.role, self.meaning)

    def type_of(self, name: str) -> str:
        """Return the DuckDB type of one of the columns."""
        known = column(name)
        return (known.as_real() if name in self.real else known).duckdb_type


_FITTED = ("untuned", "fitted", "left_out")
"""The estimates that a calibration compares."""

CALIBRATION_TABLES = (
    Table(
        "calibration",
        "Constants fitted to published steps, or to timed kernels: the profiles that sweep, plan, "
        "evaluate and show take. Errors are of the step's time, or of the kernels'. "
        "One row per profile and constant",
        (
            *("profile", "reference", "row_filters", "estimator", "estimator_version"),
            *("fit_parameter", "constant", "step_constant", "default_constant_value"),
            *("fitted_constant_value", "lower_bound", "upper_bound", "is_at_bound"),
            *("lowest_left_out_value", "highest_left_out_value", "num_rows"),
            *(f"{name}_mean_absolute_relative_error" for name in _FITTED),
            *(f"{name}_max_absolute_relative_error" for name in _FITTED),
            *(f"{name}_bias" for name in _FITTED),
            "created_at",
        ),
        required=("profile", "reference", "estimator", "step_constant", "fitted_constant_value"),
    ),
    Table(
        "calibration_row",
        "Published steps that a profile was fitted to, with the untuned, the fitted and the "
        "left-out estimate. One row per profile and published row",
        (
            *("profile", "reference", "published_row", "published_step_seconds"),
            *(f"{name}_step_seconds" for name in _FITTED),
            *(f"{name}_relative_error" for name in _FITTED),
        ),
        required=("profile", "reference", "published_row"),
    ),
)


MEASUREMENT_TABLE = Table(
    "measurement",
    "Steps that a team measured itself, each with its layout as the estimator completed it. "
    "One row per run measured",
    (
        *("reference", "measured_row", "measurement_file", "problem_id"),
        *("model", "num_layers", "hidden_size", "ffn_hidden_size", "uses_glu", "num_heads"),
        *("num_kv_heads", "head_size", "seq_len", "vocab_size", "num_experts"),
        *("experts_per_token", "expert_ffn_hidden_size", "num_shared_experts"),
        *("num_dense_layers", "accelerator", "nvlink_size", "framework", "precision"),
        *("attention", "activation_recompute", "num_gpus", "global_batch_size"),
        *("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel"),
        *("virtual_pipeline", "expert_parallel", "expert_tensor_parallel"),
        *("zero_stage", "uses_sequence_parallel"),
        *("microbatch_size", "measured_step_seconds", "measured_memory_bytes"),
        *("measured_memory_kind", "source", "note", "created_at", "profiled_problem_id"),
    ),
    required=("reference", "measured_row", "problem_id", "measured_step_seconds"),
)

PUBLISHED_ESTIMATE_TABLE = Table(
    "published_estimate",
    "Published steps as an estimator completed them: layout and problem of a measurement, by which "
    "its estimate is found, or the reason to refuse it; the interval of the step. "
    "One row per published step, estimator and variant",
    (
        *("reference", "published_row", "estimator", "variant", "problem_id", "refusal"),
        *("low_step_seconds", "high_step_seconds"),
        *("attention", "activation_recompute", "data_parallel", "tensor_parallel"),
        *("context_parallel", "pipeline_parallel", "virtual_pipeline", "expert_parallel"),
        *("expert_tensor_parallel", "zero_stage", "uses_sequence_parallel"),
        *("microbatch_size", "created_at"),
    ),
    required=("reference", "published_row", "estimator", "variant"),
)

PROBLEM_FACTS_TABLE = Table(
    STORED_PROBLEM,
    "Facts that follow from a problem and the reference tables: names, changes, groups to compare; "
    "view problem_group shows them. One row per problem",
    (
        *("problem_id", "model", "model_shape", "is_published_system", "system_changes"),
        *("assumptions", "num_changed_constants", "num_changed_step_constants"),
        *("scaling_id", "capacity_id", "workload_id"),
        *("product", "expert_default", "recompute_modules", "changed_constants"),
    ),
    role="intermediate",
)


def core_tables(estimators: Sequence[Estimator]) -> list[Table]:
    """Return the tables that all estimators share."""
    problem = dict.fromkeys(chain.from_iterable(e.problem_columns for e in estimators))
    choices = dict.fromkeys(chain.from_iterable(e.choice_columns for e in estimators))
    figures = dict.fromkeys(chain.from_iterable(e.step.cell_figures for e in estimators))
    study = ("study", "study_file", "estimator", "definition", "num_cells", "num_rows")
    return [
        Table(
            "problem",
            "Everything but the layout, resolved to numbers; NULL where an estimator has no use "
            "for a column. One row per problem",
            ("problem_id", *problem),
            key="problem_id",
        ),
        Table(
            "cell",
            "Stored cells: one problem under one set of choices, by one version of an estimator. "
            "One row per cell whose rows are stored",
            (*CELL_RECORD, *MARKS, *CELL_FACTS, *choices, *figures),
            key="cell_id",
            required=CELL_RECORD[1:],
        ),
        Table(
            "study",
            "Studies that were run. One row per study",
            (*study, "created_at"),
            key="study",
            required=("estimator", "definition"),
        ),
        Table(
            "study_cell",
            "Cells a study asked for; done when they are in cell. One row per study and cell",
            ("study", "cell_id"),
            required=("study", "cell_id"),
        ),
        *CALIBRATION_TABLES,
        MEASUREMENT_TABLE,
        PUBLISHED_ESTIMATE_TABLE,
        PROBLEM_FACTS_TABLE,
    ]


def fact_table(estimator: Estimator, relation: Relation) -> Table:
    """Return the table that holds the rows of a relation."""
    meaning = f"{estimator.title.rstrip('.')}. {relation.grain[:1].upper()}{relation.grain[1:]}"
    columns = (*ROW_IDS, *relation.stored, IS_REPEATED)
    return Table(relation.table, meaning, columns, real=relation.real, role="internal")


def all_tables(estimators: Sequence[Estimator]) -> list[Table]:
    """Return the shared tables and every estimator's, whose columns it checks."""
    for estimator in estimators:
        for relation in estimator.relations:
            _check(estimator, relation)
    facts = [fact_table(e, relation) for e in estimators for relation in e.relations]
    return core_tables(estimators) + facts


def refuse_shared_names(names: Iterable[str]) -> None:
    """Raise `InputError` if two tables have one name."""
    for name, times in Counter(names).items():
        if times > 1:
            hint = "rename the estimator's relation or the CSV file"
            raise InputError(f"`{name}` names two tables", hint)


def create_statement(table: Table) -> str:
    """Return the statement that creates one of the shared tables."""
    columns = []
    for name in table.columns:
        rule = " primary key" if name == table.key else ""
        rule = rule or (" not null" if name in table.required else "")
        columns.append(f"{quoted(name)} {column(name).duckdb_type}{rule}{default_of(name)}")
    return f"create table {quoted(table.name)} ({', '.join(columns)})"


def default_of(name: str) -> str:
    """Return the default of a column as a part of its definition, empty if it has none."""
    return f" default {_DEFAULTS[name]}" if name in _DEFAULTS else ""


def fact_ddl(relation: Relation) -> str:
    """Return the statement that creates a relation's table.

    It has no key and no constraint: they would halve the speed of ingest, and the cell's record is
    the key. Columns have the compression that the relation states, so that DuckDB does not try
    others.
    """
    known = {**dict.fromkeys(ROW_IDS, "rle"), **relation.compression}
    columns = []
    for name in (*ROW_IDS, *relation.stored):
        compression = f" using compression {known[name]}" if name in known else ""
        kind = relation.column(name).duckdb_type
        columns.append(f"{quoted(name)} {kind}{compression}")
    columns.append(f"{IS_REPEATED} boolean{default_of(IS_REPEATED)}")
    return f"create table {quoted(relation.table)} ({', '.join(columns)})"


def column(name: str) -> Column:
    """Return a column of the data dictionary; raise `InputError` if there is none."""
    if name not in COLUMNS:
        raise InputError(
            f"estimators/columns/columns.csv: `{name}` is not in the data dictionary",
            "define it there",
        )
    return COLUMNS[name]


def _check(estimator: Estimator, relation: Relation) -> None:
    # One view joins a relation's rows with the columns of their problem and cell.
    shown = (
        *CELL_RECORD,
        *estimator.problem_columns,
        *estimator.choice_columns,
        *estimator.step.cell_figures,
        *relation.stored,
        IS_REPEATED,
    )
    for name, times in Counter(shown).items():
        column(name)
        if times > 1:
            raise InputError(
                f"estimator {estimator.name}: relation `{relation.name}` has `{name}` twice",
                "a column belongs to the problem, to the choices, or to the rows",
            )
