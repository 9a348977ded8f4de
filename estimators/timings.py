"""A user's timings of kernels, as an estimator compares them with its own.

A row of a file belongs to one or several kinds: of its format, of its pass, of its shape. The
constant of each kind scales the row. Kinds are fitted in order: each takes the rows of which it is
the last kind, after the factors of the earlier kinds. The time of a collective is a sum instead:
fixed cost, hops and bytes have a constant each, and all are fitted at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from estimators.values import Array


@dataclass(frozen=True)
class TimedKind:
    """Kernels of one kind, whose rate one constant scales.

    Attributes
    ----------
    constant
        Column of the constant. The time of the kernels is in inverse proportion to it.
    name
        The kind in words.
    is_scaled
        Which rows the constant scales.
    share
        If times are sums: the kind's share of the estimator's seconds, 0 to 1.
    is_cost
        Whether the constant is in seconds, so that the time is in proportion to it.
    base
        The constant to which this one is a ratio: the factor of its kind is divided out; empty if
        this constant is no ratio.
    highest
        Largest value of the constant.
    """

    constant: str
    name: str
    is_scaled: Array
    share: Array | None = None
    is_cost: bool = False
    base: str = ""
    highest: float = float("inf")


@dataclass(frozen=True)
class Compared:
    """Timings of a file, against the kernels that the estimator reads.

    Attributes
    ----------
    ratios
        Seconds at full clock over those of the estimator, one element a row; NaN in rows that are
        left out.
    kinds
        In the order in which they are fitted.
    left_out
        Why rows are left out, in words -> which.
    defaults
        Constant -> its value without a profile.
    """

    ratios: Array
    kinds: tuple[TimedKind, ...]
    left_out: Mapping[str, Array]
    defaults: Mapping[str, float]


@dataclass(frozen=True)
class TimedInput:
    """A column of a file of timings.

    Attributes
    ----------
    default
        Value of rows without one; None: every row must have one.
    choices
        Spelling, in small letters -> the value that the estimator reads, of a column of texts.
    limits
        Least and largest value of a column of numbers.
    is_whole
        Whether its numbers are whole.
    """

    name: str
    default: float | str | None = None
    choices: Mapping[str, str] | None = None
    limits: tuple[float, float] = (1, 2**31)
    is_whole: bool = True


@dataclass(frozen=True)
class TimedKernels:
    """A kind of file of timings that an estimator reads.

    Attributes
    ----------
    name
        The kernels in words.
    inputs
        Columns of the file, each a kernel's shape, or its seconds.
    compare
        Returns the rows compared: `(columns, accelerator, catalog, is_sustained)`. The columns have
        numbers in floating point, and texts. The catalog is that of `contract`. `is_sustained` says
        that they were timed in long loops, at the clock that the power limit leaves.
    """

    name: str
    inputs: tuple[TimedInput, ...]
    compare: Callable[..., Compared]

    @property
    def required(self) -> tuple[str, ...]:
        """Columns that a file must have."""
        return tuple(column.name for column in self.inputs if column.default is None)


SECONDS = TimedInput("seconds", limits=(1e-9, 1e4), is_whole=False)
"""Seconds of one kernel."""
