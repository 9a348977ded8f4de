"""Clock and power of a GPU during a training step.

Products of random numbers draw more than the power limit at full clock. Firmware then lowers the
clock until the mean power of the board is the limit. The time over which it takes the mean is
shorter than the bubble of a pipeline (assumed). So the balance is that of one layer and microbatch,
forward, backward and recomputed, or that of the output layer, with the transfers that it waits for:

``limit x seconds(x) = idle x seconds(x) + joules(x)``, with the clock x relative to the full one,
``seconds(x) = arithmetic / x + others(x)``,
``joules(x) = (x / clock_at_limit) ^ (power_exponent - 1) x sum over FLOPs of joules_per_flop +
memory_joules_per_byte x bytes + transfer_watts x seconds of exposed transfers(x)``.

Power grows as the frequency times the square of the voltage, and voltage about as frequency: with
the third power of the clock, so that energy per FLOP grows with the second. `joules_per_flop`
holds at `clock_at_limit`, the clock at which large products were measured to meet the limit
(table `sustained_product`). Times of products and attention are those of short runs, at full clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from estimators.factored import distinct
from estimators.structure import equals
from estimators.training_step.attention import backward_products, flash_flops
from estimators.training_step.gemm import of_format
from estimators.training_step.matmuls import attention_flops

if TYPE_CHECKING:
    from estimators.training_step.problem import Layout, Power, Problem
    from estimators.training_step.sizes import Size
    from estimators.values import Place, Real

T = TypeVar("T")
"""Work whose seconds depend on the clock."""

_STEPS = 16
"""Most steps of Newton's method. The balance is convex, so each step from above its root comes
nearer."""

_MOST_SECANTS, _CLOSE = 8, 3e-9
"""Most secants, and the error of a clock that ends them and the steps of Newton's method."""

_STEEPEST = 0.9
"""Most that the clock of the balance can change with the clock of the waits. If arithmetic that is
P seconds long hides transfers throughout, it is 1 / power_exponent."""

_LEAST_ROOM = 0.1
"""Least share of a power limit that is left for work. Assumed; the range of the idle power may
reach above a low limit."""

_LEAST_PACE = 0.1
"""Least pace of the slowest GPU. Assumed; a wide spread of clocks would make it negative."""


class Flops(NamedTuple):
    """FLOPs of one forward pass of a layer on one GPU: its matmuls, and its attention."""

    matmuls: Real
    attention: Real
    backward_attention: Real
    """FLOPs of the backward pass of attention over those of the forward pass."""


class Load(NamedTuple):
    """The seconds and joules of a layer and microbatch at full clock.

    Attributes
    ----------
    arithmetic
        Seconds that grow as the clock falls: matmuls and the arithmetic of attention.
    others
        Seconds that do not: memory traffic, transfers that are waited for, waits for the host.
    arithmetic_joules
        Energy of the arithmetic above idle, at `clock_at_limit`.
    other_joules
        Energy of memory traffic and transfers above idle, at any clock.
    """

    arithmetic: Real
    others: Real
    arithmetic_joules: Real
    other_joules: Real


def flops_of(size: Size, problem: Problem, layout: Layout) -> Flops:
    """Return the FLOPs of a forward pass."""
    sparse, up = problem.shape.sparse_share, size.gates + 1.0
    dense = (1.0 - sparse) * size.tokens * size.hidden * size.ffn * up
    shared = sparse * size.tokens * size.hidden * size.shared_ffn * up
    experts = sparse * size.experts * size.expert_tokens * size.hidden * size.expert_ffn * up
    router = sparse * size.rows * size.hidden * problem.shape.num_experts
    is_flash = equals(problem.choices.attention, "flash")
    square = 2.0 * size.tokens * problem.shape.seq_len * (size.query + size.result)
    return Flops(
        attention_flops(size) + 2.0 * (dense + shared + experts + router),
        np.where(is_flash, flash_flops(size, problem.shape, layout), square),
        np.where(is_flash, backward_products(problem.shape), 2.0),
    )


class Balance(NamedTuple, Generic[T]):
    """Work at the clock that the power limit admits.

    Attributes
    ----------
    work
        The work of the slowest GPU, at its clock.
    clock
        Clock of the slowest GPU, relative to the full one.
    joules
        Energy above idle of an average GPU, in joules.
    """

    work: T
    clock: Real
    joules: Real


def balance_of(
    work: T,
    load: Load,
    at: Callable[[Real], tuple[T, Load]],
    power: Power,
    num_gpus: Real,
) -> Balance[T]:
    """Return the work at the clock at which a GPU's mean power is the limit.

    The clock is 1 where the limit is not reached, or not known. The slowest of n GPUs sets the pace
    of a step, and the others wait for it. Its clock lies ``clock_spread x extreme_of(n)`` below the
    mean.

    Slower arithmetic hides more transfers, so the balance is that of the waits at the clock itself.
    Secants find it: seconds and joules are linear in the seconds of the arithmetic between the
    points at which a transfer is hidden.

    Parameters
    ----------
    work, load
        The work at full clock, and its load.
    at
        Makes the work, and its load, at a clock.
    """
    pace = np.maximum(1.0 - power.clock_spread * extreme_of(num_gpus), _LEAST_PACE)
    clock: Real = 1.0
    slope: Real = 0.0
    found = _clock(load, pace, power)
    for _ in range(_MOST_SECANTS):
        gap = clock - found
        if not np.any(np.abs(gap) > _CLOSE):
            break
        step = gap / (1.0 - slope)
        work, load = at(clock - step)
        before, found = found, _clock(load, pace, power, found)
        slope = np.where(step == 0, 0.0, (before - found) / np.where(step == 0, 1.0, step))
        clock, slope = clock - step, np.minimum(np.maximum(slope, 0.0), _STEEPEST)
    middle = found if not np.any(pace < 1.0) else _clock(load, 1.0, power, found)
    return Balance(work, clock, joules_of(load, middle, power))


def _clock(load: Load, pace: Real, power: Power, start: Real = 1.0) -> Real:
    """Return the clock of a GPU that is `pace` times as fast as an average one at the same power.

    Its arithmetic takes ``pace ^ -power_exponent`` times the energy. Power grows with the clock to
    that exponent, so with arithmetic alone the clock is `pace` times that of the average GPU. Other
    work draws at most the limit, in unchanged time: arithmetic does not slow down to make room for
    it. Newton's method begins at a clock `start`.
    """
    limit, exponent = power.power_limit_watts, power.power_exponent
    room = np.maximum(limit - power.gpu_idle_watts, _LEAST_ROOM * limit)
    # the energy at full clock
    joules = load.arithmetic_joules / (power.clock_at_limit ** (exponent - 1.0) * pace**exponent)
    rest = np.minimum(load.other_joules - room * load.others, 0.0)
    exceeds = joules + rest > room * load.arithmetic
    clock = np.where(exceeds, start, 1.0)
    if not np.any(exceeds):
        return clock
    for _ in range(_STEPS):
        grown = joules * clock ** (exponent - 1.0)
        above = grown * clock + rest * clock - room * load.arithmetic
        step = np.where(exceeds, above / (exponent * grown + rest), 0.0)
        clock = clock - step
        if np.all(np.abs(step) < _CLOSE):
            break
    return clock


def loop_clock(joules: Real, seconds: Real, power: Power) -> Real:
    """Return the clock of a kernel that was timed in a loop long enough to meet the power limit.

    It is relative to the full one: 1 where the limit is not reached, or not known.

    The balance of the module for one kernel, whose seconds were measured at the clock that is
    sought:
    ``limit x seconds = idle x seconds + joules x (clock / clock_at_limit) ^ (power_exponent - 1)``.

    Parameters
    ----------
    joules
        Energy of the kernel's arithmetic above idle, at `clock_at_limit`.
    seconds
        Measured seconds of the kernel.
    """
    room = (power.power_limit_watts - power.gpu_idle_watts) * seconds
    clock = power.clock_at_limit * (room / joules) ** (1 / (power.power_exponent - 1.0))
    return np.where(np.isnan(clock), 1.0, np.minimum(clock, 1.0))


def joules_of(load: Load, clock: Real, power: Power) -> Real:
    """Return the joules above idle of a layer and microbatch on a GPU of this clock.

    Transfers and streams take as long as at full clock. A GPU that waits for the slowest one idles.
    """
    return load.other_joules + load.arithmetic_joules * _energy(clock, power)


def gemm_joules(flops: Real, problem: Problem, low_format: Place | None = None) -> Real:
    """Return the energy of GEMMs in a format, that of `precision` by default.

    It holds at `clock_at_limit`.
    """
    number_format = problem.formats.low_format if low_format is None else low_format
    return of_format(problem.power.joules_per_flop, number_format) * flops


def memory_watts(problem: Problem) -> Real:
    """Return the power above idle of a GPU that streams through its memory."""
    return problem.power.memory_joules_per_byte * problem.system.memory_rate


def gpu_watts(step: Mapping[str, Real], problem: Problem) -> Real:
    """Return the mean power of a board during a step, in watts; NaN where its limit is not known.

    ``idle + joules above idle / step_seconds``, at most the limit. The board idles in the bubble of
    the pipeline and while the host launches.

    Parameters
    ----------
    step
        `layer_joules` and the parts of a step, of the GPU of an average stage.
    """
    joules = (
        step["layer_joules"]
        + memory_watts(problem) * (step["accumulation_seconds"] + step["optimizer_seconds"])
        + problem.power.transfer_watts * (step["pipeline_comm_seconds"] + step["data_comm_seconds"])
    )
    watts = problem.power.gpu_idle_watts + joules / step["step_seconds"]
    limit = problem.power.power_limit_watts
    return np.where(np.isnan(limit), np.nan, np.minimum(watts, limit))


def extreme_of(count: Real) -> Real:
    """Return the mean of the largest of `count` normal numbers, in standard deviations.

    With the distribution P of one, that of the largest is ``P^n``, and its mean
    ``integral over x > 0 of (1 - P^n) - integral over x < 0 of P^n``: 1.4 for 8 numbers, 2.3 for
    64 and 3.0 for 512.

    Source: H. Cramér, Mathematical Methods of Statistics (1946), section 28.6; H. A. David,
    H. N. Nagaraja, Order Statistics (2003), section 3.1.
    """
    if np.ndim(count) == 0:
        return _mean_of_largest(float(count))
    counts = distinct(count)
    means = np.array([_mean_of_largest(number) for number in counts.tolist()])
    return means.take(np.searchsorted(counts, count))


@lru_cache(maxsize=4096)
def _mean_of_largest(count: float) -> float:
    if not count > 1:
        return 0.0
    # the rule of trapezoids is exact to rounding for so smooth a function
    nodes, width = np.linspace(-9.0, 9.0, 361, retstep=True)
    below = np.array([math.erfc(-x / math.sqrt(2.0)) / 2.0 for x in nodes.tolist()]) ** count
    return float(width * np.sum((1.0 + np.sign(nodes)) / 2.0 - below))


def _energy(clock: Real, power: Power) -> Real:
    """Return the energy of a FLOP at a clock over that at `clock_at_limit`."""
    energy: Real = (clock / power.clock_at_limit) ** (power.power_exponent - 1.0)
    return energy
