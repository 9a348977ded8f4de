"""The project's estimator and programs of others on the same published steps.

``python -m benchmarks.rivals`` prints how near each comes. ``--calculon PATH``, ``--simumax PATH``
and ``--llm-analysis PATH`` name checkouts; without one, llm-analysis is installed from the package
index, and the others are skipped. Each runs in an environment of its own in the cache. ``--write``
keeps the answers and makes docs/rivals.md anew; a program that is skipped keeps its last answers.
SimuMax takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.rivals import page
from benchmarks.rivals.page import INFERENCE, RIVALS
from benchmarks.rivals.rival import AbsentError, Rival
from benchmarks.rivals.rows import Row, published
from benchmarks.rivals.table import Program, programs_table, refusals_table, wins_table


def asked(
    rows: Sequence[Row], rivals: Sequence[Rival], checkouts: dict[str, Path | None]
) -> list[Program]:
    """Return the answers of the programs that are there; name the others."""
    found = []
    today = datetime.now(UTC).date().isoformat()
    for rival in rivals:
        checkout = checkouts.get(rival.name)
        print(f"asking: {rival.title}", file=sys.stderr)
        try:
            answers = rival.answers(rows, checkout)
        except AbsentError as error:
            print(f"skipped: {rival.title} {error}", file=sys.stderr)
            continue
        version = rival.version(checkout)
        if checkout is not None and version != f"@{rival.commit[:8]}":
            known = f"{rival.source} @{rival.commit[:8]}"
            print(f"warning: {checkout} is {version}; the adapter is for {known}", file=sys.stderr)
        found.append(Program(rival.title, version, answers, today))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the programs, print the tables, and write the page if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    names = list(dict.fromkeys(rival.name for rival in RIVALS))
    for name in names:
        parser.add_argument(f"--{name}", type=Path, metavar="PATH", help=f"checkout of {name}")
    parser.add_argument("--only", action="append", choices=names, help="run this program (repeats)")
    parser.add_argument("--write", action="store_true", help="keep the answers, write the page")
    options = vars(parser.parse_args(arguments))
    rows = published()
    wanted = [rival for rival in RIVALS if rival.name in (options["only"] or names)]
    checkouts = {name: options[name.replace("-", "_")] for name in names}
    programs = asked(rows, wanted, checkouts)
    if options["write"]:
        new = {program.title: program for program in programs}
        kept = {program.title: program for program in page.stored(rows)} | new
        programs = [kept[rival.title] for rival in RIVALS if rival.title in kept]
        page.store(rows, programs)
        programs = page.stored(rows)  # as they are kept, with as many digits
    match = page.match_of(rows, programs)
    for make in (wins_table, programs_table, refusals_table):
        print(make(match), end="\n\n")
    print(f"{INFERENCE[0]}: {INFERENCE[-1]}", file=sys.stderr)
    if options["write"]:
        page.write(match)


if __name__ == "__main__":
    main()
