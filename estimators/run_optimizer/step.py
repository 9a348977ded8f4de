"""Model, batch and time of a step at given degrees, whole or real.

Source: davidsj/ml_par_sim run_optimizer2.ipynb @2a07c41. A run of C FLOPs has sqrt(C / 120)
parameters and 20 tokens a parameter (6 FLOPs a parameter and token; arXiv 2203.15556). Layers and
batch grow with the sixth root of C.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.batch_rule import batch_tokens, growth
from estimators.linear_layer import reduced_words
from estimators.structure import Structure

if TYPE_CHECKING:
    from estimators.values import Flag, Real

REFERENCE_LAYERS = 120.0
"""Layers of a run of 1e25 FLOPs."""

TOKENS_PER_PARAMETER = 20.0


def num_layers(training_flops: Real) -> Real:
    """Return the layers of the compute-optimal model of a run."""
    return REFERENCE_LAYERS * growth(training_flops)


class Model(NamedTuple):
    """The compute-optimal model of a run."""

    parameters: Real
    tokens: Real
    batch_tokens: Real
    num_layers: Real
    hidden_size: Real


@dataclass(frozen=True)
class Problem(Structure):
    """The FLOPs of a run, and a device."""

    training_flops: Real
    internal_ratio: Real
    bytes_per_element: Real
    flops_8bit_per_second: Real
    memory_bytes_per_second: Real
    network_bytes_per_second: Real
    base_utilization: Real
    reduces_in_network: Flag

    @cached_property
    def model(self) -> Model:
        """The compute-optimal model."""
        parameters = np.sqrt(self.training_flops / (6 * TOKENS_PER_PARAMETER))
        layers = num_layers(self.training_flops)
        return Model(
            parameters=parameters,
            tokens=TOKENS_PER_PARAMETER * parameters,
            batch_tokens=batch_tokens(self.training_flops),
            num_layers=layers,
            hidden_size=np.sqrt(parameters / (2 * self.internal_ratio * layers)),
        )


@dataclass(frozen=True)
class Degrees(Structure):
    """The degrees of parallelism, whole or real."""

    pipeline_parallel: Real
    data_parallel: Real
    tensor_parallel: Real
    tensor_parallel_external: Real

    @property
    def num_devices(self) -> Real:
        """Product of the degrees."""
        whole = self.pipeline_parallel * self.data_parallel * self.tensor_parallel
        return whole * self.tensor_parallel_external


@dataclass(frozen=True)
class Seconds:
    """Seconds of each resource."""

    compute: Real
    memory: Real
    network: Real

    def __add__(self, other: Seconds) -> Seconds:
        """Return the sum for each resource."""
        return Seconds(
            self.compute + other.compute, self.memory + other.memory, self.network + other.network
        )

    def times(self, number: Real) -> Seconds:
        """Return the seconds of several repetitions."""
        return Seconds(number * self.compute, number * self.memory, number * self.network)

    @property
    def longest(self) -> Real:
        """Seconds of the resource that takes longest."""
        longest: Real = np.maximum(np.maximum(self.compute, self.memory), self.network)
        return longest


def layer_seconds(problem: Problem, degrees: Degrees) -> tuple[Seconds, Seconds]:
    """Return the seconds of a layer for a batch in one microbatch, and of its gradients.

    Each of m microbatches takes an m-th of the arithmetic and of the communication, and the whole
    memory traffic, which is that of the weights.
    """
    model, ratio, width = problem.model, problem.internal_ratio, problem.bytes_per_element
    inner, outer = degrees.tensor_parallel, degrees.tensor_parallel_external
    size = ratio * model.hidden_size**2 / (inner * outer)
    tokens = model.batch_tokens / degrees.data_parallel
    compute = problem.base_utilization * problem.flops_8bit_per_second
    memory = problem.base_utilization * problem.memory_bytes_per_second
    network = problem.network_bytes_per_second
    adds_up = problem.reduces_in_network
    activations = reduced_words(ratio * model.hidden_size * tokens / inner, outer, adds_up)
    activations = activations + reduced_words(model.hidden_size * tokens / outer, inner, adds_up)
    gradients = reduced_words(size, degrees.data_parallel, adds_up)
    return (
        Seconds(
            compute=6 * size * tokens * width / compute,
            memory=4 * size * width / memory,
            network=activations * width / network,
        ),
        Seconds(0.0, memory=gradients * width / memory, network=gradients * width / network),
    )


def phase_seconds(problem: Problem, degrees: Degrees, microbatches: Real) -> dict[str, Seconds]:
    """Return the seconds of the phases of a step, which follow one another.

    With a layer's seconds s of a microbatch and g of its gradients, K layers both ways on a stage
    (2 L / p), m microbatches and p stages: boundary ``s + g``; sustained_dp ``(K - 1) (m s + g)``;
    sustained_no_dp ``(m - 1) s``; bubble ``2 (p - 1) s``.
    """
    batch, gradients = layer_seconds(problem, degrees)
    layer = Seconds(batch.compute / microbatches, batch.memory, batch.network / microbatches)
    stages = degrees.pipeline_parallel
    others = 2 * problem.model.num_layers / stages - 1
    return {
        "boundary": layer + gradients,
        "sustained_dp": (layer.times(microbatches) + gradients).times(others),
        "sustained_no_dp": layer.times(microbatches - 1),
        "bubble": layer.times(2 * (stages - 1)),
    }


def step_seconds(phases: dict[str, Seconds]) -> Real:
    """Return the seconds of a step: each phase takes as long as its slowest resource."""
    return sum(phase.longest for phase in phases.values())


def figures(problem: Problem, degrees: Degrees, microbatches: Real) -> dict[str, Real]:
    """Return every result by its column's name."""
    model = problem.model
    phases = phase_seconds(problem, degrees, microbatches)
    step = step_seconds(phases)
    training = model.tokens / model.batch_tokens * step
    peak = problem.flops_8bit_per_second / problem.bytes_per_element
    by_phase = {
        f"{name}_{resource}_seconds": seconds
        for name, phase in phases.items()
        for resource, seconds in vars(phase).items()
    }
    return {
        **model._asdict(),
        **by_phase,
        "step_seconds": step,
        "num_gpus": degrees.num_devices,
        "training_seconds": training,
        "utilization": problem.training_flops / (training * degrees.num_devices * peak),
    }
