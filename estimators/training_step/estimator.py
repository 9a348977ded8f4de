"""The training_step estimator under the project's contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array, Catalog, Columns, Mends, Refusal, Relation, Values
from estimators.inputs import Inputs
from estimators.training_step import inputs as given
from estimators.training_step import network
from estimators.training_step.counts import hardware_flops, model_flops, parameters
from estimators.training_step.layer import LAYER_KEYS, Layer, Size, layer_of, size_of
from estimators.training_step.memory import PARTS as MEMORY
from estimators.training_step.memory import held, memory_parts
from estimators.training_step.replicas import (
    exchange_seconds,
    exchanges,
    optimizer_seconds,
    tied_seconds,
)
from estimators.training_step.search import NAME, RELATION_NAME, SEARCH, VERSION
from estimators.training_step.spellings import SPELLINGS
from estimators.training_step.step import TIMES, passes, stage_share
from estimators.training_step.vocabulary import Vocabulary, vocabulary_of

SPLIT_KEYS = tuple(name for name in given.KEYS if name != "zero_stage")
RATES = ("mfu", "hfu", "tokens_per_second_per_gpu")

RELATION = Relation(
    RELATION_NAME,
    grain="one row per configuration: a layout of one problem",
    keys=given.KEYS,
    measures=("step_seconds", *(name for name in TIMES if name != "bubble_seconds"), *MEMORY),
    derived=("bubble_seconds", "memory_bytes", "fits_memory", *RATES),
    spellings=SPELLINGS,
)


class TrainingStep:
    """One optimizer step from first principles: arithmetic, traffic, networks, schedule, memory."""

    name = NAME
    version = VERSION
    title = "One training step from first principles, with constants measured elsewhere"
    mends: tuple[str, ...] = ()
    problem_columns = given.PROBLEM
    choice_columns = given.CHOICES
    input_columns = given.OTHER_INPUTS
    aliases: Mapping[str, str] = MappingProxyType({})
    neutral_choices: Mapping[str, Any] = MappingProxyType({})
    relations = (RELATION,)
    search = SEARCH

    def resolve(
        self, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        """Complete and check rows of input; see `contract.Estimator`."""
        inputs = Inputs(columns)
        given.resolve_problem(inputs, catalog, mends)
        given.resolve_layout(inputs, catalog)
        names = (*given.PROBLEM, *given.CHOICES, *relation.keys)
        return inputs.finish(names, given.OPTIONAL), inputs.refusals

    def estimate(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
    ) -> None:
        """Fill `out`; see `contract.Estimator`.

        Rows of a search that follow one another split layers alike: a layer is computed once
        for each run of them. The rows of a batch each have a layer of their own.
        """
        del mends  # there are none
        values = with_derived(values)
        is_cell = np.ndim(values["seq_len"]) == 0
        with np.errstate(all="ignore"):
            figures = _figures(values, layouts, is_cell=is_cell)
            if not out.keys().isdisjoint(relation.derived):
                figures |= _derived(figures, values)
        for name, column in out.items():
            if name in figures:
                figures[name].write(column)
            else:
                column[:] = layouts[name]


class Gathered(NamedTuple):
    """A column as a table and each row's place in it; no place: the table's rows are the rows."""

    table: Any
    place: Array | None

    @property
    def rows(self) -> Any:
        """One element a row."""
        return _taken(self.table, self.place)

    def write(self, column: Array) -> None:
        """Write the rows to `column`."""
        if self.place is None or np.ndim(self.table) == 0:
            column[:] = self.table
        elif self.table.dtype == column.dtype:
            self.table.take(self.place, out=column, mode="clip")
        else:
            column[:] = self.table.take(self.place, mode="clip")


def with_derived(values: Values) -> dict[str, Any]:
    """Return the values with what follows from them: numbers where texts or NULL may stand."""
    numbers = {
        name: _numbers(value)
        for name, value in values.items()
        if np.asarray(value).dtype.kind in "if"
    }
    flags = {name: np.asarray(values[name], dtype=bool)[()] for name in FLAGS}
    dense = values["num_dense_layers"] / _numbers(values["num_layers"])
    return {
        **values,
        **numbers,
        **flags,
        "vocab_size": np.nan_to_num(_numbers(values.get("vocab_size"))),
        "fp8_peak": _numbers(values.get("fp8_flops_per_second")),
        "is_fp8": np.equal(values["precision"], "fp8"),
        "sparse_share": np.where(np.greater(values["num_experts"], 1), 1 - dense, 0.0)[()],
    }


FLAGS = (
    *("uses_glu", "ties_embedding"),
    *("uses_dropout", "fuses_elementwise", "reduces_all_gradients"),
)
"""Values that are flags."""


def _numbers(value: Any) -> Any:
    """Return a number or a column of them in floating point, NaN where there is none."""
    return np.asarray(np.nan if value is None else value, dtype=np.float64)[()]


def _figures(values: Values, layouts: Columns, *, is_cell: bool) -> dict[str, Gathered]:
    """Return every stored result by name.

    A cell's rows are a product: layers (`LAYER_KEYS`), splits of them over stages and replicas,
    ZeRO stages. What depends on the first or the first two is computed for those alone.
    """
    split, to_split = _factored(layouts, SPLIT_KEYS, is_cell=is_cell)
    table, to_layer = _factored(split, LAYER_KEYS, is_cell=is_cell)
    size = size_of(values, table)
    layer = _gathered(layer_of(values, table), to_layer)
    words = Vocabulary(*(_taken(part, to_layer) for part in vocabulary_of(size, values, table)))
    size = Size(*(_taken(part, to_layer) for part in vars(size).values()))

    count = parameters(values)
    share = stage_share(values, split, count)
    parts, window = passes(layer, size, words, share, values, split)
    group = network.groups(values, split)
    stages = held(size, share, count, values, split)
    whole, tied = sum(parts.values()), tied_seconds(values, split)
    by_unit = {flag: exchanges(share, group, values, by_unit=flag) for flag in (False, True)}

    def sharded(zero: int) -> dict[str, Any]:
        exchange = exchange_seconds(zero, by_unit[zero == 3], values, window) + tied
        optimizer = optimizer_seconds(zero, share, values, split)
        return {
            "step_seconds": whole + exchange + optimizer,
            "data_comm_seconds": exchange,
            "optimizer_seconds": optimizer,
            **memory_parts(zero, stages, count, values, split),
        }

    figures = {name: Gathered(part, to_split) for name, part in parts.items()}
    return figures | _by_stage(layouts["zero_stage"], sharded, to_split)


def _derived(figures: Mapping[str, Gathered], values: Values) -> dict[str, Gathered]:
    """Return what views derive from the stored figures."""
    memory = sum(figures[name].rows for name in MEMORY) + values["framework_bytes"]
    spent = figures["step_seconds"].rows * values["num_gpus"]
    peak = np.where(values["is_fp8"], values["fp8_peak"], values["matrix_flops_per_second"])
    found = {
        "memory_bytes": memory,
        "fits_memory": memory <= values["hbm_bytes"],
        "mfu": model_flops(values) / (spent * peak),
        "hfu": hardware_flops(values) / (spent * peak),
        "tokens_per_second_per_gpu": values["global_batch_size"] * values["seq_len"] / spent,
    }
    return {name: Gathered(column, None) for name, column in found.items()}


def _factored(
    columns: Columns, names: Sequence[str], *, is_cell: bool
) -> tuple[dict[str, Array], Array | None]:
    """Return the distinct rows of successive rows that agree in `names`, and each row's.

    The rows of a batch have values of their own each: they stay as they are.
    """
    if not is_cell:
        return {name: columns[name].astype(np.float64) for name in names}, None
    changes = np.zeros(len(columns[names[0]]), dtype=bool)
    changes[:1] = True
    for name in names:
        changes[1:] |= columns[name][1:] != columns[name][:-1]
    starts = np.flatnonzero(changes)
    return {n: columns[n][starts].astype(np.float64) for n in names}, np.cumsum(changes) - 1


def _by_stage(
    zero: Array, figures: Callable[[int], dict[str, Any]], index: Array | None
) -> dict[str, Gathered]:
    """Return the figures of each row's own ZeRO stage."""
    stages = np.flatnonzero(np.bincount(zero, minlength=4)).tolist() or [0]
    found = [figures(stage) for stage in stages]
    size = np.size(found[0]["step_seconds"])
    rows = np.arange(size) if index is None else index
    ordinal = np.zeros(stages[-1] + 1, dtype=np.int64)
    ordinal[stages] = np.arange(len(stages)) * size
    place = ordinal.take(zero) + rows
    return {
        name: Gathered(np.concatenate([np.broadcast_to(each[name], size) for each in found]), place)
        for name in found[0]
    }


def _gathered(layer: Layer, index: Array | None) -> Layer:
    ways = (layer.forward, layer.backward, layer.recompute)
    forward, backward, recompute = (
        {name: _taken(part, index) for name, part in way.items()} for way in ways
    )
    return Layer(forward, backward, recompute)


def _taken(part: Any, index: Array | None) -> Any:
    return part if index is None or np.ndim(part) == 0 else np.take(part, index)


TRAINING_STEP = TrainingStep()
