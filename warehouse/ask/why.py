"""Why not this layout: its rank among all layouts of its problem, what it loses, and where.

All layouts are evaluated in memory; nothing is stored. Layouts that do the same in other words
(recomputing what was never kept) count one by one, as in the views.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators.contract import Array, Catalog, Columns, Mends, RefusedError, Scalar
from estimators.roofline import rules as roofline_rules
from estimators.training_step import rules as step_rules
from estimators.training_step.memory import PARTS as STEP_MEMORY
from estimators.training_step.step import TIMES as STEP_TIMES
from warehouse.ask.defaults import default_batch, layer_parameters, sold_domain
from warehouse.evaluate.inputs import input_names, read_columns
from warehouse.evaluate.one import Shown, read_values, show_configuration
from warehouse.evaluate.space import cells_of_problem, evaluated

if TYPE_CHECKING:
    from estimators.contract import Estimator, Relation
    from estimators.rules import Rule

FOLLOWING = ("data_parallel", "num_gpus")
"""Degrees that follow from the others."""

_TIMES = {
    "training_step": STEP_TIMES,
    "roofline": (
        *("compute_seconds", "memory_seconds", "tensor_comm_seconds"),
        *("pipeline_comm_seconds", "bubble_seconds", "data_comm_seconds"),
    ),
}
_MEMORY = {
    "training_step": (*STEP_MEMORY, "framework_bytes"),
    "roofline": ("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"),
}
ESTIMATORS = tuple(_TIMES)
"""Estimators whose layouts can be asked about: those that search layouts of a step."""

_SAME = 1e-12
"""Relative difference of times that come out of the same arithmetic in another order."""


TOKENS_PER_PARAMETER = 20
"""Tokens of a run whose length is not given, which the rule for the batch reads; source: arXiv
2203.15556, table 3. The batch grows with their sixth root only: ten times as many make it 1.5
times as large."""

_OTHERS = ("tensor_parallel", "tensor_parallel_2", "context_parallel", "pipeline_parallel")


@dataclass(frozen=True)
class Question:
    """The layout that is asked about, completed.

    Attributes
    ----------
    given
        Inputs as texts, with what was taken beside them.
    problem
        The problem's values with one GPU and one sequence; empty where they are refused.
    num_gpus
        None where it was not given: then it is the product of the degrees.
    batch
        Sequences of a step; None where the number of microbatches says it.
    is_default_batch
        Whether the rule of `plan` gave it.
    dataset_tokens
        What that rule read.
    multiple
        Sequences that the layout takes at once, where the rule's batch is not one of theirs and
        the nearest multiple was taken; else None.
    """

    given: Mapping[str, str]
    problem: Mapping[str, Scalar]
    num_gpus: int | None
    batch: int | None
    is_default_batch: bool = False
    dataset_tokens: float | None = None
    multiple: int | None = None


@dataclass(frozen=True)
class Broken:
    """A rule that a layout breaks: its name, what it read, and the refusal's words."""

    rule: str
    column: str
    value: Scalar
    reason: str
    hint: str
    values: Mapping[str, Scalar]


@dataclass(frozen=True)
class Part:
    """A part of the step of the layout and of the best one."""

    name: str
    seconds: float
    best_seconds: float

    @property
    def difference_seconds(self) -> float:
        """What the layout takes longer."""
        return self.seconds - self.best_seconds


@dataclass(frozen=True)
class Neighbour:
    """A faster layout that fits and differs in one choice; data parallelism follows."""

    changed: str
    old: Scalar
    new: Scalar
    layout: Mapping[str, Scalar]
    step_seconds: float
    memory_bytes: float


@dataclass(frozen=True)
class Why:
    """What is told of a layout.

    Attributes
    ----------
    broken
        Rules that exclude it; the rest is empty then, and `shown` is None.
    rank
        One more than the number of faster layouts that fit; None where it does not fit itself.
    num_layouts, num_fitting
        Layouts of the problem that are searched.
    is_searched
        Whether it is one of them.
    best
        The fastest of them that fits; None where none does.
    parts
        Its step beside that of the best, the largest loss first.
    memory
        Its memory by part, the largest first.
    excess_bytes
        Bytes by which it does not fit; negative where it does.
    neighbours
        The fastest single change of each kind that helps, the best one first. Of a layout that
        does not fit, changes that make it fit.
    """

    broken: tuple[Broken, ...] = ()
    shown: Shown | None = None
    rank: int | None = None
    num_layouts: int = 0
    num_fitting: int = 0
    is_searched: bool = False
    best: Mapping[str, Scalar] | None = None
    parts: tuple[Part, ...] = ()
    memory: tuple[tuple[str, float], ...] = ()
    excess_bytes: float = 0.0
    neighbours: tuple[Neighbour, ...] = ()


def completed(
    estimator: Estimator,
    given: Mapping[str, str],
    mends: Mends,
    catalog: Catalog,
    tokens: float | None = None,
) -> Question:
    """Return what is asked with a plan's batch and domain where none is given.

    Parameters
    ----------
    tokens
        Of the whole run, for the rule; None: `TOKENS_PER_PARAMETER` for each active parameter.

    Raises
    ------
    RefusedError
        If a number is none; what rules exclude is left to `why`.
    """
    relation = estimator.relations[0]
    texts = dict(given)
    if "accelerator" in texts and "nvlink_size" not in texts:
        texts |= {n: str(v) for n, v in sold_domain(estimator, texts["accelerator"]).items()}
    # the chunks of a stage are a choice of one estimator and a part of another's layout
    names = dict.fromkeys((*relation.keys, "num_gpus", "global_batch_size", "virtual_pipeline"))
    numbers = read_values(relation, {name: texts[name] for name in names if name in texts})
    num_gpus, batch = (_whole(numbers.get(n)) for n in ("num_gpus", "global_batch_size"))
    problem = _problem(estimator, texts, mends, catalog)
    if batch is not None or "num_microbatches" in texts or not problem:
        return Question(texts, problem, num_gpus, batch)
    _, active = layer_parameters(problem)
    read = tokens or TOKENS_PER_PARAMETER * active
    rule = default_batch(active, read, int(problem["seq_len"] or 1))
    unit = _sequences_at_once(numbers, num_gpus)
    batch = max(round(rule / unit), 1) * unit
    texts["global_batch_size"] = str(batch)
    return Question(texts, problem, num_gpus, batch, True, read, None if batch == rule else unit)


def _problem(
    estimator: Estimator, texts: Mapping[str, str], mends: Mends, catalog: Catalog
) -> Mapping[str, Scalar]:
    """Return the values of the problem with one GPU and one sequence; none if it is refused."""
    relation = estimator.relations[0]
    layout = {*relation.keys, *estimator.choice_columns, "num_microbatches"}
    own = {name: text for name, text in texts.items() if name not in layout}
    one = {**own, "num_gpus": "1", "global_batch_size": "1"}
    try:
        return show_configuration(estimator, relation, one, mends, catalog).problem
    except RefusedError:
        return {}


def _sequences_at_once(layout: Mapping[str, Scalar], num_gpus: int | None) -> int:
    """Return the sequences of a microbatch on every replica, in rounds of stages if interleaved."""
    degrees = {name: _whole(layout.get(name)) or 1 for name in _OTHERS}
    replicas = _whole(layout.get("data_parallel"))
    if replicas is None:
        replicas = max((num_gpus or 1) // math.prod(degrees.values()), 1)
    unit = replicas * (_whole(layout.get("microbatch_size")) or 1)
    is_interleaved = (_whole(layout.get("virtual_pipeline")) or 1) > 1
    return unit * degrees["pipeline_parallel"] if is_interleaved else unit


def _whole(value: Scalar) -> int | None:
    return None if value is None else int(value)


def why(estimator: Estimator, given: Mapping[str, str], mends: Mends, catalog: Catalog) -> Why:
    """Return what is to be told of the layout that `given` describes, in texts.

    Raises
    ------
    RefusedError
        If the question itself is refused: an unknown name, a faulty number.
    """
    relation = estimator.relations[0]
    try:
        shown = show_configuration(estimator, relation, given, mends, catalog)
    except RefusedError as error:
        broken = broken_rules(estimator, relation, given, mends, catalog, error)
        if not broken:
            raise
        return Why(broken=broken)
    return compared(shown)


def compared(shown: Shown) -> Why:
    """Return a layout that is admitted beside all others of its problem."""
    estimator, relation = shown.estimator, shown.relation
    name = estimator.name
    cells = cells_of_problem(estimator, relation, shown.problem, shown.mends)
    choices = estimator.choice_columns
    times = _TIMES[name]
    wanted = (*relation.keys, *choices, "step_seconds", "memory_bytes", "fits_memory", *times)
    space = evaluated(estimator, relation, cells, wanted)
    own = {**shown.layout, **{choice: shown.problem[choice] for choice in choices}}
    is_own = _matching(space, own)
    fits = space["fits_memory"].astype(bool)
    seconds = float(shown.results["step_seconds"] or 0)
    if is_own.any():
        seconds = float(space["step_seconds"][is_own][0])
    is_faster = fits & (space["step_seconds"] < seconds * (1 - _SAME))
    has_room = bool(shown.results["fits_memory"])
    best = _best(space, fits)
    memory = {**shown.problem, **shown.results}
    memory_parts = [(part, float(memory[part] or 0)) for part in _MEMORY[name]]
    return Why(
        shown=shown,
        rank=int(is_faster.sum()) + 1 if has_room else None,
        num_layouts=len(fits),
        num_fitting=int(fits.sum()),
        is_searched=bool(is_own.any()),
        best=best,
        parts=_parts(shown, best, times),
        memory=tuple(sorted(memory_parts, key=lambda part: -part[1])),
        excess_bytes=float(memory["memory_bytes"] or 0) - float(memory["hbm_bytes"] or 0),
        neighbours=_neighbours(space, own, is_faster if has_room else fits),
    )


def _matching(space: Columns, own: Mapping[str, Scalar]) -> Array:
    found = np.ones(len(space["step_seconds"]), dtype=bool)
    for name, value in own.items():
        found &= space[name] == value
    return found


def _best(space: Columns, fits: Array) -> dict[str, Scalar] | None:
    """Return the fastest layout that fits; of those as fast the one that needs least memory."""
    if not fits.any():
        return None
    order = np.lexsort((space["memory_bytes"], np.where(fits, space["step_seconds"], np.inf)))
    return _row(space, int(order[0]))


def _row(space: Columns, row: int) -> dict[str, Scalar]:
    return {name: column[row : row + 1].tolist()[0] for name, column in space.items()}


def _parts(shown: Shown, best: Mapping[str, Any] | None, times: Sequence[str]) -> tuple[Part, ...]:
    if best is None:
        return ()
    parts = [Part(name, float(shown.results[name] or 0), float(best[name])) for name in times]
    parts = [part for part in parts if part.seconds or part.best_seconds]
    return tuple(sorted(parts, key=lambda part: -part.difference_seconds))


def _neighbours(space: Columns, own: Mapping[str, Scalar], wanted: Array) -> tuple[Neighbour, ...]:
    """Return the fastest wanted layout of each single change, the fastest first.

    A change of one degree may bring with it what depends on it alone: data parallelism, which
    takes the GPUs that are left; sequence parallelism, which needs tensor parallelism; ZeRO, which
    needs replicas; chunks, which divide a stage; panels and the placement in domains.
    """
    rows = np.flatnonzero(wanted)
    differs = {name: space[name][rows] != own[name] for name in own}
    free = [name for name in own if name not in FOLLOWING and not name.startswith("nvlink_")]
    changes = np.zeros(len(rows), dtype=np.int64)
    brought = {
        "uses_sequence_parallel": ("tensor_parallel",),
        "zero_stage": ("tensor_parallel", "context_parallel", "pipeline_parallel"),
        "virtual_pipeline": ("pipeline_parallel",),
        "summa_panels": ("tensor_parallel", "tensor_parallel_2", "strategy"),
    }
    counted: dict[str, Array] = {}
    for name in free:
        causes = [differs[cause] for cause in brought.get(name, ()) if cause in differs]
        follows = np.any(causes, axis=0) if causes else np.zeros(len(rows), dtype=bool)
        counted[name] = differs[name] & ~(follows & _is_forced(space, rows, name))
        changes += counted[name]
    found = []
    for name in free:
        single = np.flatnonzero((changes == 1) & counted[name])
        if len(single) == 0:
            continue
        row = int(rows[single[np.argmin(space["step_seconds"][rows[single]])]])
        layout = _row(space, row)
        found.append(
            Neighbour(
                name,
                own[name],
                layout[name],
                layout,
                float(space["step_seconds"][row]),
                float(space["memory_bytes"][row]),
            )
        )
    return tuple(sorted(found, key=lambda one: one.step_seconds))


def _is_forced(space: Columns, rows: Array, name: str) -> Array:
    """Return whether a layout's value is the only one that its other degrees leave."""
    if name == "uses_sequence_parallel":
        return np.asarray(space["tensor_parallel"][rows] == 1)
    if name == "zero_stage":
        replicas = space["data_parallel"][rows] * space["context_parallel"][rows]
        return np.asarray(replicas == 1)
    if name == "virtual_pipeline":
        return np.asarray(space["virtual_pipeline"][rows] == 1)
    return np.ones(len(rows), dtype=bool)


def broken_rules(
    estimator: Estimator,
    relation: Relation,
    given: Mapping[str, str],
    mends: Mends,
    catalog: Catalog,
    error: RefusedError,
) -> tuple[Broken, ...]:
    """Return every named predicate that a refused layout breaks, with the values that it read.

    Empty where the refusal is not that of a rule: then the input is faulty, not the layout.
    """
    frame = pl.DataFrame({name: [text] for name, text in given.items()} or {"": [""]})
    columns, faults = read_columns(frame, input_names(estimator, relation), relation)
    if any(fault.column != "row" for fault in faults):
        return ()
    try:
        resolved, _ = estimator.resolve(relation, columns, catalog, mends)
    except RefusedError:
        return ()
    values = {name: _scalar(column[0]) for name, column in resolved.items()}
    found = []
    for rule in _rules(estimator, mends):
        if any(values.get(need) is None for need in rule.needs) or np.all(rule.holds(values)):
            continue
        read = {need: values[need] for need in rule.needs}
        told = (rule.column, values.get(rule.column), rule.reason(values), rule.hint(values))
        found.append(Broken(rule.name, *told, values=read))
    told_by_rules = {(each.column, each.reason) for each in found}
    is_told = all((each.column, each.reason) in told_by_rules for each in error.refusals)
    return tuple(found) if is_told else ()


def _rules(estimator: Estimator, mends: Mends) -> tuple[Rule, ...]:
    if estimator.name == "training_step":
        return (*step_rules.PROBLEM_RULES, *step_rules.LAYOUT_RULES)
    return (
        *roofline_rules.PROBLEM_RULES,
        *roofline_rules.split_rules(mends),
        *roofline_rules.row_rules(mends),
        *roofline_rules.BATCH_RULES,
    )


def _scalar(value: Any) -> Scalar:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and np.isnan(plain):
        return None
    known: Scalar = plain
    return known
