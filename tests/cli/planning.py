"""The question that the tests of `warehouse plan` ask, and the terms of its price."""

from __future__ import annotations

MODEL, ACCELERATOR, TOKENS = "gpt3_1.3B", "H100 SXM 80GB", 2e10
QUESTION = ("--model", MODEL, "--accelerator", ACCELERATOR, "--tokens", TOKENS, "--batch", 64)

# of the reference tables: the server's power, a hyperscaler's overhead
WATTS = 10_200 / 8 * 0.75
PUE = 1.1
