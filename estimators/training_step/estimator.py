"""The training_step estimator under the project's contract."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from estimators.columns.shape import SHAPE_DETAILS
from estimators.contract import (
    PUBLISHED,
    Array,
    Catalog,
    Columns,
    Mends,
    RefusedError,
    Relation,
    Scalar,
    Values,
)
from estimators.decoder import (
    hardware_flops,
    layer_parameters,
    least_flops,
    model_flops,
    mtp_parameters,
    parameters,
)
from estimators.enumeration import Axis
from estimators.factored import Gathered, distinct, runs, stacked, take
from estimators.idle import idle_rules, without_idle_choices
from estimators.inputs import Inputs
from estimators.interval import fit_probability
from estimators.kernels.attention import MeasuredAttention
from estimators.kernels.products import FORMULA, PEAKS, MeasuredProducts
from estimators.rules import Rule
from estimators.search import SearchedEstimator
from estimators.timings import TimedKernels
from estimators.training_step import formats, network, power, shapes, timings
from estimators.training_step import inputs as given
from estimators.training_step.formulas import FORMULAS
from estimators.training_step.further import with_further_tokens
from estimators.training_step.kinds import average, kinds_of
from estimators.training_step.layer import LAYER_KEYS, layer_of, size_of
from estimators.training_step.memory.activations import Microbatch, microbatch_of
from estimators.training_step.memory.device import library_bytes, unused_bytes
from estimators.training_step.memory.stages import BESIDES, held, needs_most
from estimators.training_step.memory.stages import PARTS as MEMORY
from estimators.training_step.memory.state import gathered_bytes, sharded
from estimators.training_step.modules import flags_of
from estimators.training_step.pipelines import held_at, is_simple, ranks_at
from estimators.training_step.products import of_format
from estimators.training_step.replicas import (
    Exchange,
    Units,
    end_seconds,
    exchange_seconds,
    exchanges,
    optimizer_seconds,
    sharding_differs,
    unit_seconds,
    units,
)
from estimators.training_step.rules import (
    LAYER_RULES,
    LAYOUT_RULES,
    PROBLEM_RULES,
    SHARDING_NEEDS_REPLICAS,
    SPLIT_RULES,
)
from estimators.training_step.search import AXES, DEPENDS_ON
from estimators.training_step.shares import added_of, fullest, stage_shares
from estimators.training_step.spellings import SPELLINGS
from estimators.training_step.spent import Spent, spent_on
from estimators.training_step.step import TIMES, layer_joules, passes
from estimators.training_step.vocabulary import Vocabulary, vocabulary_of

NAME = "training_step"
SPLIT_KEYS = tuple(name for name in given.KEYS if name != "zero_stage")
SHARE_KEYS = (
    *("tensor_parallel", "context_parallel", "expert_tensor_parallel", "expert_parallel"),
    *("pipeline_parallel", "data_parallel"),
)
"""Layout columns that say which parameters a GPU has, and with whom it exchanges them."""

MEMORY_SUMS = ("allocated_bytes", "reserved_bytes", "memory_bytes", "fit_probability")
UTILIZATION = ("mfu", "hfu", "tokens_per_second_per_gpu")
POWER = ("relative_clock", "gpu_watts", "slot_watts")
_FITS = ("memory_bytes", "fits_memory")

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
    runs=(
        *LAYER_KEYS,
        *("gemm_seconds", "attention_seconds", "elementwise_seconds", "vocabulary_seconds"),
        *("recompute_seconds", "host_seconds", "accumulation_seconds"),
        *("tensor_comm_seconds", "context_comm_seconds", "expert_comm_seconds", "logits_bytes"),
        *("library_bytes", "layer_joules"),
    ),
    plain=("step_seconds", "data_comm_seconds", "optimizer_seconds"),
    spellings=SPELLINGS,
)


class TrainingStep(SearchedEstimator):
    """One optimizer step from first principles: arithmetic, traffic, networks, schedule, memory."""

    name = NAME
    version = 3
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
    independent = frozenset((*given.PROBLEM, *given.CHOICES)) - DEPENDS_ON
    relations = (RELATION,)
    time_parts = TIMES
    memory_parts = (*MEMORY, *BESIDES, "framework_bytes")
    formulas = FORMULAS
    rates = given.RATES
    constants = given.CONSTANTS
    shape_columns = given.SHAPE
    needed_shape = given.NEEDED
    searched_choices: Mapping[str, tuple[Scalar, ...]] = MappingProxyType(
        {"activation_recompute": ("none", "selective", "full")}
    )
    searched_by_default = searched_choices
    takes_published_steps = True

    @property
    def space_inputs(self) -> tuple[str, ...]:
        """Those of `input_columns` that a study may give: the search finds the microbatches."""
        return tuple(name for name in self.input_columns if name != "num_microbatches")

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of shape and layout."""
        del mends  # there are none
        return (*PROBLEM_RULES, *LAYOUT_RULES)

    def search_rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of layouts; a search has each layout once, in its simplest form."""
        del mends
        return (*LAYER_RULES, *SPLIT_RULES, SHARDING_NEEDS_REPLICAS, *idle_rules(self))

    def constant_places(
        self, catalog: Catalog, framework: Scalar, accelerator: Scalar
    ) -> tuple[str, ...]:
        """Return the suffixes of accelerator and framework, framework, accelerator, and none."""
        return given.places(catalog, framework, accelerator)

    def takes_range(self, constant: str, columns: Columns) -> Array:
        """Return the rows that read measured kernels, of the constants whose range is their spread.

        Rows that compute them by the formula have the ranges of its constants.
        """
        source = given.MEASURED_IN.get(constant)
        if source is None or source not in columns:
            return super().takes_range(constant, columns)
        return np.not_equal(columns[source], FORMULA)

    @property
    def timed_kernels(self) -> tuple[TimedKernels, ...]:
        """Files of products and of attention."""
        return timings.files(self._system)

    def _system(self, accelerator: str, catalog: Catalog) -> dict[str, Any]:
        """Return the values of a system alone, with its kernels."""
        columns: dict[str, Array] = {name: np.array([1024.0]) for name in given.NEEDED}
        columns["accelerator"] = np.array([accelerator], dtype=object)
        resolved, refusals = self.resolve(RELATION, columns, catalog, PUBLISHED)
        if refusals:
            raise RefusedError(replace(one, row=None) for one in refusals)
        values = with_derived({name: column[0] for name, column in resolved.items()})
        values["products"] = MeasuredProducts(catalog, values["kernels"])
        return values

    def layer_parameters(self, values: Values) -> tuple[float, float]:
        """Return the parameters of all layers, and the active ones."""
        return layer_parameters(values)

    def least_flops(self, values: Columns) -> Array:
        """Return the model FLOPs of a step with causal attention."""
        with np.errstate(all="ignore"):
            return np.asarray(least_flops(with_derived(values)))

    def peak_flops_per_second(self, values: Columns) -> Array:
        """Return the peak rate of a GPU in the precision of the products."""
        return np.asarray(_peak(with_derived(values)))

    def independent_share(
        self, relation: Relation, columns: Columns, mends: Mends, catalog: Catalog
    ) -> Array:
        """Return the root of the summed squares of the products' shares."""
        names = ("gemm_seconds", "vocabulary_seconds", "step_seconds")
        out = {name: np.empty(len(columns["seq_len"])) for name in names}
        self.estimate(relation, columns, columns, mends, out, catalog)
        with np.errstate(all="ignore"):
            share = shapes.independent_share(with_derived(columns), *(out[name] for name in names))
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
        without_idle_choices(self, inputs)

    def axes(self, values: Values) -> tuple[Axis, ...]:
        """Return the columns of a layout, layers slowest."""
        del values
        return AXES

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

        Rows of a search that follow one another split layers alike: a layer is computed once
        for each run of them. In a batch each row has its own layer.
        """
        del mends
        values = with_derived(values)
        values["products"] = MeasuredProducts(catalog, values["kernels"])
        # rates are those of heads as wide as queries and keys
        keys = values["qk_head_size"] + values["qk_rotary_size"]
        values["attention_rates"] = MeasuredAttention(catalog, {**values, "head_size": keys})
        is_cell = np.ndim(values["seq_len"]) == 0
        with np.errstate(all="ignore"):
            found = _figures(values, layouts, is_cell=is_cell)
            if not set(wanted).isdisjoint(_FITS):
                found |= _in_all(found, values)
            if not set(wanted).isdisjoint({*relation.derived} - {*_FITS}):
                found |= _derived(found, values, catalog)
        return found


def with_derived(values: Values) -> dict[str, Any]:
    """Return the values with derived ones: numbers in place of texts and NULL."""
    numbers = {
        name: _numbers(value)
        for name, value in values.items()
        if type(value) in _NUMBERS or np.asarray(value).dtype.kind in "if"
    }
    flags = {name: np.asarray(values[name], dtype=bool)[()] for name in FLAGS}
    dense = values["num_dense_layers"] / _numbers(values["num_layers"])
    return {
        **values,
        **numbers,
        **flags,
        "vocab_size": np.nan_to_num(_numbers(values.get("vocab_size"))),
        "again": flags_of(values.get("recompute_modules")),
        "fp8_peak": _numbers(values.get("fp8_flops_per_second")),
        "fp4_peak": _numbers(values.get("fp4_flops_per_second")),
        "low_format": formats.places(values),
        "recipe": formats.recipes(values),
        "sparse_share": np.where(np.greater(values["num_experts"], 1), 1 - dense, 0.0)[()],
    }


_NUMBERS = (float, int)
"""Types of most values of a cell."""

FLAGS = (
    *("uses_glu", "ties_embedding"),
    *(column.name for column in SHAPE_DETAILS if column.kind == "bool"),
    *("uses_dropout", "fuses_elementwise", "reduces_all_gradients"),
    *("waits_for_sharded_gradients", "keeps_gathered_weights", "aligns_exchanges"),
    *("splits_tensor_exchanges", "starts_with_own_shard", "uses_cuda_graphs"),
    "regathers_for_recompute",
    "recomputes_operations",
    "balances_stages",
    "overlaps_expert_comm",
)
"""Values that are flags."""


def _numbers(value: Any) -> Any:
    """Return a number or a column of them in floating point, NaN where there is none."""
    return np.asarray(np.nan if value is None else value, dtype=np.float64)[()]


def _figures(values: Values, layouts: Columns, *, is_cell: bool) -> dict[str, Gathered]:
    """Return every stored result by name.

    A cell's rows are a product: layers (`LAYER_KEYS`), splits of them over stages and replicas,
    ZeRO stages. Figures of a layer or of a split are computed once for each. Figures of a GPU's
    share of the parameters (`SHARE_KEYS`) do not depend on microbatch and chunks: they are computed
    once for each share. The rows of a batch differ in their values and are not factored.
    """
    to_split: Array | None = None
    to_layer: Array | None = None
    to_share: Array | None = None
    if is_cell:
        split, to_split = runs(layouts, SPLIT_KEYS)
        table, to_layer = runs(split, LAYER_KEYS)
        simple = is_simple(values, split)
        by_chunk = () if np.all(simple) else ("virtual_pipeline",)
        spread, to_share = distinct(split, (*SHARE_KEYS, *by_chunk))
        spread.setdefault("virtual_pipeline", np.ones_like(spread["pipeline_parallel"]))
    else:
        split = {name: layouts[name].astype(np.float64) for name in SPLIT_KEYS}
        table = spread = split
        simple = is_simple(values, split)
    size = size_of(values, table)
    kinds = kinds_of(values)
    spent = [spent_on(layer_of(kind.values, table), size, kind.values, table) for kind in kinds]
    an_average: Spent = average(kinds, spent)
    vocabulary = vocabulary_of(size, values, table, an_average.clock)
    vocabulary = with_further_tokens(vocabulary, kinds, spent, size, values, table)
    words = Vocabulary(*(take(part, to_layer) for part in vocabulary))
    layer = an_average.take(to_layer)
    stored = {
        kind.name: Microbatch(
            *(take(part, to_layer) for part in microbatch_of(size, kind.values, table))
        )
        for kind in kinds
    }

    counts = {kind.name: parameters(kind.values) for kind in kinds}
    if np.any(values["num_mtp_layers"]):
        # layers of the last kind, with a projection
        stored["mtp"], counts["mtp"] = stored[kinds[-1].name], mtp_parameters(values)
    shares = stage_shares(ranks_at(values, spread), counts, values, spread)
    most = fullest(shares)
    added = added_of(counts, most, values, spread).take(to_share)
    by_kind = {kinds[0].name: layer}
    if len(kinds) > 1:
        by_kind = {kind.name: each.take(to_layer) for kind, each in zip(kinds, spent, strict=True)}
    parts, window = passes(by_kind, layer, words, added, values, split, simple)
    group = network.groups(values, spread)
    whole, last_of_all = sum(parts.values()), take(end_seconds(values, spread), to_share)
    others = held(stored, held_at(values, split, simple), split)
    by_rank = {name: np.stack([each[name] for each in others]) for name in others[0]}

    in_buckets: dict[bool, Exchange] = {}
    may_differ = sharding_differs(values)

    def exchanged(zero: int) -> Any:
        if zero == 3:
            each = Units(*(take(part, to_share) for part in units(most, group, values)))
            return unit_seconds(each, values, window)
        is_sharded = zero > 0 and may_differ
        if is_sharded not in in_buckets:
            found = exchanges(most, group, values, is_sharded=is_sharded)
            in_buckets[is_sharded] = Exchange(*(take(part, to_share) for part in found))
        return exchange_seconds(zero, in_buckets[is_sharded], values, window)

    def at(zero: int) -> Stage:
        exchange = exchanged(zero) + last_of_all
        optimizer = optimizer_seconds(zero, most, values, spread)
        state = [
            {
                **sharded(zero, each, values, spread),
                "gathered_bytes": gathered_bytes(zero, counts, each, values, spread),
            }
            for each in shares
        ]
        rank, needed = needs_most(state, others, to_share)
        place = rank * np.size(rank) + np.arange(np.size(rank))
        of_fullest = {name: figure.take(place) for name, figure in by_rank.items()}
        besides = of_fullest.pop("besides")
        return Stage(
            {
                "step_seconds": whole + exchange + take(optimizer, to_share),
                "data_comm_seconds": exchange,
                "unused_bytes": unused_bytes(needed, besides, values),
                **of_fullest,
            },
            {
                "optimizer_seconds": [optimizer] * len(state),
                **{name: [each[name] for each in state] for name in state[0]},
            },
            rank,
        )

    parts["library_bytes"] = take(library_bytes(values, spread), to_share)
    parts["layer_joules"] = layer_joules(layer, words, values, split)
    parts["relative_clock"] = layer.clock
    figures = {name: Gathered(part, to_split) for name, part in parts.items()}
    return figures | _by_stage(layouts["zero_stage"], at, to_split, to_share, np.size(most.dense))


class Stage(NamedTuple):
    """Figures under one ZeRO stage.

    Attributes
    ----------
    by_split
        One element a split.
    by_share
        Of each rank that may need most memory, one element a share.
    rank
        For each split the place of the rank that does.
    """

    by_split: dict[str, Any]
    by_share: dict[str, list[Any]]
    rank: Array


def _in_all(figures: Mapping[str, Gathered], values: Values) -> dict[str, Gathered]:
    """Return the memory, its parts added in the order of the staging view, and whether it fits."""
    memory = _reserved(figures) + figures["library_bytes"].rows + values["framework_bytes"]
    found = {"memory_bytes": memory, "fits_memory": memory <= values["hbm_bytes"]}
    return {name: Gathered(column, None) for name, column in found.items()}


def _allocated(figures: Mapping[str, Gathered]) -> Any:
    return sum(figures[name].rows for name in MEMORY)


def _reserved(figures: Mapping[str, Gathered]) -> Any:
    return _allocated(figures) + figures["unused_bytes"].rows


def _derived(
    figures: Mapping[str, Gathered], values: Values, catalog: Catalog
) -> dict[str, Gathered]:
    """Return the other figures that views derive from the stored ones."""
    memory = _in_all(figures, values)["memory_bytes"].rows
    spent = figures["step_seconds"].rows * values["num_gpus"]
    peak = _peak(values)
    watts = power.gpu_watts({name: figures[name].rows for name in figures}, values)
    found = {
        "allocated_bytes": _allocated(figures),
        "reserved_bytes": _reserved(figures),
        "fit_probability": fit_probability(memory, values["hbm_bytes"], catalog),
        "mfu": model_flops(values) / (spent * peak),
        "hfu": hardware_flops(values) / (spent * peak),
        "tokens_per_second_per_gpu": values["global_batch_size"] * values["seq_len"] / spent,
        "gpu_watts": watts,
        "slot_watts": watts + values["host_watts"],
    }
    return {name: Gathered(column, None) for name, column in found.items()}


def _peak(values: Values) -> Any:
    return of_format(PEAKS, values)


def _by_stage(
    zero: Array,
    figures: Callable[[int], Stage],
    to_split: Array | None,
    to_share: Array | None,
    num_shares: int,
) -> dict[str, Gathered]:
    """Return the figures of each row's ZeRO stage, and of the stage that needs most memory."""
    stages = np.flatnonzero(np.bincount(zero, minlength=4)).tolist() or [0]
    found = [figures(stage) for stage in stages]
    size = len(found[0].rank)
    height = len(next(iter(found[0].by_share.values())))
    split = np.arange(size) if to_split is None else to_split
    share = np.arange(size) if to_share is None else to_share
    ordinal = np.zeros(stages[-1] + 1, dtype=np.int64)
    ordinal[stages] = np.arange(len(stages))
    place = ordinal.take(zero) * size + split
    of_share = [share + (height * n + each.rank) * num_shares for n, each in enumerate(found)]
    share_place = np.concatenate(of_share).take(place)
    by_split = {
        name: Gathered(stacked([each.by_split[name] for each in found], size), place)
        for name in found[0].by_split
    }
    return by_split | {
        name: Gathered(
            stacked([part for each in found for part in each.by_share[name]], num_shares),
            share_place,
        )
        for name in found[0].by_share
    }


TRAINING_STEP: SearchedEstimator = TrainingStep()
