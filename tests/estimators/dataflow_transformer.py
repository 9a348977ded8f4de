"""The transformer of `estimators.dataflow.run` in the algebra: a second way to count it.

Source: davidsj/ml_par_sim transformer.py @520dcff.
"""

from __future__ import annotations

from dataclasses import dataclass

from estimators.contract import Scalar, Values
from tests.estimators.dataflow_algebra import Axis, Dim, Mesh, Tensor, Work, total

AXES = {
    "data": "data_parallel",
    "pipeline": "pipeline_parallel",
    "expert": "expert_parallel",
    "sequence": "sequence_parallel",
    "inner": "tensor_parallel",
    "outer": "tensor_parallel_external",
}


@dataclass(frozen=True)
class Layout:
    """The mesh and the dimensions of a transformer, one layer a pipeline rank.

    Attributes
    ----------
    hops
        Share of layers after which a token leaves its rank: for the next stage, or for another
        expert.
    tokens
        Tokens and layers that the tensors stand for together.
    """

    mesh: Mesh
    sample: Dim
    layer: Dim
    expert: Dim
    token: Dim
    width: Dim
    ffn: Dim
    head: Dim
    column: Dim
    all_experts: Dim
    all_tokens: Dim
    hops: float
    tokens: int

    @property
    def stream(self) -> Tensor:
        """The residual stream that a layer is given."""
        return self.mesh.tensor(self.sample, self.layer, self.expert, self.token, self.width)

    def weight(self, *dims: Dim) -> Tensor:
        """Return a weight of every layer and expert, as a layer uses it."""
        return self.mesh.tensor(self.layer, self.expert, self.width, *dims)


def layout(values: Values) -> Layout:
    """Return the layout of a configuration; `values` holds its sizes and degrees as scalars."""
    n = {name: _whole(values[name]) for name in (*_SIZES, *AXES.values())}
    axis = {name: Axis(name, n[degree]) for name, degree in AXES.items()}
    tokens = n["seq_len"] // n["num_experts"]
    stays = 1 - (n["pipeline_parallel"] - 1) / n["num_layers"]
    return Layout(
        mesh=Mesh(tuple(axis.values())),
        sample=Dim("sample", n["data_parallel"], axis["data"]),
        layer=Dim("layer", n["pipeline_parallel"], axis["pipeline"]),
        expert=Dim("expert", n["num_experts"], axis["expert"]),
        token=Dim("token", tokens, axis["sequence"]),
        width=Dim("width", n["hidden_size"], axis["outer"]),
        ffn=Dim("ffn", n["ffn_hidden_size"], axis["inner"]),
        head=Dim("head", n["num_heads"], axis["inner"]),
        column=Dim("column", n["head_size"]),
        all_experts=Dim("all experts", n["num_experts"]),
        all_tokens=Dim("all tokens", tokens, axis["outer"]),
        hops=1 - stays / n["expert_parallel"],
        tokens=n["data_parallel"] * n["pipeline_parallel"] * n["seq_len"],
    )


def layer_work(values: Values) -> Work:
    """Return the work of one token in one layer, over all ranks."""
    at = layout(values)
    attended = _attention(at, multi_query=bool(values["multi_query_attention"]))
    if values["sequential_attention_ffn"]:
        stream = attended.all_reduce(at.head)
        passed = _feed_forward(at, stream, gated=bool(values["use_glu"]))
        result = passed.all_reduce(at.ffn, at.hops)
    else:
        passed = _feed_forward(at, at.stream, gated=bool(values["use_glu"]))
        both, joined = attended.join(passed, at.head, at.ffn)
        result = both.all_reduce(joined, at.hops)
    return total(result) * (1 / at.tokens)


def weights_work(values: Values) -> Work:
    """Return the work on one layer's weights in a batch: spread forward, summed backward."""
    at = layout(values)
    copies = {axis for axis in at.mesh.axes if axis.name in ("data", "sequence")}
    inner = {axis for axis in at.mesh.axes if axis.name == "inner"}
    heads = [(at.head, at.column)] * 2
    shared = bool(values["multi_query_attention"])
    keys = [(at.column,) if shared else (at.head, at.column)] * 2
    ffn = [(at.ffn,)] * (3 if values["use_glu"] else 2)
    held = [
        at.mesh.tensor(at.layer, at.expert, at.width, *dims, scattered=axes)
        for some, axes in (
            (heads, copies),
            (keys, copies | inner if shared else copies),
            (ffn, copies),
        )
        for dims in some
    ]
    return total(*(tensor.broadcast() for tensor in held)) * (1 / at.layer.size)


def _attention(at: Layout, *, multi_query: bool) -> Tensor:
    """Return the heads' outputs on the residual stream, not summed over heads yet."""
    stream = at.stream
    queries = at.weight(at.head, at.column).contract(stream, at.width)
    shape = (at.column,) if multi_query else (at.head, at.column)
    keys, attended = (
        at.weight(*shape)
        .multiply(stream)
        .reduce(at.width, rename=(at.token, at.all_tokens))
        .relabel(at.expert, at.all_experts)
        .broadcast()
        for _ in range(2)
    )
    scores = queries.contract(keys, at.column)
    sums = scores.reduce(at.all_experts).all_reduce(at.all_tokens)
    mixed = scores.multiply(sums).contract(attended, at.all_experts, at.all_tokens)
    return at.weight(at.head, at.column).contract(mixed, at.column)


def _feed_forward(at: Layout, stream: Tensor, *, gated: bool) -> Tensor:
    """Return the feed-forward layer's output, not summed over its columns yet."""
    inside = at.weight(at.ffn).contract(stream, at.width)
    if gated:
        inside = inside.multiply(at.weight(at.ffn).contract(stream, at.width))
    return at.weight(at.ffn).multiply(inside)


_SIZES = (
    *("num_experts", "seq_len", "num_layers", "hidden_size", "ffn_hidden_size"),
    *("num_heads", "head_size"),
)


def _whole(value: Scalar) -> int:
    return int(value or 0)
