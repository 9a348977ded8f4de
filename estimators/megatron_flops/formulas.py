"""Equations 2 to 4 of arXiv 2104.04473 (Narayanan et al. 2021), section 5.1.

A result that depends on a missing number is NaN. The vocabulary is an exception: where it is
unknown, its terms are left out. All arithmetic is in float64 from the first factor: equation 3
exceeds 64-bit integers from 310 billion parameters on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from estimators.structure import Structure, number

if TYPE_CHECKING:
    from estimators.values import Flag, Real


@dataclass(frozen=True)
class Run(Structure):
    """A model, the tokens of its training, and the GPUs that it runs on."""

    num_layers: Real
    hidden_size: Real
    seq_len: Real
    vocab_size: Real
    global_batch_size: Real
    dataset_tokens: Real
    num_gpus: Real
    matrix_flops_per_second: Real
    achieved_flops_per_second_per_gpu: Real

    @property
    def step_tokens(self) -> Real:
        """Tokens of a step."""
        return self.global_batch_size * self.seq_len

    @property
    def vocabulary(self) -> Real:
        """Entries of the vocabulary, 0 where they are not known."""
        return number(self.vocab_size)

    @property
    def reached_flops_per_second(self) -> Real:
        """FLOP/s of all GPUs together."""
        return self.num_gpus * self.achieved_flops_per_second_per_gpu


def parameters(run: Run) -> Real:
    """Return P = 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)), equation 2.

    It counts learned positions and biases. The output layer shares the embedding's weights. The
    last norm (2 h) is left out.
    """
    layers, hidden = run.num_layers, run.hidden_size
    embedded = run.vocabulary + run.seq_len
    return 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + embedded / (12 * layers * hidden))


def step_flops(run: Run, recomputes: Flag | bool) -> Real:
    """Return the FLOPs of a step on all GPUs, equation 3.

    F = 96 B s l h^2 (1 + s / (6 h) + V / (16 l h)) if all activations are computed again: 24 of the
    96 are the forward pass, 48 the backward pass and 24 the second forward pass (the paper's
    appendix). Without recomputation the layers have 72. The logits, 6 B s h V, are the same in both
    cases.
    """
    passes = np.where(recomputes, 96.0, 72.0)
    layers = passes * run.num_layers * (run.hidden_size + run.seq_len / 6)
    return run.step_tokens * run.hidden_size * (layers + 6 * run.vocabulary)


def approximate_training_seconds(run: Run, recomputes: Flag) -> Real:
    """Return 8 T P / (n X), equation 4: the time of a run over T tokens.

    It takes s / (6 h) + V / (16 l h) in equation 3 for equal to 13 / (12 h) + (V + s) / (12 l h) in
    equation 2. The 8 is 96 / 12; without recomputation it is 72 / 12 = 6.
    """
    factor = np.where(recomputes, 8.0, 6.0)
    return factor * run.dataset_tokens * parameters(run) / run.reached_flops_per_second


def figures(run: Run, recomputes: Flag) -> dict[str, Real]:
    """Return every measure of a run by column name; FLOPs, seconds, shares of the peak rate."""
    step, model = step_flops(run, recomputes), step_flops(run, recomputes=False)
    seconds = step / run.reached_flops_per_second
    peak = run.num_gpus * run.matrix_flops_per_second * seconds
    steps = np.ceil(run.dataset_tokens / run.step_tokens)
    approximate = approximate_training_seconds(run, recomputes)
    return {
        "parameters": parameters(run),
        "step_flops": step,
        "model_flops": model,
        "step_seconds": seconds,
        "mfu": model / peak,
        "hfu": step / peak,
        "tokens_per_second_per_gpu": run.step_tokens / (seconds * run.num_gpus),
        "num_steps": steps,
        "total_flops": steps * step,
        "training_seconds": steps * seconds,
        "approximate_training_seconds": approximate,
        "approximation_error": approximate / (steps * seconds) - 1,
    }
