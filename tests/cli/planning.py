"""The question that the tests of `warehouse plan` ask, and the terms of its price."""

from __future__ import annotations

MODEL, ACCELERATOR, TOKENS = "gpt3_1.3B", "H100 SXM 80GB", 2e10
QUESTION = ("--model", MODEL, "--accelerator", ACCELERATOR, "--tokens", TOKENS, "--batch", 64)

# the power of a server at full load x 0.75, given with --watts; a hyperscaler's overhead
WATTS = 10_200 / 8 * 0.75
PUE = 1.1
