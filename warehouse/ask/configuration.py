"""One configuration as a question gives it, completed as `plan` would: its batch, its domain.

`plan`, `why`, `explain`, `show` and `operations` have the same defaults, so that they speak of the
same step. `evaluate` and the formulas as published keep the defaults of their sources.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from estimators.batch_rule import default_batch
from estimators.contract import Catalog, Mends, RefusedError, Scalar
from warehouse.ask.defaults import definitions_of, sold_domain, with_stored_shape
from warehouse.evaluate.one import read_pairs, read_values, resolve_problem
from warehouse.evaluate.profiles import COLUMN as PROFILE
from warehouse.evaluate.profiles import profiled_catalog
from warehouse.launch.read import with_launch
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.contract import Relation
    from estimators.estimator import Estimator
    from warehouse.launch.read import LaunchFile
    from warehouse.options import ConfigurationOptions

TOKENS_PER_PARAMETER = 20
"""Tokens per active parameter of a run whose length is not given; source: arXiv 2203.15556, table
3. The rule of the batch takes their sixth root: ten times the tokens make it 1.5 times as large."""

_SPLITS = ("tensor_parallel", "tensor_parallel_2", "context_parallel", "pipeline_parallel")


@dataclass(frozen=True)
class LayoutQuery:
    """A configuration, with the defaults of its problem filled in.

    Attributes
    ----------
    given
        Inputs in texts, the filled ones among them.
    problem
        The problem's values on one GPU with one sequence; empty if they are refused.
    num_gpus
        None if it was not given: the product of the degrees.
    batch
        Sequences of a step; None if the number of microbatches or the estimator sets it. A default
        batch follows from `dataset_tokens`, rounded to a multiple of `multiple`.
    is_default_tokens
        Whether the tokens are `TOKENS_PER_PARAMETER` for each active parameter.
    shape_from
        The stored study that the model's shape is taken from; empty: none.
    launch
        The launch file that the configuration is read from.
    """

    given: Mapping[str, str]
    problem: Mapping[str, Scalar]
    num_gpus: int | None
    batch: int | None
    is_default_batch: bool = False
    dataset_tokens: float | None = None
    is_default_tokens: bool = False
    multiple: int | None = None
    shape_from: str = ""
    launch: LaunchFile | None = None

    @property
    def rule(self) -> str:
        """Where a default batch comes from, after its size; empty for a given one."""
        if not self.is_default_batch:
            return ""
        tokens = in_words("dataset_tokens", self.dataset_tokens or 0)
        words = f", as `plan` takes for {tokens}"
        if self.is_default_tokens:
            words += f" ({TOKENS_PER_PARAMETER} per active parameter, as no --tokens is given)"
        if self.multiple is not None:
            words += f", rounded to a multiple of {self.multiple:,}, which the layout takes at once"
        return f"{words}; --batch or --tokens gives another"


def read_configuration(
    database: Path,
    estimator: Estimator,
    pairs: Sequence[str],
    options: ConfigurationOptions,
    mends: Mends,
    relation: Relation | None = None,
) -> tuple[LayoutQuery, Mapping[str, str], Catalog]:
    """Return a completed configuration, the inputs that were given, and the catalog.

    `pairs` are texts such as ``num_gpus=64``, or words of a layout. The database may be missing.
    """
    relation = relation or estimator.relations[0]
    given = read_pairs(estimator, relation, [*options.pairs(), *pairs])
    launch = None
    if options.launch is not None:
        given, launch = with_launch(options.launch, given, estimator, relation)
    if options.profile is not None and PROFILE in estimator.problem_columns:
        given.setdefault(PROFILE, options.profile)
    texts, study = with_stored_shape(database, estimator, given, options.catalog)
    defined = definitions_of(database, texts, options.catalog)
    catalog = profiled_catalog(database, estimator, options.profile, defined)
    if relation is estimator.relations[0]:
        query = completed(estimator, texts, mends, catalog, options.tokens)
    else:
        query = LayoutQuery(texts, {}, None, None)
    return replace(query, shape_from=study, launch=launch), given, catalog


def completed(
    estimator: Estimator,
    given: Mapping[str, str],
    mends: Mends,
    catalog: Catalog,
    tokens: float | None = None,
) -> LayoutQuery:
    """Return a layout with the batch and the NVLink domain of a plan if they are not given.

    The default batch follows from the tokens of the run, by default `TOKENS_PER_PARAMETER` for each
    active parameter. Formulas as published keep the defaults of their source.
    """
    relation = estimator.relations[0]
    texts = dict(given)
    is_published = bool(estimator.mends) and not mends
    if not estimator.can_plan:
        return LayoutQuery(texts, {}, None, None)
    if "accelerator" in texts and "nvlink_size" not in texts and not is_published:
        domain = sold_domain(estimator, texts["accelerator"], catalog)
        texts |= {name: str(value) for name, value in domain.items()}
    # virtual_pipeline is a key of one estimator and a choice of another
    names = dict.fromkeys((*relation.keys, "num_gpus", "global_batch_size", "virtual_pipeline"))
    numbers = read_values(relation, {name: texts[name] for name in names if name in texts})
    num_gpus, batch = (_whole(numbers.get(n)) for n in ("num_gpus", "global_batch_size"))
    problem = _problem(estimator, texts, mends, catalog)
    query = LayoutQuery(texts, problem, num_gpus, batch)
    if batch is not None or "num_microbatches" in texts or not problem or is_published:
        return query
    _, active = estimator.layer_parameters(problem)
    if math.isnan(active):  # no layers to count: the estimator sets its own batch
        return query
    dataset_tokens = tokens or TOKENS_PER_PARAMETER * active
    by_rule = default_batch(active, int(problem["seq_len"] or 1), dataset_tokens)
    unit = _sequences_at_once(numbers, num_gpus)
    batch = max(round(by_rule / unit), 1) * unit
    return replace(
        query,
        given={**texts, "global_batch_size": str(batch)},
        batch=batch,
        is_default_batch=True,
        dataset_tokens=dataset_tokens,
        is_default_tokens=tokens is None,
        multiple=None if batch == by_rule else unit,
    )


def _problem(
    estimator: Estimator, texts: Mapping[str, str], mends: Mends, catalog: Catalog
) -> Mapping[str, Scalar]:
    """Return the problem's values on one GPU with one sequence; none if they are refused."""
    relation = estimator.relations[0]
    layout = {*relation.keys, *estimator.choice_columns, "num_microbatches"}
    of_problem = {name: text for name, text in texts.items() if name not in layout}
    on_one_gpu = {**of_problem, "num_gpus": "1", "global_batch_size": "1"}
    try:
        return resolve_problem(estimator, relation, on_one_gpu, mends, catalog)
    except RefusedError:
        return {}


def _sequences_at_once(layout: Mapping[str, Scalar], num_gpus: int | None) -> int:
    """Return the sequences of a microbatch on all replicas, times the stages if interleaved."""
    degrees = {name: _whole(layout.get(name)) or 1 for name in _SPLITS}
    replicas = _whole(layout.get("data_parallel"))
    if replicas is None:
        replicas = max((num_gpus or 1) // math.prod(degrees.values()), 1)
    unit = replicas * (_whole(layout.get("microbatch_size")) or 1)
    is_interleaved = (_whole(layout.get("virtual_pipeline")) or 1) > 1
    return unit * degrees["pipeline_parallel"] if is_interleaved else unit


def _whole(value: Scalar) -> int | None:
    return None if value is None else int(value)
