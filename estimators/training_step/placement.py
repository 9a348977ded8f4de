"""Where the layers of a model are: on which rank of the pipeline, and in which of its chunks.

A pipeline of p ranks with v chunks each has p x v stages in order of the layers; stage i is chunk
i // p of rank i % p (NVIDIA/Megatron-LM @d98e8a64
megatron/core/transformer/pipeline_parallel_layer_layout.py). The first stage has the embedding, the
last one the output layer with the layers that predict further tokens.

`pipeline_layout` is a text that says which layers each stage has, such as ``Et|(tt|)*30mL``. `|`
ends a stage. E is the embedding, t a layer, m a layer that predicts further tokens, L the loss with
the output layer. ``(..)*n`` and ``x*n`` repeat; commas and spaces mean nothing (same file,
`parse_str_to_list` and `validate_layer_layout`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array

KINDS = ("dense", "mixture", "mtp")
"""Kinds of layers: without experts, with experts, and those that predict further tokens."""


NOT_BALANCED = -1.0


class Case(NamedTuple):
    """The model and the pipeline, as far as they decide where layers are.

    Attributes
    ----------
    layers, dense_layers, mtp_layers
        Layers of the model: all of them, those without experts, and those that predict further
        tokens.
    moe_period
        With n above 1, each n-th layer has experts.
    ranks, chunks
        Ranks of the pipeline, and chunks of a rank.
    first, last
        Layers of the first and of the last rank; 0: not given.
    counts_embedding, counts_loss
        Whether the embedding, or the loss, takes the place of a layer.
    layout
        The text of `pipeline_layout`.
    is_mixture
        Whether any layer has experts.
    output_layers
        Number of layers with as many products as the output layer, for a program that balances
        stages by products; `NOT_BALANCED` for others.
    schedule
        Order of the passes, which may give ranks further stages.
    """

    layers: int
    dense_layers: int
    moe_period: int
    mtp_layers: int
    ranks: int
    chunks: int
    first: int = 0
    last: int = 0
    counts_embedding: bool = False
    counts_loss: bool = False
    layout: str | None = None
    is_mixture: bool = False
    output_layers: float = NOT_BALANCED
    schedule: str = "1f1b"


IN_A_V = ("zbv", "dualpipev")
"""Schedules whose ranks have one stage of the first half and its mirror in the second half."""


class Placement(NamedTuple):
    """Layers by kind, rank and chunk.

    Attributes
    ----------
    layers
        Number of layers: [kind of `KINDS`][chunk][rank]. Schedules of two directions have a chunk
        for each.
    embedding, output
        For each rank 1 where it has the embedding in its first chunk, or the output layer in its
        last one.
    """

    layers: Array
    embedding: Array
    output: Array

    @property
    def of_rank(self) -> Array:
        """Layers by kind and rank."""
        layers: Array = self.layers.sum(axis=1)
        return layers


class UnplaceableError(ValueError):
    """The layers do not fit the stages of a pipeline; the text is the reason."""


@lru_cache(maxsize=65_536)
def place(case: Case) -> Placement:
    """Return where the layers are.

    Raises
    ------
    UnplaceableError
        If they do not fit.
    """
    if case.schedule in IN_A_V:
        whole = place(case._replace(schedule="1f1b", ranks=2 * case.ranks))
        half = [table[..., : case.ranks] for table in whole]
        other = [table[..., : case.ranks - 1 : -1] for table in whole]
        return Placement(
            np.concatenate([half[0], other[0]], axis=1), half[1] + other[1], half[2] + other[2]
        )
    if case.schedule == "dualpipe":
        whole = place(case._replace(schedule="1f1b"))
        turned = [table[..., ::-1] for table in whole]
        return Placement(
            np.concatenate([whole.layers, turned[0]], axis=1),
            whole.embedding + turned[1],
            whole.output + turned[2],
        )
    kinds = layer_kinds(case.layers, case.dense_layers, case.moe_period, is_mixture=case.is_mixture)
    stages, output_rank = _stages(case)
    counts = np.zeros((len(KINDS), len(stages.layers)))
    begin = 0
    for number, size in enumerate(stages.layers):
        mixtures = sum(kinds[begin : begin + size])
        counts[:2, number] = size - mixtures, mixtures
        begin += size
    counts[2, stages.mtp_stage] = case.mtp_layers
    layers = counts.reshape(len(KINDS), case.chunks, case.ranks)
    layers.setflags(write=False)
    ranks = np.arange(case.ranks)
    return Placement(layers, 1.0 * (ranks == 0), 1.0 * (ranks == output_rank))


def layer_kinds(layers: int, dense: int, period: int, *, is_mixture: bool) -> list[bool]:
    """Return for each layer whether it has experts.

    With a period n above 1 each n-th layer has; else all but the first `dense` ones have.
    """
    if period > 1:
        return [is_mixture and (number + 1) % period == 0 for number in range(layers)]
    return [is_mixture and number >= dense for number in range(layers)]


def _stages(case: Case) -> tuple[Stages, int]:
    """Return the layers of each stage, and the rank with the output layer."""
    last = case.ranks * case.chunks - 1
    if case.layout:
        return _by_layout(case.layout, case), case.ranks - 1
    if case.first or case.last:
        sizes = _with_ends(case)
    elif case.counts_embedding or case.counts_loss:
        sizes = _counted(case)
    elif case.output_layers >= 0:
        sizes, output = balanced(case.layers, last + 1, case.output_layers)
        return Stages(tuple(sizes), output), output % case.ranks
    else:
        sizes = default_sizes(
            case.layers, case.ranks, case.chunks, is_mixture=case.is_mixture or case.mtp_layers > 0
        )
    return Stages(tuple(sizes), last), case.ranks - 1


def default_sizes(layers: int, ranks: int, chunks: int, *, is_mixture: bool) -> list[int]:
    """Return the layers of each stage of a pipeline whose layout is not given.

    - Stages are even if their number divides the layers.
    - If even stages would need two layers more, the first and the last stage have one layer less:
      embedding and loss count as a layer each (Megatron-Bridge @067f987d: Llama 3 405B, Qwen3
      235B).
    - A dense model without chunks has a layer more in its first stages. So has a mixture without
      chunks that the way below does not fit.
    - Else all stages but the last are equal, and the last one has the rest and the loss. Where one
      layer is missing for that, the first stage has one less. Megatron-Bridge @067f987d
      perf_recipes/deepseek/h100/deepseek_v3.py has these tables for 61 layers: 15 stages of 4 and a
      last one of 1; 8 and 5; 16 and 13; 1 in the first of 32 stages, 30 stages of 2, none in the
      last.

    Raises
    ------
    UnplaceableError
        If no way takes all layers.
    """
    stages = ranks * chunks
    most = -(-layers // stages)
    short = most * stages - layers
    if not admits_chunks(layers, ranks, chunks):
        if layers % ranks == 0:
            raise UnplaceableError(f"does not divide the {layers // ranks} layers of a stage")
        raise UnplaceableError(
            f"leaves the first and the last of {stages} chunks {short} layers short"
        )
    if chunks == 1 and short != 2 and (not is_mixture or short > most + 1):
        return [most] * (stages - short) + [most - 1] * short
    sizes = [most] * stages
    of_first = 1 if short == 2 else max(short - most, 0)
    sizes[0] -= of_first
    sizes[-1] -= short - of_first
    return sizes


def admits_chunks(layers: Any, ranks: Any, chunks: Any) -> Any:
    """Return whether a pipeline can have chunks by default: even ones, or uneven on uneven ranks.

    On uneven ranks all stages but the first and the last are equal: the first has one layer less at
    most, the last none at least. Chunks divide the fullest rank, or `OTHERS_COUNTED` layers more
    would make all stages even.
    """
    of_rank, most = -(-layers // ranks), -(-layers // (ranks * chunks))
    short = most * ranks * chunks - layers
    divides = of_rank % chunks == 0
    fits = (short <= most + 1) & (divides | (short <= OTHERS_COUNTED))
    return np.where(layers % ranks == 0, divides, (chunks == 1) | fits)


OTHERS_COUNTED = 3
"""Places of layers that others take: embedding, loss, and a layer that predicts further tokens, as
in the tables of Megatron-Bridge for 61 layers on 64 places."""


def balanced(layers: int, stages: int, output_layers: float) -> tuple[list[int], int]:
    """Return the layers of each stage by products, and the stage with the output layer.

    A stage takes layers until its share of the products is exceeded (huggingface/nanotron
    @0e0a27ea src/nanotron/models/base.py build_model, models/llama.py get_block_compute_costs).
    """
    share, sizes, stage = (layers + output_layers) / stages, [0] * stages, 0
    for taken in range(1, layers + 1):
        sizes[stage] += 1
        limit = share * (stage + 1)
        is_exceeded = taken > limit and not math.isclose(taken, limit)
        if is_exceeded and stage < stages - 1:
            stage += 1
    return sizes, stage


def _counted(case: Case) -> list[int]:
    """Return even stages in which embedding or loss takes the place of a layer.

    Source: Megatron-LM @d98e8a64 megatron/core/transformer/transformer_config.py, `__post_init__`,
    account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split.
    """
    total = case.layers + case.counts_embedding + case.counts_loss
    stages = case.ranks * case.chunks
    if total % stages:
        raise UnplaceableError(
            f"does not split {total} layers, embedding and loss among them, over {stages} stages"
        )
    sizes = [total // stages] * stages
    sizes[0] -= case.counts_embedding
    sizes[-1] -= case.counts_loss
    return sizes


def _with_ends(case: Case) -> list[int]:
    """Return stages of pipelines that state the layers of the first rank, of the last, or of both.

    Source: Megatron-LM @d98e8a64 megatron/core/transformer/transformer_config.py, `__post_init__`,
    num_layers_in_first_pipeline_stage and num_layers_in_last_pipeline_stage.
    """
    given = [number for number in (case.first, case.last) if number]
    if any(number % case.chunks for number in given):
        raise UnplaceableError("does not divide the layers of the first or of the last stage")
    between, rest = case.ranks - len(given), case.layers - sum(given)
    if between < 0 or rest < 0 or (between == 0) != (rest == 0):
        raise UnplaceableError(f"leaves {rest} layers for the {between} other ranks")
    if between and (rest % between or rest // between % case.chunks):
        raise UnplaceableError(
            f"does not split the {rest} layers of the {between} other ranks evenly"
        )
    of_rank = [rest // between if between else 0] * case.ranks
    if case.first:
        of_rank[0] = case.first
    if case.last:
        of_rank[-1] = case.last
    return [number // case.chunks for number in of_rank] * case.chunks


def _by_layout(layout: str, case: Case) -> Stages:
    """Return the stages of `pipeline_layout`, checked against model and pipeline."""
    if case.first or case.last or case.counts_embedding or case.counts_loss:
        raise UnplaceableError("is given together with another way to place layers")
    try:
        stages = parsed(layout, case.ranks)
    except ValueError as error:
        raise UnplaceableError(str(error)) from error
    number, layers = len(stages.layers), sum(stages.layers)
    if number != case.ranks * case.chunks:
        raise UnplaceableError(
            f"has {number} stages, not the {case.ranks * case.chunks} that `pipeline_parallel`, "
            f"`virtual_pipeline` and `schedule` make"
        )
    if layers != case.layers:
        raise UnplaceableError(f"has {layers} layers, not {case.layers}")
    if stages.num_mtp != case.mtp_layers:
        raise UnplaceableError(f"has {stages.num_mtp} m, not `num_mtp_layers` {case.mtp_layers}")
    return stages


def fault(case: Case) -> str:
    """Return why layers do not fit; empty where they do."""
    try:
        place(case)
    except UnplaceableError as error:
        return str(error)
    return ""


def runs_of(columns: Sequence[Array]) -> list[int]:
    """Return the first rank of each run of ranks that agree in all columns; ranks: last axis."""
    ranks = columns[0].shape[-1]
    changes = np.zeros(ranks, dtype=bool)
    changes[0] = True
    for column in columns:
        flat = column.reshape(-1, ranks)
        changes[1:] |= (flat[:, 1:] != flat[:, :-1]).any(axis=0)
    return [int(rank) for rank in np.flatnonzero(changes)]


LONGEST = 100_000
"""Letters of a text at most, once repetitions are written out."""

_GROUP = re.compile(r"\(([^()]*)\)\*(\d+)")
_LETTER = re.compile(r"([EtmL|])\*(\d+)")


class Stages(NamedTuple):
    """Stages in order of the layers.

    Attributes
    ----------
    layers
        Layers of each stage.
    mtp_stage
        Stage with the layers that predict further tokens.
    num_mtp
        How many they are.
    """

    layers: tuple[int, ...]
    mtp_stage: int
    num_mtp: int = 0


@lru_cache(maxsize=4096)
def written_out(text: str) -> tuple[str, ...]:
    """Return the letters of each stage, repetitions written out.

    Raises
    ------
    ValueError
        If the text is not in the language.
    """
    plain = re.sub(r"[\s,]", "", text)
    for pattern in (_GROUP, _LETTER):
        while match := pattern.search(plain):
            times = int(match[2])
            if len(plain) + len(match[1]) * times > LONGEST:
                raise ValueError(f"has more than {LONGEST:,} letters")
            plain = plain[: match.start()] + match[1] * times + plain[match.end() :]
    odd = sorted(set(plain) - set("EtmL|"))
    if odd or not plain:
        raise ValueError(f"has {odd[0]!r}; letters are E, t, m, L and |" if odd else "has no stage")
    return tuple(plain.split("|"))


def num_stages(text: str) -> int:
    """Return the number of stages; 0 where the text is faulty."""
    try:
        return len(written_out(text))
    except ValueError:
        return 0


def parsed(text: str, ranks: int) -> Stages:
    """Return the stages of a text.

    Raises
    ------
    ValueError
        If it is not in the language, or not a layout of that many ranks.
    """
    stages = written_out(text)
    if len(stages) % ranks:
        raise ValueError(f"has {len(stages)} stages, which {ranks} ranks do not divide")
    joined = "".join(stages)
    if joined.count("E") != 1 or joined[0] != "E":
        raise ValueError("has not one E, in the first place")
    if joined.count("L") != 1 or joined[-1] != "L":
        raise ValueError("has not one L, in the last place")
    with_mtp = [number for number, letters in enumerate(stages) if "m" in letters]
    if not with_mtp:
        return Stages(tuple(letters.count("t") for letters in stages), len(stages) - 1)
    if len(with_mtp) > 1 or "t" in joined[joined.index("m") :]:
        raise ValueError("has layers m in several stages, or before a t")
    (stage,) = with_mtp
    if stage // ranks != len(stages) // ranks - 1:
        raise ValueError("has its m outside the last chunk of a rank")
    if stage % ranks == 0 and stage != len(stages) - 1:
        raise ValueError("has its m on the first rank")
    return Stages(tuple(letters.count("t") for letters in stages), stage, joined.count("m"))
