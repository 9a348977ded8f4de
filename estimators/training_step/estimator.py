"""The training_step estimator under the project's contract."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.contract import (
    PUBLISHED,
    Array,
    Catalog,
    Cell,
    Columns,
    Mends,
    RefusedError,
    Relation,
    Scalar,
    UnevenStages,
    Values,
)
from estimators.decoder import (
    Shape,
    hardware_flops,
    layer_parameters,
    least_flops,
    model_flops,
    model_parameters,
    shape_of,
)
from estimators.enumeration import Axis
from estimators.estimator import Constants, Source, Step, of_the_table
from estimators.factored import Gathered
from estimators.inputs import Inputs
from estimators.interval import fit_probability
from estimators.kernels.attention import ends_of_rate
from estimators.kernels.gemms import FORMULA
from estimators.rules import Rule
from estimators.search import SearchedEstimator
from estimators.structure import flag
from estimators.training_step import inputs as given
from estimators.training_step import power, system_inputs, timings
from estimators.training_step.formulas import FORMULAS
from estimators.training_step.gemm import of_format
from estimators.training_step.layer import LAYER_KEYS
from estimators.training_step.least import LeastSteps
from estimators.training_step.memory import BESIDES
from estimators.training_step.memory import PARTS as MEMORY
from estimators.training_step.modules import flags_of, replaces_core
from estimators.training_step.placement_flags import uneven_stages
from estimators.training_step.problem import Kept, Problem, System
from estimators.training_step.program_rules import PROGRAM_RULES, rules_of
from estimators.training_step.rules import (
    LAYER_RULES,
    LAYOUT_RULES,
    PROBLEM_RULES,
    SHARDING_NEEDS_REPLICAS,
    SPLIT_RULES,
)
from estimators.training_step.search import AXES, depends_on
from estimators.training_step.spellings import SPELLINGS
from estimators.training_step.step import TIMES, figures_of, independent_share
from estimators.training_step.tables import CHANGES, Latest, Shared, shared_of

if TYPE_CHECKING:
    from estimators.values import Real

NAME = "training_step"
FIT_PROBABILITY = "fit_probability"
MEMORY_SUMS = ("allocated_bytes", "reserved_bytes", "memory_bytes", FIT_PROBABILITY)
UTILIZATION = ("mfu", "hfu", "tokens_per_second_per_gpu")
POWER = ("relative_clock", "gpu_watts", "slot_watts")
_FITS = ("memory_bytes", "fits_memory")

_REPEATED = (
    *(*LAYER_KEYS, "pipeline_parallel", "data_parallel"),
    *("gemm_seconds", "attention_seconds", "elementwise_seconds", "vocabulary_seconds"),
    *("recompute_seconds", "host_seconds", "accumulation_seconds"),
    *("tensor_comm_seconds", "context_comm_seconds", "expert_comm_seconds", "logits_bytes"),
    *("pipeline_comm_seconds", "activations_bytes", "library_bytes", "layer_joules"),
)
"""Columns whose values repeat from row to row."""

RELATION = Relation(
    NAME,
    grain="one row per configuration: a layout of one problem",
    keeps_leading=True,
    keys=given.KEYS,
    measures=(
        *("step_seconds", *(name for name in TIMES if name != "bubble_seconds")),
        *(*MEMORY, *BESIDES, "layer_joules"),
    ),
    derived=("bubble_seconds", *MEMORY_SUMS, "fits_memory", *UTILIZATION, *POWER),
    compression={
        "step_seconds": "uncompressed",
        **dict.fromkeys(_REPEATED, "rle"),
        **dict.fromkeys(("weights_bytes", "gradients_bytes", "optimizer_bytes"), "alp"),
        **dict.fromkeys(("data_comm_seconds", "optimizer_seconds"), "alprd"),
    },
    spellings=SPELLINGS,
)


def _peak(problem: Problem) -> Real:
    """Return the peak rate of a GPU in the precision of the matmuls."""
    return of_format(problem.system.peaks, problem.formats.low_format)


def _least_flops(columns: Columns) -> Array:
    """Return the model FLOPs of a step with causal attention."""
    with np.errstate(all="ignore"):
        problem = Problem.of(columns)
        return np.asarray(least_flops(problem.shape, problem.run.global_batch_size))


def _ends(constant: str, columns: Columns, catalog: Catalog) -> tuple[Array, Array]:
    """Return the ends of a constant's range; NaN in rows that have that of ``step_constant``.

    A constant whose range is the spread of measured kernels has none in rows that use the formula:
    these have the ranges of the formula's constants. Table ``attention_rate`` may have a range for
    a program of attention. That range holds in every framework.
    """
    least, most = of_the_table(constant, columns, catalog)
    source = str(system_inputs.MEASURED_IN.get(constant))
    if source not in columns:
        return least, most
    if source == "attention_program":
        named = [columns[name] for name in ("kernels", "accelerator", source)]
        for case, rows in system_inputs.rows_by(*named).items():
            least[rows], most[rows] = ends_of_rate(catalog, *case)
    is_computed, value = np.equal(columns[source], FORMULA), columns[constant]
    return np.where(is_computed, value, least), np.where(is_computed, value, most)


class TrainingStep(SearchedEstimator):
    """One optimizer step from first principles: arithmetic, traffic, networks, schedule, memory."""

    name = NAME
    version = 8
    precedence = 2
    title = "One training step from first principles, with constants measured elsewhere"
    problem_columns = given.PROBLEM
    choice_columns = given.CHOICES
    neutral_choices: Mapping[str, Scalar] = MappingProxyType(given.NEUTRAL_CHOICES)
    idle_choices = given.IDLE_CHOICES
    input_columns = given.OTHER_INPUTS
    optional_columns = given.OPTIONAL
    system_columns = given.SYSTEM
    required_in_space: Mapping[str, str] = MappingProxyType(
        {
            "num_gpus": "say how many GPUs the run has",
            "global_batch_size": "say how many sequences a step has",
        }
    )
    relations = (RELATION,)
    shape_columns = given.SHAPE
    needed_shape = given.NEEDED
    searched_choices: Mapping[str, tuple[Scalar, ...]] = MappingProxyType(
        {"activation_recompute": ("none", "selective", "full")}
    )
    searched_by_default = searched_choices
    searched_fastest = (CHANGES,)
    step = Step(
        parts=TIMES,
        memory=(*MEMORY, *BESIDES, "framework_bytes"),
        formulas=FORMULAS,
        rates=system_inputs.RATES,
        least_flops=_least_flops,
        peak_flops_per_second=lambda columns: np.asarray(_peak(Problem.of(columns))),
        cell_figures={
            "parameters": lambda columns: model_parameters(shape_of(columns)),
            "model_flops": lambda columns: model_flops(
                shape_of(columns), columns["global_batch_size"]
            ),
            "hardware_flops": lambda columns: hardware_flops(
                shape_of(columns),
                columns["global_batch_size"],
                columns["activation_recompute"],
                flag(columns["recomputes_operations"]),
                ~replaces_core(flags_of(columns.get("recompute_modules"))),
            ),
        },
    )
    source = Source(takes_published_steps=True)
    reference_files = ("training_step/framework_rule.csv",)

    def __init__(self) -> None:
        super().__init__()
        depends = depends_on(self.search_rules(PUBLISHED))
        self.independent = frozenset((*given.PROBLEM, *given.CHOICES)) - depends
        self._latest = Latest()
        self._least = LeastSteps()
        self.constants = Constants(
            names=system_inputs.CONSTANTS,
            places=system_inputs.places,
            ends=_ends,
            timed_kernels=timings.files(self._system),
            independent_share=self._independent_share,
        )

    @property
    def space_inputs(self) -> tuple[str, ...]:
        """Those of `input_columns` that a study may give: the search finds the microbatches."""
        return tuple(name for name in self.input_columns if name != "num_microbatches")

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of shape and layout."""
        del mends  # there are none
        return (*PROBLEM_RULES, *LAYOUT_RULES, *PROGRAM_RULES)

    def search_rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of layouts; a search has each layout once, in its simplest form."""
        del mends
        idle_rules = (idle.rule for idle in self.idle_choices)
        others = (SHARDING_NEEDS_REPLICAS, *idle_rules, *PROGRAM_RULES)
        return (*LAYER_RULES, *SPLIT_RULES, *others)

    def uneven_stages(self, values: Values) -> UnevenStages | None:
        """Return how the stages of a layout differ, in the flags of its program."""
        return uneven_stages(values)

    def _system(self, accelerator: str, catalog: Catalog) -> Problem:
        """Return the values of a system without a model, with its measured kernels."""
        columns: dict[str, Array] = {name: np.array([1024.0]) for name in given.NEEDED}
        columns["accelerator"] = np.array([accelerator], dtype=object)
        resolved, refusals = self.resolve(RELATION, columns, catalog, PUBLISHED)
        if refusals:
            raise RefusedError(replace(refusal, row=None) for refusal in refusals)
        values = {name: column[0] for name, column in resolved.items()}
        # the links of a whole NVLink domain
        return Problem.of({**values, "num_gpus": values["nvlink_size"]}, catalog)

    def layer_parameters(self, values: Values) -> tuple[float, float]:
        """Return the parameters of all layers, and the active ones."""
        whole, active = layer_parameters(shape_of(values))
        return float(whole), float(active)

    def least_step_seconds(self, cells: Sequence[Cell], catalog: Catalog) -> Array:
        """Return seconds that no layout of each cell is below; see module `least`."""
        rules = self.search_rules(cells[0].mends)
        of = (self._least.of(cell, self.optional_columns, rules, catalog) for cell in cells)
        return np.fromiter(of, np.float64)

    def _independent_share(
        self, relation: Relation, columns: Columns, mends: Mends, catalog: Catalog
    ) -> Array:
        """Return the root of the summed squares of the matmuls' shares."""
        names = ("gemm_seconds", "vocabulary_seconds", "step_seconds")
        out = {name: np.empty(len(columns["seq_len"])) for name in names}
        self.estimate(relation, columns, columns, mends, out, catalog)
        with np.errstate(all="ignore"):
            share = independent_share(Shape.of(columns), *(out[name] for name in names))
        return np.nan_to_num(np.asarray(share, dtype=np.float64))

    def complete_problem(self, inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
        """Fill and check shape, system, constants, batch and choices."""
        del mends
        given.resolve_problem(inputs, catalog)

    def complete_layout(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check layouts."""
        del relation, mends
        given.resolve_layout(inputs, catalog)
        for idle in self.idle_choices:
            idle.neutralize(inputs)
        inputs.apply(rules_of(dict.fromkeys(inputs["framework"].tolist())))

    def axes(self, values: Values) -> tuple[Axis, ...]:
        """Return the columns of a layout, layers slowest."""
        del values
        return AXES

    def estimate(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
        catalog: Catalog,
    ) -> None:
        """Fill `out`; see `estimators.estimator`.

        If `out` has all parts of the memory, their sum is made from these.
        """
        if out.keys().isdisjoint(_FITS) or not out.keys() >= {*MEMORY, *BESIDES}:
            super().estimate(relation, values, layouts, mends, out, catalog)
            return
        others = {name: column for name, column in out.items() if name not in _FITS}
        super().estimate(relation, values, layouts, mends, others, catalog)
        for name, column in _memory(out, Kept.of(values), System.of(values)).items():
            if name in out:
                out[name][:] = column

    def forget(self) -> None:
        """Free the figures that kinds of recomputation share; see `estimators.estimator`."""
        self._latest.forget()

    def figures(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        wanted: Collection[str],
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        """Return every stored result, and derived ones where they are wanted.

        Consecutive rows of a search share a layer: it is computed once for each run of them. In a
        batch each row has its own layer.
        """
        del mends
        is_cell = np.ndim(values["seq_len"]) == 0

        def compute() -> Shared:
            return shared_of(Problem.of(values, catalog), layouts, is_cell=is_cell)

        with np.errstate(all="ignore"):
            shared = self._latest.of(values, layouts, catalog, compute) if is_cell else compute()
            problem = shared.problem.with_recompute(values[CHANGES])
            figures = figures_of(shared, problem, layouts["zero_stage"])
            derived: dict[str, Real] = {}
            if missing := set(wanted) - figures.keys() - {*relation.keys}:
                parts = {name: figures[name].rows for name in (*MEMORY, *BESIDES)}
                memory = _memory(parts, problem.kept, problem.system)
                derived |= memory
                if FIT_PROBABILITY in missing:  # a sweep asks for it and for no other figure below
                    capacity = problem.system.hbm_bytes
                    chance = fit_probability(memory["memory_bytes"], capacity, catalog)
                    derived[FIT_PROBABILITY] = chance
                if not missing <= derived.keys():
                    derived |= _derived(figures, problem)
        return figures | {name: Gathered(column, None) for name, column in derived.items()}


def _memory(parts: Mapping[str, Any], kept: Kept, system: System) -> dict[str, Array]:
    """Return the memory and whether it fits; parts are added in the order of the staging view."""
    memory = sum(parts[name] for name in (*MEMORY, *BESIDES)) + kept.framework_bytes
    return {"memory_bytes": memory, "fits_memory": memory <= system.hbm_bytes}


def _derived(figures: Mapping[str, Gathered], problem: Problem) -> dict[str, Real]:
    """Return the other figures that views derive from the stored ones, one element a row."""
    rows = {name: figure.rows for name, figure in figures.items()}
    allocated = sum(rows[name] for name in MEMORY)
    spent = rows["step_seconds"] * problem.run.num_gpus
    peak = _peak(problem)
    watts = power.gpu_watts(rows, problem)
    shape, sequences = problem.shape, problem.run.global_batch_size
    choices, program = problem.choices, problem.program
    hardware = hardware_flops(
        shape,
        sequences,
        choices.activation_recompute,
        program.recomputes_operations,
        ~program.replaces_core,
    )
    return {
        "allocated_bytes": allocated,
        "reserved_bytes": allocated + rows["unused_bytes"],
        "mfu": model_flops(shape, sequences) / (spent * peak),
        "hfu": hardware / (spent * peak),
        "tokens_per_second_per_gpu": sequences * shape.seq_len / spent,
        "gpu_watts": watts,
        "slot_watts": watts + problem.power.host_watts,
    }


TRAINING_STEP: SearchedEstimator = TrainingStep()
