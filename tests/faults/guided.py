"""A fuzzer that coverage guides: ``python -m tests.faults.guided study -max_total_time=300``.

It needs atheris (``pip install atheris``), which is no dependency of the tests. The other arguments
are those of libFuzzer. Targets: study, configurations, reference.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["warehouse.studies", "warehouse.evaluate"]):
    from warehouse.evaluate.csv_parquet import read_configs
    from warehouse.studies.study import load_study
with atheris.instrument_imports(include=["warehouse.database.reference"]):
    from warehouse.database.reference import read_table
from estimators.contract import RefusedError
from warehouse.errors import InputError

COLUMNS = ("model", "accelerator", "num_gpus", "global_batch_size", "tensor_parallel")

TARGETS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "study": ("fuzzed.toml", load_study),
    "configurations": ("in.csv", lambda path: read_configs(path, COLUMNS, keep_text=False)),
    "reference": ("model.csv", read_table),
}
"""Target -> the name of the file, and what reads it."""


def main() -> None:
    """Fuzz one target until libFuzzer stops, or an exception is no refusal."""
    name, read = TARGETS[sys.argv[1]]
    path = Path(tempfile.mkdtemp(prefix="guided-")) / name

    def one(content: bytes) -> None:
        path.write_bytes(content)
        with suppress(InputError, RefusedError):
            read(path)

    atheris.Setup([sys.argv[0], *sys.argv[2:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
