"""What `why` takes where nothing is given: the batch of a plan, the domain that is sold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from estimators.contract import RefusedError, Scalar
from warehouse.ask.defaults import default_batch, layer_parameters, sold_domain
from warehouse.evaluate.one import read_values, show_configuration

if TYPE_CHECKING:
    from estimators.contract import Catalog, Estimator, Mends

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
