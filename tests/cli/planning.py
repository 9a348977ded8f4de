"""The question that the tests of `warehouse plan` ask, and the terms of its price."""

from __future__ import annotations

from pathlib import Path

from warehouse.database.connection import open_for_read
from warehouse.plan.candidates import QueryCache
from warehouse.plan.errors import Errors, known_errors
from warehouse.plan.question import PlanRequest, resolve

MODEL, ACCELERATOR, TOKENS = "gpt3_1.3B", "H100 SXM 80GB", 2e10
QUESTION = ("--model", MODEL, "--accelerator", ACCELERATOR, "--tokens", TOKENS, "--batch", 64)

# the power of a server at full load x 0.75, given with --watts; a hyperscaler's overhead
WATTS = 10_200 / 8 * 0.75
PUE = 1.1


def errors_of(database: Path, estimator: str = "training_step") -> Errors:
    """Return the errors of the estimator that a plan of this question has."""
    request = PlanRequest(estimator, MODEL, ACCELERATOR, TOKENS, num_gpus=4, batch=8)
    with open_for_read(database) as connection:
        return known_errors(resolve(request), QueryCache(connection))
