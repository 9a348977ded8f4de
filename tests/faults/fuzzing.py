"""Many cases by hand: ``python -m tests.faults.fuzzing --cases 2000 --kind study,words``.

It prints how many cases of each kind ran, their exit codes, and each that failed, once a place.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from tests.faults.fuzz import INCOMPLETE, KINDS, STORING, Case, check, forget, is_small
from warehouse.database.connection import open_for_write


def main() -> int:
    """Run the cases that the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fuzzing", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="cases of each kind")
    parser.add_argument("--kind", default=",".join(KINDS), help="kinds of input, with commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after this time")
    options = parser.parse_args()
    failed = 0
    until = time.monotonic() + 60 * options.minutes
    for kind in options.kind.split(","):
        codes, faults = fuzzed(kind, options.cases, options.seed, until)
        print(f"{kind}: {sum(codes.values())} cases, exit codes {dict(codes)}", flush=True)
        for fault, case in faults.items():
            print(f"  {fault}\n    {case!r}", flush=True)
        failed += len(faults)
    return int(failed > 0)


def fuzzed(kind: str, number: int, seed: int, until: float) -> tuple[Counter[int], dict[str, Case]]:
    """Run cases of one kind; return their exit codes, and a case for each place that failed."""
    codes: Counter[int] = Counter()
    faults: dict[str, Case] = {}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        original = Path(folder) / "original.duckdb"
        open_for_write(original).close()
        database = Path(folder) / "warehouse.duckdb"

        @seeded(seed)
        @settings(
            max_examples=number,
            deadline=None,
            phases=(Phase.generate,),
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(KINDS[kind]())
        def run(case: Case) -> None:
            if time.monotonic() > until or not is_small(case):
                return
            place = Path(folder) / "place"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            os.chdir(place)
            if not database.exists():
                shutil.copyfile(original, database)
            try:
                code = check(case, place, database)
                if code in (0, INCOMPLETE) and kind in STORING:
                    forget(database)
            except Exception as error:
                trace = traceback.extract_tb(error.__traceback__)[-1]
                said = "".join(str(error).splitlines()[:1])[:120]
                faults.setdefault(f"{type(error).__name__} {trace.name}: {said}", case)
                forget(database)
                code = -1
            codes[code] += 1

        run()
        os.chdir("/")
    return codes, faults


if __name__ == "__main__":
    sys.exit(main())
