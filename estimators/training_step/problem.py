"""The problem of a training step as structures: what each formula takes.

The structures divide the columns of a problem and the choices of a cell by subject. `Problem.of`
builds all of them in one place, from the values of a cell or the columns of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from estimators.decoder import Shape
from estimators.kernels.attention import MeasuredAttention
from estimators.kernels.gemms import MeasuredGemms
from estimators.kernels.loads import MeasuredLoads
from estimators.structure import Structure, equals
from estimators.training_step import recipes
from estimators.training_step.dispatch_rules import hides_dispatch
from estimators.training_step.domains import gpus_in_domain
from estimators.training_step.modules import flags_of, replaces_core
from estimators.training_step.recipes import Recipe

if TYPE_CHECKING:
    from estimators.contract import Catalog
    from estimators.values import Array, Flag, Place, Real, Text


class Measured(NamedTuple):
    """Measured rates of matmuls and attention, and loads of experts."""

    gemms: MeasuredGemms
    attention: MeasuredAttention
    loads: MeasuredLoads


@dataclass(frozen=True)
class System(Structure):
    """One GPU without its links."""

    matrix_flops_per_second: Real
    fp8_flops_per_second: Real
    fp4_flops_per_second: Real
    hbm_bytes_per_second: Real
    hbm_bytes: Real
    num_sms: Real
    launch_seconds: Real
    hbm_efficiency: Real
    transposes_operands: Flag
    unvectorized_seconds: Real

    @property
    def peaks(self) -> tuple[Real, ...]:
        """FLOP/s in each of `kernels.gemms.FORMATS`."""
        fp8 = self.fp8_flops_per_second
        return self.matrix_flops_per_second, fp8, fp8, self.fp4_flops_per_second

    @property
    def memory_rate(self) -> Real:
        """Bytes/s that a kernel reads and writes."""
        return self.hbm_bytes_per_second * self.hbm_efficiency


@dataclass(frozen=True)
class Network(Structure):
    """Both networks of a GPU, in its node and beyond: rates, efficiencies and latencies.

    `nvlink_size` are the GPUs that the run has in an NVLink domain (`domains.gpus_in_domain`).
    """

    nvlink_size: Real
    nvlink_bytes_per_second: Real
    network_bytes_per_second: Real
    nics_per_gpu: Real
    nvlink_efficiency: Real
    nvlink_latency_seconds: Real
    network_efficiency: Real
    network_latency_seconds: Real
    collective_seconds: Real
    pair_ring_share: Real
    all_reduce_ratio: Real
    alltoall_efficiency: Real
    flex_efficiency: Real
    flex_serial_fraction: Real
    flex_seconds: Real
    communication_sm_fraction: Real
    tensor_exchange_sm_fraction: Real
    overlap_slowdown: Real


@dataclass(frozen=True)
class Kernels(Structure):
    """Rates of matmuls and of attention, measured or by formula."""

    kernels: Text
    attention_program: Text
    gemm_efficiency: Real
    fp8_gemm_efficiency: Real
    fp4_gemm_efficiency: Real
    gemm_half_depth: Real
    small_tile_efficiency: Real
    product_rate_factor: Real
    fp8_product_rate_factor: Real
    fp4_product_rate_factor: Real
    input_gradient_rate_factor: Real
    weight_gradient_rate_factor: Real
    narrow_product_rate_factor: Real
    short_product_rate_factor: Real
    accumulating_product_ratio: Real
    attention_rate_factor: Real
    backward_attention_rate_factor: Real
    flash_forward_efficiency: Real
    flash_backward_efficiency: Real
    measured: Measured | None

    @property
    def efficiencies(self) -> tuple[Real, ...]:
        """Share of the peak that large matmuls reach, in each of `kernels.gemms.FORMATS`."""
        fp8 = self.fp8_gemm_efficiency
        return self.gemm_efficiency, fp8, fp8, self.fp4_gemm_efficiency

    @property
    def rate_factors(self) -> tuple[Real, ...]:
        """Rate over that of the measured kernels, in each of `kernels.gemms.FORMATS`."""
        fp8 = self.fp8_product_rate_factor
        return self.product_rate_factor, fp8, fp8, self.fp4_product_rate_factor

    @property
    def pass_factors(self) -> dict[str, Real]:
        """Rate of each of `gemm.PASSES` over that of the forward pass."""
        return {
            "forward": 1.0,
            "input_gradient": self.input_gradient_rate_factor,
            "weight_gradient": self.weight_gradient_rate_factor,
        }


@dataclass(frozen=True)
class Power(Structure):
    """Power of a board, and the clock under its limit."""

    power_limit_watts: Real
    gpu_idle_watts: Real
    gemm_joules_per_flop: Real
    fp8_gemm_joules_per_flop: Real
    fp4_gemm_joules_per_flop: Real
    attention_joules_per_flop: Real
    memory_joules_per_byte: Real
    clock_at_limit: Real
    power_exponent: Real
    transfer_watts: Real
    clock_spread: Real
    host_watts: Real

    @property
    def joules_per_flop(self) -> tuple[Real, ...]:
        """Energy of a FLOP at `clock_at_limit`, in each of `kernels.gemms.FORMATS`."""
        fp8 = self.fp8_gemm_joules_per_flop
        return self.gemm_joules_per_flop, fp8, fp8, self.fp4_gemm_joules_per_flop


@dataclass(frozen=True)
class Formats(Structure):
    """Number formats of the matmuls.

    Attributes
    ----------
    low_format
        Place of the format in few bits in `kernels.gemms.FORMATS`; 0: 16 bits.
    """

    precision: Text
    number_recipe: Text
    num_bf16_layers_start: Real
    num_bf16_layers_end: Real
    keeps_quantized_weights: Flag
    quantizes_output_layer: Flag
    low_format: Place


@dataclass(frozen=True)
class Overlap(Structure):
    """Transfers that a program hides behind arithmetic."""

    gradient_overlap_fraction: Real
    parameter_overlap_fraction: Real
    tensor_overlap_fraction: Real
    context_overlap_fraction: Real
    expert_overlap_fraction: Real
    pipeline_overlap_fraction: Real
    overlapped_expert_fraction: Real
    overlaps_shared_experts: Flag
    overlaps_expert_comm: Flag
    splits_tensor_exchanges: Flag
    starts_with_own_shard: Flag
    aligns_exchanges: Flag
    waits_for_sharded_gradients: Flag


@dataclass(frozen=True)
class Sharding(Structure):
    """Bytes of weights, gradients and optimizer state, and how ZeRO moves them."""

    stored_weight_bytes: Real
    stored_gradient_bytes: Real
    stored_optimizer_bytes: Real
    reduced_gradient_bytes: Real
    gathered_weight_bytes: Real
    optimizer_traffic_bytes: Real
    buffer_traffic_bytes: Real
    accumulation_traffic_bytes: Real
    exchange_buckets: Real
    reduces_all_gradients: Flag
    keeps_gathered_weights: Flag
    regathers_for_recompute: Flag
    shard_copy_seconds: Real


@dataclass(frozen=True)
class Program(Structure):
    """Kernels and recomputation of a training program.

    Attributes
    ----------
    again
        For each of `modules.MODULES` whether it is recomputed.
    """

    recompute_modules: Text
    recomputes_operations: Flag
    stops_recompute_early: Flag
    balances_stages: Flag
    uses_dropout: Flag
    fuses_elementwise: Flag
    gate_forward_bytes: Real
    gate_backward_bytes: Real
    forward_copy_bytes: Real
    backward_copy_bytes: Real
    exchange_copy_bytes: Real
    loss_traffic_bytes: Real
    embedding_gradient_bytes: Real
    unvectorized_gate_forward: Real
    unvectorized_gate_backward: Real
    unvectorized_copy_forward: Real
    unvectorized_copy_backward: Real
    unvectorized_loss: Real
    pipeline_hop_seconds: Real
    copies_grouped_queries: Flag
    again: Mapping[str, bool | Flag]

    @property
    def repeats_modules(self) -> bool:
        """Whether any part is recomputed by `recompute_modules`."""
        return any(map(np.any, self.again.values()))

    @property
    def replaces_core(self) -> Flag:
        """Whether selective recomputation has parts that the core of attention is not one of."""
        replaces: Flag = replaces_core(self.again)
        return replaces


@dataclass(frozen=True)
class Kept(Structure):
    """Bytes that a program keeps of its tensors, and that libraries take."""

    stored_gate_bytes: Real
    stored_norm_bytes: Real
    stored_routed_bytes: Real
    stored_logit_bytes: Real
    reserved_logit_bytes: Real
    exchange_buffer_bytes: Real
    waiting_exchange_bytes: Real
    fragmentation: Real
    framework_bytes: Real
    communicator_bytes: Real
    graph_bytes: Real


@dataclass(frozen=True)
class Host(Structure):
    """Launches, and the time that the host takes for them."""

    host_seconds_per_layer: Real
    host_seconds_per_launch: Real
    forward_launches: Real
    backward_launches: Real
    vocabulary_launches: Real
    optimizer_launches: Real
    uses_cuda_graphs: Flag
    captures_attention: Flag
    captures_whole_steps: Flag


@dataclass(frozen=True)
class Experts(Structure):
    """Dispatch of tokens to experts."""

    dispatcher: Text
    dispatch_element_bytes: Real
    expert_load_ratio: Real
    expert_routing: Text


@dataclass(frozen=True)
class Run(Structure):
    """Model, machine and program by name; GPUs and batch."""

    model: Text
    accelerator: Text
    framework: Text
    framework_release: Real
    profile: Text
    num_gpus: Real
    global_batch_size: Real


@dataclass(frozen=True)
class Choices(Structure):
    """Choices of a cell."""

    attention: Text
    activation_recompute: Text
    schedule: Text
    pipeline_layout: Text
    layers_in_first_stage: Real
    layers_in_last_stage: Real
    counts_embedding: Flag
    counts_loss: Flag
    microbatch_group: Real


@dataclass(frozen=True, eq=False)
class Layout(Structure):
    """Degrees of parallelism, microbatch and ZeRO stage, one element a row of a table.

    A table may lack a degree on which its figures do not depend: it is NaN there.
    """

    tensor_parallel: Real
    context_parallel: Real
    expert_tensor_parallel: Real
    expert_parallel: Real
    uses_sequence_parallel: Flag
    microbatch_size: Real
    pipeline_parallel: Real
    virtual_pipeline: Real
    data_parallel: Real
    zero_stage: Real


@dataclass(frozen=True, eq=False)
class Problem:
    """One problem with the choices of a cell, or one a row of a batch."""

    shape: Shape
    system: System
    network: Network
    kernels: Kernels
    power: Power
    formats: Formats
    recipe: Recipe
    overlap: Overlap
    sharding: Sharding
    program: Program
    kept: Kept
    host: Host
    experts: Experts
    run: Run
    choices: Choices

    @classmethod
    def of(cls, columns: Mapping[str, Any], catalog: Catalog | None = None) -> Self:
        """Return the structures of a cell's values, or of a batch's columns.

        Without a catalog the problem has no measured kernels: its FLOPs and rates are known.
        """
        shape = Shape.of(columns)
        measured = None
        if catalog is not None:
            # table `attention_rate` has rates by the width of queries and keys
            keys = shape.qk_head_size + shape.qk_rotary_size
            measured = Measured(
                MeasuredGemms(catalog, columns["kernels"]),
                MeasuredAttention(
                    catalog,
                    *(columns["kernels"], columns.get("accelerator")),
                    *(columns.get("attention_program"), keys),
                ),
                MeasuredLoads(catalog),
            )
        run, links = Run.of(columns), Network.of(columns)
        links = replace(links, nvlink_size=gpus_in_domain(run.num_gpus, links.nvlink_size))
        overlap = replace(Overlap.of(columns), overlaps_expert_comm=hides_dispatch(columns)[()])
        return cls(
            shape=shape,
            system=System.of(columns),
            network=links,
            kernels=Kernels.of(columns, measured=measured),
            power=Power.of(columns),
            formats=Formats.of(columns, low_format=recipes.format_places(columns)),
            recipe=Recipe.named(columns["number_recipe"]),
            overlap=overlap,
            sharding=Sharding.of(columns),
            program=Program.of(columns, again=flags_of(columns.get("recompute_modules"))),
            kept=Kept.of(columns),
            host=Host.of(columns),
            experts=Experts.of(columns),
            run=run,
            choices=Choices.of(columns),
        )

    def with_sparse_share(self, share: float) -> Self:
        """Return the problem of a model all of whose layers are dense (0) or mixtures (1)."""
        return replace(self, shape=replace(self.shape, sparse_share=np.float64(share)))

    @property
    def drops_core(self) -> Flag:
        """Whether selective recomputation drops what the core of attention makes."""
        is_selective = equals(self.choices.activation_recompute, "selective")
        drops: Flag = is_selective & ~self.program.replaces_core
        return drops

    def with_recompute(self, recompute: Text) -> Self:
        """Return the problem under another `activation_recompute`."""
        return replace(self, choices=replace(self.choices, activation_recompute=recompute))

    def take(self, rows: Array) -> Self:
        """Return some rows of a batch."""
        return replace(
            self, **{part.name: getattr(self, part.name).take(rows) for part in fields(self)}
        )
