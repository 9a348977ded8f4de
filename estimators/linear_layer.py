"""One linear layer on a device: forward and backward pass, and the reduction of its gradients.

Source: davidsj/ml_par_sim, the linear-layer notebook (run_optimizer2.ipynb @f9ca636). Data
movement and arithmetic overlap wholly; degrees need divide nothing and may be real numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.contract import Array, Catalog, Columns, Mends, Relation, Values
from estimators.enumeration import Axis, split_over
from estimators.inputs import Inputs
from estimators.search import SearchedEstimator
from estimators.structure import Structure
from estimators.values import Flag, Real

DEVICE = ("flops_8bit_per_second", "memory_bytes_per_second", "network_bytes_per_second")
PROBLEM = (
    "accelerator",
    *DEVICE,
    "base_utilization",
    "input_size",
    "output_size",
    "bytes_per_element",
    "tokens",
    "num_gpus",
)
DEGREES = ("data_parallel", "tensor_parallel_input", "tensor_parallel_output")
OPTIONAL = ("accelerator", "num_gpus")
ALIASES = {
    "d_in": "input_size",
    "d_out": "output_size",
    "tp_in": "tensor_parallel_input",
    "tp_out": "tensor_parallel_output",
    "dp": "data_parallel",
    "bytewidth": "bytes_per_element",
    "b": "tokens",
    "flop_per_sec_8bit": "flops_8bit_per_second",
    "global_Bps": "memory_bytes_per_second",
    "net_Bps": "network_bytes_per_second",
    "base_util": "base_utilization",
}
"""The source's names."""

DEFAULTS = {"base_utilization": 0.8, "bytes_per_element": 2}

RELATION = Relation(
    "linear_layer",
    grain="one row per layout of a layer",
    keys=DEGREES,
    measures=("forward_backward_seconds", "gradient_reduction_seconds"),
    real=frozenset({"data_parallel"}),
)


@dataclass(frozen=True)
class Layer(Structure):
    """A layer with its batch, and a device."""

    flops_8bit_per_second: Real
    memory_bytes_per_second: Real
    network_bytes_per_second: Real
    base_utilization: Real
    input_size: Real
    output_size: Real
    bytes_per_element: Real
    tokens: Real


@dataclass(frozen=True)
class Degrees(Structure):
    """The degrees of parallelism, whole or real."""

    data_parallel: Real
    tensor_parallel_input: Real
    tensor_parallel_output: Real


def reduced_words(size: Real, ranks: Real, adds_up: Flag | bool = False) -> Real:
    """Return the words that a device moves in an all-reduce: ``3 (p - 1) size / p``.

    A device sends parts to the devices that sum them, receives the parts of the sum that it makes,
    and receives the other sums. The source does not count that it sends its sum. A network that
    `adds_up` leaves 2 of the 3.
    """
    return np.where(adds_up, 2.0, 3.0) * (ranks - 1) * size / ranks


def seconds(layer: Layer, degrees: Degrees) -> dict[str, Real]:
    """Return the seconds of forward and backward pass, and of the gradients' reduction.

    For n weights, i inputs, o outputs and t tokens on a device, w bytes an element and all-reduces
    of a words of activations and g words of gradients:

    ``passes = w x max(6 n t / (u rate), (4 n + i t + a) / (u memory rate), a / network rate)``,
    ``reduction = w x max(g / (u memory rate), g / network rate)``; u is the base utilization.
    """
    tokens = layer.tokens / degrees.data_parallel
    width_in = layer.input_size / degrees.tensor_parallel_input
    width_out = layer.output_size / degrees.tensor_parallel_output
    size, width = width_in * width_out, layer.bytes_per_element
    compute = layer.base_utilization * layer.flops_8bit_per_second
    memory = layer.base_utilization * layer.memory_bytes_per_second
    network = layer.network_bytes_per_second

    activations = reduced_words(width_out * tokens, degrees.tensor_parallel_input)
    activations = activations + reduced_words(width_in * tokens, degrees.tensor_parallel_output)
    moved = 4 * size + width_in * tokens + activations
    gradients = reduced_words(size, degrees.data_parallel)
    return {
        "forward_backward_seconds": np.maximum(
            6 * size * tokens * width / compute,
            np.maximum(moved * width / memory, activations * width / network),
        ),
        "gradient_reduction_seconds": np.maximum(
            gradients * width / memory, gradients * width / network
        ),
    }


class LinearLayer(SearchedEstimator):
    """A linear layer on a device: arithmetic, memory and network, whichever takes longest."""

    name = "linear_layer"
    version = 1
    title = "A linear layer on a device (davidsj/ml_par_sim, linear-layer notebook)"
    problem_columns = PROBLEM
    optional_columns = OPTIONAL
    system_columns = (*DEVICE, "base_utilization")
    required_in_space: Mapping[str, str] = MappingProxyType(
        {"num_gpus": "say how many GPUs the layer is spread over"}
    )
    aliases: Mapping[str, str] = MappingProxyType(ALIASES)
    relations = (RELATION,)

    def complete_problem(self, inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
        """Fill and check the layer, its batch and its device."""
        del mends  # there are none
        # An unknown device may be named if all of its attributes are given.
        incomplete = np.any([inputs.missing(name) for name in DEVICE], axis=0)
        names, looked_up = inputs["accelerator"].copy(), inputs["accelerator"].copy()
        looked_up[~incomplete] = None
        inputs.replace("accelerator", looked_up)
        inputs.look_up(catalog, "device", "accelerator", DEVICE)
        inputs.default("accelerator", names)
        for name, value in DEFAULTS.items():
            inputs.default(name, value)
        inputs.require(DEVICE, "name an `accelerator` of table device, or give its attributes")
        inputs.require(("input_size", "output_size", "tokens"), "give the layer and its batch")
        inputs.check(PROBLEM)
        inputs.refuse("tokens", np.equal(inputs["tokens"], 0), "must be more than 0")

    def complete_layout(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check the degrees; they may be real."""
        del relation, catalog, mends
        for name in DEGREES:
            inputs.default(name, 1)
        inputs.check(DEGREES)
        inputs.replace("num_gpus", whole_product(inputs, DEGREES))

    def axes(self, values: Values) -> tuple[Axis, ...]:
        """Return the three degrees, which split the GPUs."""
        return split_over(values["num_gpus"], DEGREES)

    def figures(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        wanted: Collection[str],
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        """Return both times."""
        del relation, mends, wanted, catalog
        return seconds(Layer.of(values), Degrees.of(layouts))


def whole_product(inputs: Inputs, degrees: tuple[str, ...]) -> Array:
    """Return the product of real degrees where all of them are whole numbers, NaN elsewhere."""
    product = np.ones(inputs.num_rows)
    is_whole = np.ones(inputs.num_rows, dtype=bool)
    with np.errstate(all="ignore"):
        for name in degrees:
            product = product * inputs[name]
            is_whole &= inputs[name] == np.floor(inputs[name])
    return np.where(is_whole & (product < 2**31), product, np.nan)


LINEAR_LAYER: SearchedEstimator = LinearLayer()
