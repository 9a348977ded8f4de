"""The algebra: equal to the closed form, equal to counting by hand, and without any state."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.contract import Catalog
from estimators.dataflow.estimator import DATAFLOW, RELATION
from estimators.dataflow.run import Degrees, Problem, counts_of
from tests.estimators.dataflow_algebra import Axis, Dim, Mesh, Tensor, Work, steps, total
from tests.estimators.dataflow_transformer import layer_work, weights_work
from tests.estimators.parity import read_golden, resolved

PAGE = Path(__file__).parents[2] / "docs" / "dataflow_algebra.md"


def assert_equals_closed_form(values: dict[str, Any], rel: float) -> None:
    counts = counts_of(Problem.of(values), Degrees.of(values))
    work, weights = layer_work(values), weights_work(values)
    assert work.forward_flops == pytest.approx(float(counts.forward_flops), rel=rel)
    assert work.backward_flops == pytest.approx(float(counts.backward_flops), rel=rel)
    assert work.forward_sent == pytest.approx(float(counts.forward_sent), rel=rel)
    assert work.forward_received == pytest.approx(float(counts.received), rel=rel)
    assert work.backward_sent == pytest.approx(float(counts.backward_sent), rel=rel)
    assert work.backward_received == pytest.approx(float(counts.received), rel=rel)
    moved = pytest.approx(float(counts.weights_moved), rel=rel)
    assert weights.forward_sent == pytest.approx(float(counts.weights_sent), rel=rel)
    assert weights.forward_received == moved
    assert weights.backward_flops == weights.backward_sent == moved
    assert weights.forward_flops == 0
    assert weights.backward_received == moved


def test_the_closed_form_is_the_sum_of_the_description_on_every_golden_row(
    catalog: Catalog,
) -> None:
    rows, _ = resolved(DATAFLOW, RELATION, read_golden("dataflow"), catalog)
    for row in range(370):
        assert_equals_closed_form({name: column[row] for name, column in rows.items()}, 1e-12)


powers = st.sampled_from([1, 2, 4])


@given(
    st.fixed_dictionaries(
        {
            **dict.fromkeys(
                ("use_glu", "multi_query_attention", "sequential_attention_ffn"), st.booleans()
            ),
            "num_experts": st.just(4),
            "seq_len": st.sampled_from([128, 256]),
            "num_layers": st.sampled_from([4, 12]),
            "hidden_size": st.sampled_from([64, 192]),
            "ffn_hidden_size": st.sampled_from([128, 256]),
            "num_heads": st.sampled_from([16, 32]),
            "head_size": st.sampled_from([16, 48]),
            "data_parallel": powers,
            "pipeline_parallel": powers,
            "expert_parallel": powers,
            "sequence_parallel": powers,
            "tensor_parallel": powers,
            "tensor_parallel_external": powers,
        }
    )
)
def test_the_closed_form_is_the_sum_of_the_description_on_any_input(
    values: dict[str, Any],
) -> None:
    assert_equals_closed_form(values, 1e-12)


Place = tuple[int, ...]


class Ranks:
    """Every rank of a small mesh with the elements it holds; it counts what crosses."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.places = list(itertools.product(*(range(axis.size) for axis in mesh.axes)))

    def holders(self, dims: list[Dim], element: Place) -> list[Place]:
        """Return the ranks that hold an element of a tensor that is not scattered."""
        wanted = {
            dim.axis.name: index * dim.axis.size // dim.size
            for dim, index in zip(dims, element, strict=True)
            if dim.axis
        }
        names = [axis.name for axis in self.mesh.axes]
        return [
            place
            for place in self.places
            if all(place[names.index(name)] == rank for name, rank in wanted.items())
        ]


def elements(dims: list[Dim]) -> list[Place]:
    return list(itertools.product(*(range(dim.size) for dim in dims)))


def counted_matrix_product(
    mesh: Mesh, row: Dim, inner: Dim, column: Dim
) -> tuple[int, int, int, int]:
    """Count by doing it: multiplications, additions, elements sent, elements received.

    Each rank multiplies what it holds; the rank that owns a sum gets the partial sums of the
    other ranks along the inner axis, adds them, and then sends the sum to all of them.
    """
    ranks = Ranks(mesh)
    multiplications = additions = sent = received = 0
    partial: dict[tuple[Place, Place], int] = {}
    for i, k, j in elements([row, inner, column]):
        for place in ranks.holders([row, inner, column], (i, k, j)):
            multiplications += 1
            key = (place, (i, j))
            additions += key in partial
            partial[key] = partial.get(key, 0) + 1
    names = [axis.name for axis in mesh.axes]
    along = names.index(inner.axis.name) if inner.axis else None
    for i, j in elements([row, column]):
        places = [place for place, element in partial if element == (i, j)]
        groups: dict[Place, list[Place]] = {}
        for place in places:
            rest = tuple(r for n, r in enumerate(place) if n != along)
            groups.setdefault(rest, []).append(place)
        for members in groups.values():
            sent += len(members) - 1  # partial sums to their owner
            received += len(members) - 1
            additions += len(members) - 1
            received += len(members) - 1  # the sum back to all
        # the sum of one element is sent once, for any number of receivers
        sent += any(len(members) > 1 for members in groups.values())
    return multiplications, additions, sent, received


@given(
    st.sampled_from(["none", "row", "inner", "column", "elsewhere"]),
    st.sampled_from([2, 3]),
    st.sampled_from([1, 2]),
)
def test_a_matrix_product_costs_what_the_ranks_do(where: str, size: int, others: int) -> None:
    axis, spare = Axis("axis", size), Axis("spare", others)
    mesh = Mesh((axis, spare))
    row, inner, column = (
        Dim(name, 6, axis if where == name else None) for name in ("row", "inner", "column")
    )
    product = mesh.tensor(row, inner).contract(mesh.tensor(inner, column), inner)
    work = total(product)
    multiplications, additions, sent, received = counted_matrix_product(mesh, row, inner, column)
    assert work.forward_flops == multiplications + additions
    assert work.forward_received == received
    assert work.forward_sent == sent


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_spreading_a_scattered_tensor_costs_what_the_ranks_do(
    ranks: int, copies: int, parts: int
) -> None:
    axis, other = Axis("axis", ranks), Axis("other", copies)
    tensor = Mesh((axis, other)).tensor(Dim("d", ranks * parts), scattered=[axis])
    work = tensor.broadcast().work
    sent = received = back = 0
    for _element in range(ranks * parts):
        sent += ranks > 1  # to all at once
        for _copy in range(copies):
            received += ranks - 1
            back += ranks - 1  # each gradient is its own
    assert (work.forward_sent, work.forward_received) == (sent, received)
    assert (work.backward_sent, work.backward_received, work.backward_flops) == (back,) * 3


def test_a_hop_moves_its_share_of_the_elements() -> None:
    tensor = Mesh((Axis("a", 1),)).tensor(Dim("d", 8))
    assert tensor.broadcast(hops=0.25).work == Work(0, 2, 2, 2, 2, 2)


def test_a_step_that_two_results_share_is_counted_once() -> None:
    d = Dim("d", 8)
    mesh = Mesh(())
    shared = mesh.tensor(d).multiply(mesh.tensor(d))
    left, right = shared.multiply(mesh.tensor(d)), shared.multiply(mesh.tensor(d))
    assert total(left, right).forward_flops == 24
    assert total(left).forward_flops == total(right).forward_flops == 16
    assert [step.operation for step in steps(left)].count("multiply") == 2


def test_operations_change_nothing_and_computations_do_not_meet() -> None:
    def product(size: int) -> Tensor:
        axis = Axis("axis", 2)
        inner = Dim("inner", size, axis)
        return (
            Mesh((axis,))
            .tensor(Dim("row", size), inner)
            .contract(Mesh((axis,)).tensor(inner, Dim("column", size)), inner)
        )

    first, second = product(4), product(8)
    alone = total(first)
    total(second)
    first.broadcast()
    assert total(first) == alone == total(product(4))
    with pytest.raises(FrozenInstanceError):
        first.operation = "other"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        alone.forward_flops = 0  # type: ignore[misc]


A, B = Axis("a", 2), Axis("b", 3)
MESH = Mesh((A, B))
X, Y, Z = Dim("x", 4, A), Dim("y", 6, B), Dim("z", 5)


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: Axis("a", 0), "axis a has 0 ranks"),
        (lambda: Dim("x", 5, A), "dimension x of 5 is not split by 2 ranks"),
        (lambda: Mesh((A, Axis("a", 3))), "axes have the same name"),
        (lambda: MESH.tensor(X, Dim("w", 2, A)), "axis a is taken twice"),
        (lambda: MESH.tensor(X, scattered=[A]), "axis a is taken twice"),
        (lambda: Mesh((A,)).tensor(Y), "axis b is not of the mesh"),
        (lambda: MESH.tensor(Z, scattered=[A]), "5 elements do not scatter over 2 ranks"),
        (lambda: MESH.tensor(X).contract(MESH.tensor(Y), X), "no dimension x of 4 among y"),
        (lambda: MESH.tensor(X).reduce(Dim("x", 8, A)), "no dimension x of 8 among x"),
        (
            lambda: MESH.tensor(X, scattered=[B]).multiply(MESH.tensor(Y)),
            "do not scatter|is scattered",
        ),
        (lambda: MESH.tensor(X).multiply(Mesh((A,)).tensor(X)), "tensors of different meshes"),
        (lambda: MESH.tensor(X).broadcast(hops=1.5), "hops 1.5 is not a share"),
        (lambda: MESH.tensor(X, Z).join(MESH.tensor(Y), Z, Y), "lie on different axes"),
        (lambda: MESH.tensor(X, Z).relabel(Z, Dim("w", 7)), "z cannot become w"),
        (lambda: MESH.tensor(X, Z).reduce(X, rename=(Z, Dim("w", 5))), "z cannot become w"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(
    mistake: Callable[[], object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        mistake()


def test_the_page_says_what_its_example_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text("utf-8")
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    printed = page.rstrip().removesuffix("```").rpartition("```\n")[2]
    exec(compile(example, PAGE.name, "exec"), {})
    assert capsys.readouterr().out == printed
