"""FLOPs and traffic of computations on tensors whose dimensions lie on parallel axes.

A `Mesh` has axes of ranks. A `Tensor` has dimensions; one that lies on an axis is split over its
ranks. On every other axis the tensor is replicated, or *scattered*: each rank holds a part of it.
Operations make new tensors and never change one. A tensor records its operands and the work of
its last step: `total` adds up a whole computation, each step once; `steps` lists it.

There is no global state: computations on different meshes do not meet.

Source of the counting rules: davidsj/ml_par_sim lib.py @520dcff.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from math import prod


@dataclass(frozen=True)
class Axis:
    """A parallel axis: a number of ranks."""

    name: str
    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"axis {self.name} has {self.size} ranks; it needs one or more")


@dataclass(frozen=True)
class Dim:
    """A dimension of tensors; on an axis, its elements are split evenly over the ranks."""

    name: str
    size: int
    axis: Axis | None = None

    def __post_init__(self) -> None:
        ranks = self.axis.size if self.axis else 1
        if self.size < 1 or self.size % ranks:
            raise ValueError(f"dimension {self.name} of {self.size} is not split by {ranks} ranks")

    @property
    def ranks(self) -> int:
        """Ranks that the dimension is split over."""
        return self.axis.size if self.axis else 1

    def joined(self, other: Dim) -> Dim:
        """Return the dimension that has the elements of both, on the axis of both."""
        if self.axis != other.axis:
            raise ValueError(f"dimensions {self.name} and {other.name} lie on different axes")
        return Dim(f"{self.name}+{other.name}", self.size + other.size, self.axis)


@dataclass(frozen=True)
class Work:
    """FLOPs, and elements sent and received, forward and backward, over all ranks."""

    forward_flops: float = 0.0
    forward_sent: float = 0.0
    forward_received: float = 0.0
    backward_flops: float = 0.0
    backward_sent: float = 0.0
    backward_received: float = 0.0

    def __add__(self, other: Work) -> Work:
        """Return the work of both."""
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Work)))

    def __mul__(self, times: float) -> Work:
        """Return the work of doing it `times` times."""
        return Work(*(getattr(self, f.name) * times for f in fields(Work)))


@dataclass(frozen=True)
class Mesh:
    """The axes of a computation; every rank has a place on each."""

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        if len(set(names)) < len(names):
            raise ValueError(f"axes have the same name: {', '.join(sorted(names))}")

    def tensor(self, *dims: Dim, scattered: Iterable[Axis] = ()) -> Tensor:
        """Return a tensor that is given, not computed."""
        return Tensor(self, frozenset(dims), frozenset(scattered), "given")


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor with its layout, its operands and the work of the last step.

    Attributes
    ----------
    dims
        The dimensions; no two of them on one axis.
    scattered
        Axes over whose ranks each local part is split further, at no dimension in particular.
    operation
        The last step, in words.
    work
        The work of that step alone.
    made_of
        Operands of that step.

    Raises
    ------
    ValueError
        If two dimensions, or a dimension and the scattering, share an axis; if an axis is not
        of the mesh; or if a local part does not split evenly over the scattered axes.
    """

    mesh: Mesh
    dims: frozenset[Dim]
    scattered: frozenset[Axis]
    operation: str
    work: Work = field(default_factory=Work)
    made_of: tuple[Tensor, ...] = ()

    def __post_init__(self) -> None:
        laid = [dim.axis for dim in self.dims if dim.axis]
        shared = [axis.name for axis in {*laid, *self.scattered} if laid.count(axis) > 1]
        shared += [axis.name for axis in self.scattered if axis in laid]
        if shared:
            raise ValueError(f"{self.operation}: axis {shared[0]} is taken twice")
        foreign = {*laid, *self.scattered} - set(self.mesh.axes)
        if foreign:
            raise ValueError(f"{self.operation}: axis {foreign.pop().name} is not of the mesh")
        local = prod(dim.size // dim.ranks for dim in self.dims)
        ranks = prod(axis.size for axis in self.scattered)
        if local % ranks:
            raise ValueError(
                f"{self.operation}: {local} elements do not scatter over {ranks} ranks"
            )

    @property
    def replicated(self) -> frozenset[Axis]:
        """Axes whose ranks hold the same."""
        laid = {dim.axis for dim in self.dims}
        return frozenset(a for a in self.mesh.axes if a not in laid and a not in self.scattered)

    @property
    def num_elements(self) -> int:
        """Distinct elements."""
        return prod(dim.size for dim in self.dims)

    @property
    def num_copies(self) -> int:
        """Ranks that hold each element."""
        return prod(axis.size for axis in self.replicated)

    def multiply(self, other: Tensor) -> Tensor:
        """Return the product, element by element, over the dimensions of both.

        Forward one FLOP an element and copy. Backward the gradients of both factors: a product
        each, and a sum each over what was repeated along the other's dimensions.
        """
        if self.scattered or other.scattered:
            raise ValueError("multiply: a factor is scattered; broadcast it first")
        product = Tensor(self.mesh, self.dims | other.dims, frozenset(), "multiply")
        flops = float(product.num_elements) * product.num_copies
        return self._made(product, Work(flops, backward_flops=4 * flops), self, other)

    def reduce(self, dim: Dim, rename: tuple[Dim, Dim] | None = None) -> Tensor:
        """Return the sums over `dim`, scattered over its axis.

        Parameters
        ----------
        rename
            Another dimension and what it becomes: laid out on the axis of `dim`, over which the
            sums are scattered anyway.

        Notes
        -----
        Forward, each of a rank's partial sums but its own is sent and received once. Backward,
        each sum goes back to all: sent once, received by every other rank.
        """
        rest = self.dims - {self._own(dim, "reduce")}
        sums = float(prod(d.size for d in rest)) * self.num_copies
        others = dim.ranks - 1
        work = Work(
            forward_flops=sums * (dim.size - 1),
            forward_sent=sums * others,
            forward_received=sums * others,
            backward_sent=sums * (others > 0),
            backward_received=sums * others,
        )
        if rename is not None:
            old, new = rename
            if self._own(old, "reduce").size != new.size or new.axis != dim.axis:
                raise ValueError(f"reduce: {old.name} cannot become {new.name}")
            rest = (rest - {old}) | {new}
        laid = {d.axis for d in rest}
        free = frozenset(a for a in self.mesh.axes if a not in laid and a not in self.replicated)
        return self._made(Tensor(self.mesh, rest, free, f"reduce {dim.name}"), work, self)

    def relabel(self, old: Dim, new: Dim) -> Tensor:
        """Return the same elements with `old` called `new`, which lies on no axis: scattered."""
        if self._own(old, "relabel").size != new.size or new.axis is not None:
            raise ValueError(f"relabel: {old.name} cannot become {new.name}")
        scattered = self.scattered | ({old.axis} if old.axis else set())
        dims = (self.dims - {old}) | {new}
        made = Tensor(self.mesh, dims, scattered, f"relabel {old.name}")
        return self._made(made, Work(), self)

    def broadcast(self, hops: float = 0.0) -> Tensor:
        """Return the tensor with every scattered axis replicated.

        Parameters
        ----------
        hops
            Share of uses, 0 to 1, for which the data moves to another rank altogether: to the
            next stage of a pipeline, or to another expert.

        Notes
        -----
        Forward an element is sent once, however many receive it. Backward the gradients of all
        copies are sent, received and summed.
        """
        if not 0 <= hops <= 1:
            raise ValueError(f"broadcast: hops {hops} is not a share of 0 to 1")
        ranks = prod(axis.size for axis in self.scattered)
        received = float(self.num_elements) * self.num_copies * (ranks - 1 + hops)
        work = Work(
            forward_sent=self.num_elements * max(float(ranks > 1), hops),
            forward_received=received,
            backward_flops=received,
            backward_sent=received,
            backward_received=received,
        )
        made = Tensor(self.mesh, self.dims, frozenset(), "broadcast")
        return self._made(made, work, self)

    def all_reduce(self, dim: Dim, hops: float = 0.0) -> Tensor:
        """Return the sums over `dim` on every rank."""
        return self.reduce(dim).broadcast(hops)

    def contract(self, other: Tensor, *dims: Dim) -> Tensor:
        """Return the product summed over `dims`, which both have: a matrix product."""
        for dim in dims:
            self._own(dim, "contract")
            other._own(dim, "contract")
        product = self.multiply(other)
        for dim in dims:
            product = product.all_reduce(dim)
        return product

    def join(self, other: Tensor, mine: Dim, others: Dim) -> tuple[Tensor, Dim]:
        """Return both side by side along `mine` and `others`, and the joined dimension."""
        joined = mine.joined(others)
        if self.dims - other.dims != {mine} or other.dims - self.dims != {others}:
            raise ValueError(f"join: tensors differ in more than {mine.name} and {others.name}")
        dims = (self.dims - {mine}) | {joined}
        made = Tensor(self.mesh, dims, frozenset(), f"join {joined.name}")
        return self._made(made, Work(), self, other), joined

    def _own(self, dim: Dim, operation: str) -> Dim:
        if dim not in self.dims:
            known = ", ".join(sorted(d.name for d in self.dims))
            raise ValueError(f"{operation}: no dimension {dim.name} of {dim.size} among {known}")
        return dim

    def _made(self, made: Tensor, work: Work, *made_of: Tensor) -> Tensor:
        for part in made_of:
            if part.mesh != self.mesh:
                raise ValueError(f"{made.operation}: tensors of different meshes")
        return Tensor(self.mesh, made.dims, made.scattered, made.operation, work, made_of)


def steps(*results: Tensor) -> Iterator[Tensor]:
    """Yield every tensor that `results` are made of, each once, before what is made of it."""
    seen: set[int] = set()
    stack = [(tensor, False) for tensor in reversed(results)]
    while stack:
        tensor, is_ready = stack.pop()
        if is_ready:
            yield tensor
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            stack.append((tensor, True))
            stack += [(part, False) for part in reversed(tensor.made_of)]


def total(*results: Tensor) -> Work:
    """Return the work of everything that `results` are made of, each step counted once."""
    return sum((tensor.work for tensor in steps(*results)), Work())
