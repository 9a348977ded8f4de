"""Trials on torn writes: one write to the database is cut, left out or completed, then a kill.

DuckDB fills partly free blocks in place before it writes the header that makes them count. A kill
in the middle of such a write, or a power cut, leaves a file that cannot be opened. `warehouse
rebuild` then makes it again from its facts.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.faults.phases import DATABASE, PHASES, acknowledge_in
from tests.faults.processes import Said, forked, said, value_of
from tests.faults.trials import Outcome

if TYPE_CHECKING:
    from tests.faults.phases import Phase
    from tests.faults.trials import Campaign

HOW = ("cut", "skip", "whole")
"""What happens to the write: its first pages, nothing or all of it reaches the file."""

_SOURCE = Path(__file__).with_suffix(".c")

_HEADER_BYTES, _BLOCK_BYTES = 3 * 4096, 262_144


class Fault(NamedTuple):
    """A write of a command, by its number, and what happens to it."""

    number: int
    how: str
    is_in_force: bool
    """Whether it falls on a block that the header in force uses, on a header or on the log."""


@cache
def library() -> Path | None:
    """Return the compiled library; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    target = Path(os.environ["TORN_FOLDER"]) / "torn.so"
    if not target.exists():
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
    return target


def preload() -> None:
    """Start this program again with the library loaded, unless it is."""
    if "TORN_FOLDER" in os.environ:
        atexit.register(shutil.rmtree, os.environ["TORN_FOLDER"])
        return
    import tempfile

    os.environ["TORN_FOLDER"] = tempfile.mkdtemp(prefix="torn-")
    found = library()
    if found is not None:
        os.environ["LD_PRELOAD"] = str(found)
        os.execv(sys.executable, [sys.executable, "-m", "tests.faults", *sys.argv[1:]])


def torn(campaign: Campaign, name: str, seed: int) -> Outcome | None:
    """Disturb a write of a command; None if `seed` is past the last one.

    Writes to blocks in force come first, in a random order, then the others.
    """
    phase = PHASES[name]
    outcome = Outcome(name, "torn write", seed)
    if library() is None:
        outcome.said = "there is no C compiler"
        return outcome if seed == 0 else None
    faults = _faults(campaign, phase)
    if seed >= len(faults):
        return None
    fault = faults[seed]
    place, log = campaign.place(phase), campaign.root / f"acknowledged-torn-{seed}-{name}"
    log.unlink(missing_ok=True)

    def run() -> list[Any]:
        os.environ |= {"TORN_AT": str(fault.number), "TORN_HOW": fault.how}
        return phase.run(place, campaign.inputs, acknowledge_in(log))

    outcome.is_hit = forked(run).signal != 0
    outcome.said = f"write {fault.number} {fault.how}"
    if outcome.is_hit:
        _rebuild_if_needed(outcome, place)
        campaign.judge(outcome, phase, place, log)
    shutil.rmtree(place)
    return outcome


def _rebuild_if_needed(outcome: Outcome, place: Path) -> None:
    """Do what the message says if the database does not open."""
    database = place / DATABASE
    if not database.exists():
        return
    opened = Said(*value_of(partial(said, "status", "--db", database)))
    if not opened.code:
        return
    outcome.is_rebuilt = True
    outcome.said += ", does not open"
    if f"`warehouse rebuild --db {database}`" not in opened.err:
        outcome.lost.append(f"no way out is named: {opened.err[-400:]}")
    rebuilt = Said(*value_of(partial(said, "rebuild", "--db", database)))
    if rebuilt.code:
        outcome.lost.append(f"rebuild: exit {rebuilt.code}: {rebuilt.err[-600:]}")
    for kept in place.glob(f"{DATABASE}.old*"):
        kept.unlink()


def _faults(campaign: Campaign, phase: Phase) -> list[Fault]:
    """Return the faults of a command, those of blocks in force first."""
    place, log = campaign.place(phase), campaign.root / f"writes-{phase.name}"
    if not log.exists():
        campaign.undisturbed(phase)
        used = _used_blocks(place / DATABASE)

        def run() -> list[Any]:
            os.environ["TORN_LOG"] = str(log)
            return phase.run(place, campaign.inputs, lambda _: None)

        log.touch()
        value_of(run)
        lines = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
        kept = [
            f"{number} {int(_in_force(offset, bool(of_log), used))}"
            for number, offset, _, of_log in lines
        ]
        log.write_text("\n".join(kept))
    shutil.rmtree(place)
    writes = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    faults = [Fault(number, how, bool(force)) for number, force in writes for how in HOW]
    random.Random(phase.name).shuffle(faults)
    return sorted(faults, key=lambda fault: not fault.is_in_force)


def _in_force(offset: int, is_log: bool, used: frozenset[int]) -> bool:
    if is_log or offset < _HEADER_BYTES:
        return True
    return (offset - _HEADER_BYTES) // _BLOCK_BYTES in used


def _used_blocks(database: Path) -> frozenset[int]:
    """Return the blocks of a database that are not free when the command starts."""
    if not database.exists():
        return frozenset()

    def free() -> list[int]:
        import duckdb

        with duckdb.connect(str(database), read_only=True) as connection:
            metadata = connection.execute("select block_id from pragma_metadata_info()").fetchall()
            tables = connection.execute(
                "select schema_name, table_name from duckdb_tables() where not internal"
            ).fetchall()
            blocks = {block for (block,) in metadata}
            for _, table in tables:
                stored = connection.execute(
                    f"select distinct block_id from pragma_storage_info('{table}')"
                ).fetchall()
                blocks |= {block for (block,) in stored}
        return sorted(block for block in blocks if block >= 0)

    return frozenset(value_of(free))
