"""The text that says which layers each stage of a pipeline has, such as ``Et|(tt|)*30mL``.

`|` ends a stage. E is the embedding, t a layer, m a layer that predicts further tokens, L the loss
with the output layer. ``(..)*n`` and ``x*n`` repeat; commas and spaces mean nothing.

Source: NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/pipeline_parallel_layer_layout.py,
`parse_str_to_list` and `validate_layer_layout`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

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
