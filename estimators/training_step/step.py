"""One step of a pipeline of stages, put together from layers, vocabulary and replicas.

The slowest stage works on every microbatch; filling and draining the pipeline takes the others
once, divided by the interleaved chunks of a stage (arXiv 2104.04473 section 2.2):
``step = microbatches * slowest + (all stages - slowest) / chunks + transfers + replicas``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from estimators.training_step import network
from estimators.training_step.pace import paced_by
from estimators.training_step.pipelines import microbatches_of, over_kinds
from estimators.training_step.replicas import Window
from estimators.training_step.spent import Spent
from estimators.training_step.vocabulary import Vocabulary

if TYPE_CHECKING:
    from estimators.training_step.problem import Layout, Problem
    from estimators.training_step.shares import Added
    from estimators.values import Flag, Real

TIMES = (
    *("gemm_seconds", "attention_seconds", "elementwise_seconds", "vocabulary_seconds"),
    *("recompute_seconds", "host_seconds", "accumulation_seconds", "optimizer_seconds"),
    *("tensor_comm_seconds", "context_comm_seconds", "expert_comm_seconds"),
    *("pipeline_comm_seconds", "data_comm_seconds", "bubble_seconds"),
)
"""Parts of a step: they add up to it."""


def passes(
    kinds: Mapping[str, Spent],
    layer: Spent,
    words: Vocabulary,
    added: Added,
    problem: Problem,
    layout: Layout,
    simple: Flag,
) -> tuple[dict[str, Real], Window]:
    """Return the seconds of a step by part, and the window in which transfers can hide.

    The optimizer and the exchange between replicas are not among the parts: module `sharding` adds
    them.

    Parameters
    ----------
    kinds, layer, words
        Seconds of one microbatch, one element a row of `layout`: of a layer of each kind, of the
        average layer, and of the vocabulary.
    simple
        See `pipelines.is_simple`.
    """
    microbatches = microbatches_of(problem.run, layout)
    paced = paced_by(kinds, layer, words, added, problem, layout, simple)
    pace = paced.pace
    # layers that predict further tokens have their time in that of the output layer
    layers = {name: count for name, count in pace.layers.items() if name in kinds}
    parts = {
        name: microbatches
        * over_kinds(layers, {kind: spent.parts[name] for kind, spent in kinds.items()})
        for name in layer.parts
    }
    has_output, has_embedding = microbatches * pace.output, microbatches * pace.embedding
    parts["vocabulary_seconds"] = has_output * words.output + has_embedding * words.embedding
    parts["tensor_comm_seconds"] = (
        parts["tensor_comm_seconds"]
        + has_output * words.output_comm
        + has_embedding * words.embedding_comm
    )
    parts["host_seconds"] = np.maximum(parts["host_seconds"] - microbatches * paced.saved, 0.0)
    parts["accumulation_seconds"] = microbatches * paced.added
    parts["bubble_seconds"] = pace.bubble
    parts["pipeline_comm_seconds"] = _transfers(layer, problem, layout)
    return parts, Window(
        paced.forward,
        paced.backward,
        layer.forward,
        layer.seconds - layer.forward,
        microbatches,
        layout.pipeline_parallel,
        layout.virtual_pipeline,
    )


def layer_joules(layer: Spent, words: Vocabulary, problem: Problem, layout: Layout) -> Real:
    """Return the joules above idle that an average GPU spends on layers and vocabulary in a step.

    ``microbatches x (layers x joules of a layer + joules of the vocabulary) / stages``.

    Parameters
    ----------
    layer, words
        Figures of one microbatch, one element a row of `layout`.
    """
    microbatches = microbatches_of(problem.run, layout)
    of_all: Real = problem.shape.num_layers * layer.joules + words.joules
    return microbatches * of_all / layout.pipeline_parallel


def _transfers(layer: Spent, problem: Problem, layout: Layout) -> Real:
    """Return the seconds of a step for activations and their gradients between stages.

    Each rank of a tensor-parallel group sends its share of the tokens. A stage that needs all
    tokens gathers them in its node (arXiv 2104.04473 section 4.1). Further messages of a program,
    and waits of its host, take `pipeline_hop_seconds`.

    With m microbatches, v chunks, p stages and the hidden share o (0 for one chunk) a step has
    ``v m (1 - o) + p - 1 + o p (v - 1)`` transfers each way.
    """
    microbatches = microbatches_of(problem.run, layout)
    group = network.pipeline_of(problem, layout)
    once = network.neighbour_seconds(group, layer.sent_bytes, problem) + layer.gathering
    once = once + problem.program.pipeline_hop_seconds
    stages, chunks = layout.pipeline_parallel, layout.virtual_pipeline
    # a stage with several chunks waits only while the pipeline fills and drains
    overlap = np.where(chunks > 1, problem.overlap.pipeline_overlap_fraction, 0.0)
    steady = chunks * microbatches * (1 - overlap)
    ends = stages - 1 + overlap * stages * (chunks - 1)
    return np.where(stages > 1, 2 * once * (steady + ends), 0.0)
