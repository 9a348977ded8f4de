"""Threads that multiply matrices: one, unless the user says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from warehouse.cli import main

def run():
    assert "numpy" not in sys.modules  # it reads the variable when it is imported
    print(os.environ["OPENBLAS_NUM_THREADS"])
    return 0

main.run = run
main.main()
"""


@pytest.mark.parametrize(("given", "expected"), [(None, "1"), ("3", "3")])
def test_a_command_has_one_thread_unless_the_user_gives_a_number(
    given: str | None, expected: str
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    if given is not None:
        environment["OPENBLAS_NUM_THREADS"] = given
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{expected}\n"
