"""Trials on torn writes: one write to the files of a database is cut or left out, then a kill.

DuckDB fills partly free blocks in place before it writes the header that makes them count. A kill
in the middle of such a write, or a power cut, leaves a file that cannot be opened. `warehouse
rebuild` then makes it again from its facts.

A library (torn.c) stops a command before and after each part of a write. The files are then as a
kill at this moment leaves them, and a copy of them is kept. So one run gives all trials of a
command. The blocks in force are read again in that run after each write to a header.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import random
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from tests.faults.phases import (
    BLOCK_BYTES,
    BLOCKS_AT,
    DATABASE,
    PHASES,
    acknowledge_in,
    whole_state,
)
from tests.faults.processes import Ended, Running, Said, forked, said, value_of
from tests.faults.state import UNREADABLE
from tests.faults.trials import Outcome
from warehouse.database.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.phases import Phase
    from tests.faults.trials import Campaign

SKIP, CUT, WHOLE = "left out", "cut", "completed"
"""What reaches the file: nothing of the write, its first page, or all of it."""

PAGE = 4096

KILL = -1
"""Answer to a question of the library."""

_SOURCE = Path(__file__).with_suffix(".c")

_WATCHED = re.compile(r"\.duckdb(\.wal|\.rebuilt|\.\d+\.partial|\.facts/.*)*$")
"""A database, the file that takes its place, their logs, and the facts of a database."""

_NEEDED = re.compile(r"\.duckdb(\.wal|\.facts/.*)?$")
"""Those of them that a reader needs; the others are still being made."""

_POLL_SECONDS = 0.05


@cache
def library() -> Path | None:
    """Return the compiled library; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    target = Path(os.environ["TORN_FOLDER"]) / "torn.so"
    if not target.exists():
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(target), str(_SOURCE)]
        subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return target


def preload() -> None:
    """Start this program again with the library loaded, unless it is."""
    if "TORN_FOLDER" in os.environ:
        atexit.register(shutil.rmtree, os.environ["TORN_FOLDER"])
        return
    os.environ["TORN_FOLDER"] = tempfile.mkdtemp(prefix="torn-")
    found = library()
    if found is not None:
        os.environ["LD_PRELOAD"] = str(found)
        os.execv(sys.executable, [sys.executable, "-m", "tests.faults", *sys.argv[1:]])


# ---- one run of a command ----


class Moment(NamedTuple):
    """A question of the library: `done` bytes of a write are in the file."""

    offset: int
    num_bytes: int
    done: int
    path: str

    @property
    def how(self) -> str:
        """Which fault leaves the files as they are now."""
        return WHOLE if self.done == self.num_bytes else CUT if self.done else SKIP

    @property
    def next_bytes(self) -> int:
        """How many bytes to write until the next question: what is appended may end anywhere."""
        if self.done:
            return self.num_bytes - self.done
        if self.offset < 0:
            return self.num_bytes // 2 or self.num_bytes
        return min(PAGE, self.num_bytes)


Kept = tuple[tuple[str, tuple[str, ...]], ...]
"""The files of a moment: the path of each, and the digests of its blocks."""


class Fault(NamedTuple):
    """What happens to a write, and the files that it leaves."""

    number: int
    moment: Moment
    is_in_force: bool
    """Whether the write falls on a block that the header in force uses, on a header, on a log or
    on the facts."""
    kept: Kept

    def __str__(self) -> str:
        _, num_bytes, _, path = self.moment
        place = f"at {self.moment.offset}" if self.moment.offset >= 0 else "appended"
        force = ", in force" if self.is_in_force else ""
        return f"write {self.number} ({num_bytes} bytes {place}, {path}{force}) {self.moment.how}"


@dataclass
class Recorder:
    """Keeps the files below a folder at each moment; they have most of their blocks in common."""

    place: Path
    blocks: Path
    faults: list[Fault] = field(default_factory=list)
    _number: int = 0
    _used: dict[str, frozenset[int]] = field(default_factory=dict)

    def at(self, moment: Moment) -> int:
        """Keep the files; return how many bytes to write until the next question."""
        if not _WATCHED.search(moment.path):
            return moment.num_bytes - moment.done
        self._number += moment.how == SKIP
        is_in_force = self.faults[-1].is_in_force if moment.done else self._is_in_force(moment)
        self.faults.append(Fault(self._number, moment, is_in_force, self.keep()))
        if moment.how == WHOLE and moment.offset < BLOCKS_AT:
            self._used.pop(moment.path, None)  # another header is in force now
        return moment.next_bytes

    def keep(self) -> Kept:
        """Keep all files as they are now, but for snapshots: a thread goes on with these."""
        files = (path for path in self.place.rglob("*") if ".snapshot" not in path.name)
        paths = sorted(path for path in files if path.is_file())
        return tuple((str(p.relative_to(self.place)), self._kept_blocks(p)) for p in paths)

    def _kept_blocks(self, path: Path) -> tuple[str, ...]:
        content, digests = path.read_bytes(), []
        for start in range(0, len(content), BLOCK_BYTES):
            block = content[start : start + BLOCK_BYTES]
            digests.append(digest := hashlib.sha256(block).hexdigest())
            if not (self.blocks / digest).exists():
                (self.blocks / digest).write_bytes(block)
        return tuple(digests)

    def restore(self, kept: Kept, place: Path) -> None:
        """Write the files of a moment to another folder."""
        for name, digests in kept:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(b"".join((self.blocks / d).read_bytes() for d in digests))

    def _is_in_force(self, moment: Moment) -> bool:
        if not _NEEDED.search(moment.path):
            return False
        if moment.offset < BLOCKS_AT or not moment.path.endswith(".duckdb"):
            return True
        if moment.path not in self._used:
            database = self.place / moment.path
            self._used[moment.path] = frozenset(value_of(lambda: _used_blocks(database)))
        return (moment.offset - BLOCKS_AT) // BLOCK_BYTES in self._used[moment.path]


def _used_blocks(database: Path) -> list[int]:
    """Return the blocks of metadata and rows that the header in force uses.

    It opens a copy without the log. A file that does not open is still being made: it has none.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copyfile(database, Path(folder) / DATABASE)
        try:
            with duckdb.connect(str(copy), read_only=True) as connection:
                tables = connection.execute(
                    "select table_name from duckdb_tables() where not internal"
                ).fetchall()
                query = "select block_id from pragma_metadata_info()" + "".join(
                    " union select unnest([block_id] || additional_block_ids)"
                    f" from pragma_storage_info({literal(table)})"
                    for (table,) in tables
                )
                found = connection.execute(query).fetchall()
        except duckdb.Error:
            return []
    return sorted(block for (block,) in found if block is not None and block >= 0)


def watched(work: Callable[[], Any], place: Path, at: Callable[[Moment], int]) -> Ended:
    """Do work in a process of its own, which asks `at` at each moment of its writes below `place`.

    `at` returns how many bytes to write until the next question, or KILL.
    """
    (asked, ask), (answer, answered) = os.pipe(), os.pipe()

    def run() -> Any:
        os.environ |= {"TORN_PIPES": f"{ask} {answer}", "TORN_BELOW": str(place.resolve())}
        return work()

    running, rest = Running(run), b""
    os.close(ask)
    os.close(answer)
    while not running.has_ended():
        if not select.select([asked], [], [], _POLL_SECONDS)[0]:
            continue
        *lines, rest = (rest + os.read(asked, 1 << 16)).split(b"\n")
        for line in lines:
            offset, num_bytes, done, path = line.decode().split(" ", 3)
            some = at(Moment(int(offset), int(num_bytes), int(done), path))
            with suppress(BrokenPipeError):
                os.write(answered, struct.pack("=q", some))
    os.close(asked)
    os.close(answered)
    return running.wait()


# ---- trials ----


@dataclass
class _Run:
    """The faults of a command, those in force first, and what the trials on them showed."""

    recorder: Recorder
    faults: list[Fault]
    verdicts: dict[Kept, Outcome] = field(default_factory=dict)


_RUNS: dict[Path, _Run] = {}
"""Folder of a command -> its run."""

_LOG = "acknowledged"
_PLACE = "place"
"""Names below the folder of a run, whose content is kept together."""


def torn(campaign: Campaign, name: str, seed: int) -> Outcome | None:
    """Disturb a write of a command; None if `seed` is past the last fault.

    Writes to what is in force come first, in a random order, then the others. Equal files are
    judged once.
    """
    outcome = Outcome(name, "torn write", seed)
    if library() is None:
        outcome.said = "there is no C compiler"
        return outcome if seed == 0 else None
    folder = campaign.root / f"torn-{name}"
    if folder not in _RUNS:
        _RUNS[folder] = _recorded(campaign, PHASES[name], folder)
    run = _RUNS[folder]
    if seed >= len(run.faults):
        shutil.rmtree(folder, ignore_errors=True)
        return None
    fault = run.faults[seed]
    is_new = fault.kept not in run.verdicts
    if is_new:
        with tempfile.TemporaryDirectory(prefix="torn-") as copy:
            run.recorder.restore(fault.kept, Path(copy))
            run.verdicts[fault.kept] = _judged(campaign, PHASES[name], Path(copy))
    verdict = run.verdicts[fault.kept]
    again = "" if is_new else "; these files were judged before"
    return replace(verdict, seed=seed, said=f"{fault}{verdict.said}{again}")


def _recorded(campaign: Campaign, phase: Phase, folder: Path) -> _Run:
    """Run a command once, and keep its files at each moment of its writes."""
    campaign.undisturbed(phase)
    (blocks := folder / "blocks").mkdir(parents=True)
    recorder = Recorder(folder / "files", blocks)
    place, log = recorder.place / _PLACE, recorder.place / _LOG
    campaign.templates.copy(phase.start, place)

    def run() -> list[Any]:
        return phase.run(place, campaign.inputs, acknowledge_in(log))

    ended = watched(run, recorder.place, recorder.at)
    if ended.value is None or ended.value[0]:
        raise RuntimeError(f"{phase.name}: {ended}")
    shutil.rmtree(recorder.place)
    return _Run(recorder, in_order(recorder.faults, phase.name))


def in_order(faults: list[Fault], name: str) -> list[Fault]:
    """Return faults in the order of trials."""
    shuffled = random.Random(name).sample(faults, len(faults))
    return sorted(shuffled, key=lambda fault: not fault.is_in_force)


def _judged(campaign: Campaign, phase: Phase, copy: Path) -> Outcome:
    outcome = Outcome(phase.name, "torn write", 0, is_hit=True)
    _rebuild_if_needed(campaign, phase, outcome, copy / _PLACE)
    if not outcome.lost:
        campaign.judge(outcome, phase, copy / _PLACE, copy / _LOG)
    return outcome


def _rebuild_if_needed(campaign: Campaign, phase: Phase, outcome: Outcome, place: Path) -> None:
    """Make a database again if it does not open, or if rows cannot be read that could before."""
    database = place / DATABASE
    looked = forked(lambda: _unreadable(whole_state(place)))
    if looked.value is None:
        outcome.said = "; does not open"
        err = Said(*value_of(lambda: said("status", "--db", database))).err
        if f"`warehouse rebuild --db {database}`" not in err:
            outcome.lost.append(f"no way out is named: {err[-400:]}")
    elif lost := {*looked.value} - {*_unreadable(campaign.undisturbed(phase).before)}:
        outcome.said = f"; cannot be read: {sorted(lost)}"
    else:
        return
    outcome.is_rebuilt = True
    rebuilt = Said(*value_of(lambda: said("rebuild", "--db", database)))
    if rebuilt.code:
        outcome.lost.append(f"rebuild: exit {rebuilt.code}: {rebuilt.err[-600:]}")
    for kept in place.glob(f"{DATABASE}.old*"):
        kept.unlink()


def _unreadable(state: dict[str, list[Any]]) -> list[str]:
    return [name for name, values in state.items() if UNREADABLE in values]
