"""The campaign as a program: ``python -m tests.faults --trials 20 --phase sweep,drop``.

It prints a line for each trial that went wrong, and a table of all. Exit code 1: something was
lost. Each trial has a seed, so that ``--seed N --trials 1`` runs it again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tests.faults.company import clock_going_back, readers
from tests.faults.damage import damaged_file, damaged_log
from tests.faults.phases import PHASES
from tests.faults.torn import preload, torn
from tests.faults.trials import Campaign, Outcome


def _alone(
    fault: str, trial: Callable[[Campaign, Outcome], None]
) -> Callable[[Campaign, str, int], Outcome]:
    """Return a trial that chooses its own command."""

    def run(campaign: Campaign, phase: str, seed: int) -> Outcome:
        outcome = Outcome(phase, fault, seed)
        trial(campaign, outcome)
        return outcome

    return run


FAULTS: dict[str, Callable[[Campaign, str, int], Outcome | None]] = {
    "kill": Campaign.killed,
    "full": Campaign.full,
    "limit": Campaign.limited,
    "two": Campaign.two_at_once,
    "file": _alone("damaged file", damaged_file),
    "log": _alone("damaged log", damaged_log),
    "readers": _alone("readers next to it", readers),
    "torn": torn,
    "clock": _alone("clock going back", clock_going_back),
}


_PHASE = {"two": ["sweep"], "file": ["swept"], "log": ["measure"]}
_PHASE |= {"readers": ["sweep"], "clock": ["sweep"]}
"""Faults that have one command."""


def main() -> int:
    """Run the trials that the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--trials", type=int, default=10, help="trials of each phase and fault")
    parser.add_argument("--phase", default=",".join(PHASES), help="commands, with commas")
    parser.add_argument("--fault", default="kill", help=f"of {', '.join(FAULTS)}, with commas")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--out", type=Path, help="write each trial as a line of JSON, too")
    options = parser.parse_args()
    if "torn" in options.fault.split(","):
        preload()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        root = Path(folder)
        os.environ.pop("WAREHOUSE_DB", None)
        os.environ.setdefault("WAREHOUSE_CACHE", str(root / "cache"))
        os.environ["XDG_CONFIG_HOME"] = str(root / "settings")
        tempfile.tempdir = folder
        outcomes = run(Campaign(root), options)
    print(table(outcomes))
    return int(any(outcome.lost for outcome in outcomes))


def run(campaign: Campaign, options: argparse.Namespace) -> list[Outcome]:
    """Run the trials; print what was lost as soon as it is found."""
    outcomes = []
    seeds = range(options.seed, options.seed + options.trials)
    for fault in options.fault.split(","):
        for phase in _PHASE.get(fault) or options.phase.split(","):
            for seed in seeds:
                outcome = FAULTS[fault](campaign, phase, seed)
                if outcome is None:
                    break
                outcomes.append(outcome)
                for lost in outcome.lost:
                    print(f"{outcome.fault}, {phase}, seed {seed}: {lost}", flush=True)
                if options.out:
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(outcome)) + "\n")
    return outcomes


def table(outcomes: list[Outcome]) -> str:
    """Return a table of the trials by fault and phase."""
    lines = [
        "| fault | phase | trials | hit | with groups committed | lost |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for fault, phase in dict.fromkeys((each.fault, each.phase) for each in outcomes):
        own = [each for each in outcomes if (each.fault, each.phase) == (fault, phase)]
        hit, groups = sum(each.is_hit for each in own), sum(each.num_groups > 0 for each in own)
        lost = sum(bool(each.lost) for each in own)
        lines.append(f"| {fault} | {phase} | {len(own)} | {hit} | {groups} | {lost or 'nothing'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
