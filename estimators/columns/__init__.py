"""The data dictionary: every column of the project once, with type, unit, meaning and source.

DDL, column comments, the column reference in docs and the validation of studies and batch
files are all made from it. Units are base units; a name ends with its unit.
"""

from __future__ import annotations

from estimators.columns.calibration import CALIBRATION
from estimators.columns.cluster import CLUSTER
from estimators.columns.column import Column, Kind
from estimators.columns.costs import COST_VIEWS, COSTS
from estimators.columns.dataflow import DATAFLOW
from estimators.columns.experts import EXPERT_DEFAULT, EXPERT_LOAD, EXPERTS
from estimators.columns.forms import Form
from estimators.columns.interval import INTERVAL
from estimators.columns.layout import LAYOUT, RESULTS
from estimators.columns.measurements import GROUP_ERRORS, MEASUREMENTS
from estimators.columns.megatron_flops import MEGATRON_FLOPS
from estimators.columns.operations import OPERATIONS
from estimators.columns.optimizer import OPTIMIZER
from estimators.columns.pipeline import PIPELINE
from estimators.columns.problem import DEVICE, MODEL, PROBLEM, SYSTEM
from estimators.columns.records import RECORD, REFERENCE
from estimators.columns.schedule import SCHEDULE
from estimators.columns.shape import SHAPE_DETAILS
from estimators.columns.training_step import TRAINING_STEP
from estimators.columns.views import VIEWS

GROUPS: dict[str, tuple[Column, ...]] = {
    "Model": MODEL,
    "System": SYSTEM,
    "Device": DEVICE,
    "Problem": PROBLEM,
    "Layout": LAYOUT,
    "Schedule of a pipeline": SCHEDULE,
    "Results": RESULTS,
    "Operations": OPERATIONS,
    "Dataflow": DATAFLOW,
    "Pipeline": PIPELINE,
    "Linear layer and run optimizer": OPTIMIZER,
    "Cluster": CLUSTER,
    "Shape of a decoder": SHAPE_DETAILS,
    "Experts": (*EXPERTS, *EXPERT_DEFAULT, *EXPERT_LOAD),
    "Training step": TRAINING_STEP,
    "Equations of Megatron": MEGATRON_FLOPS,
    "Prices, power and places": COSTS,
    "Calibrations": CALIBRATION,
    "Measurements": (*MEASUREMENTS, *GROUP_ERRORS),
    "Intervals": INTERVAL,
    "Records": RECORD,
    "Reference tables": REFERENCE,
    "Views": VIEWS,
    "Views of cost, energy and published runs": COST_VIEWS,
}
"""The columns in groups, in order; a new group is a new entry."""

_ALL = tuple(column for group in GROUPS.values() for column in group)

COLUMNS: dict[str, Column] = {column.name: column for column in _ALL}
"""Every column by name."""

LAYOUT_COLUMNS = tuple(column.name for column in _ALL if column.in_layout)
"""Columns that make a layout, in the order in which people read them."""

if len(COLUMNS) != len(_ALL):  # a name defined twice would silently lose its first meaning
    raise RuntimeError("estimators/columns defines a column twice")

__all__ = ["COLUMNS", "GROUPS", "LAYOUT_COLUMNS", "Column", "Form", "Kind"]
