"""Trials: a command is killed, has no space or meets another; then what must hold is checked."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.phases import (
    DATABASE,
    PHASES,
    Inputs,
    Phase,
    Templates,
    acknowledge_in,
    acknowledged,
    whole_state,
)
from tests.faults.processes import Ended, Running, Said, forked, said, value_of
from tests.faults.state import State, faults_of, leftovers, stored_cells, views_of
from warehouse.database.connection import open_for_write

_JITTER_SECONDS = 0.01
"""A kill waits for up to this time after its moment: writing takes no processor time."""

SPARE = 1 << 22

_PAGE = 4096
_DISK_BYTES = 1 << 28


@dataclass(frozen=True)
class Undisturbed:
    """A run that nothing disturbed.

    Attributes
    ----------
    before, after
        What the place held before and after it.
    faults_before, cells_before
        What was half stored before it, in a damaged database, and the cells.
    seconds
        Its processor time.
    num_bytes
        By how much the place grew.
    """

    before: State
    after: State
    faults_before: list[str]
    cells_before: list[int]
    seconds: float
    num_bytes: int


@dataclass
class Outcome:
    """What one trial showed.

    Attributes
    ----------
    fault
        What was done to the command.
    is_hit
        Whether the fault came before the command had ended.
    is_rebuilt
        Whether the database did not open and was made again. Cells that no study asks for are then
        gone.
    num_groups
        Groups that were committed before it.
    lost
        What did not hold; nothing, if the trial went well.
    """

    phase: str
    fault: str
    seed: int
    is_hit: bool = False
    num_groups: int = 0
    is_complete: bool = False
    is_rebuilt: bool = False
    said: str = ""
    lost: list[str] = field(default_factory=list)


def _run(phase: Phase, place: Path, inputs: Inputs, log: Path) -> list[Any]:
    """Run a command in the process that calls this; `log` takes the cells that it acknowledges."""
    return phase.run(place, inputs, acknowledge_in(log))


class Campaign:
    """Runs trials below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.inputs = Inputs(root / "inputs")
        self.inputs.write()
        self.templates = Templates(root / "templates", self.inputs)
        self._undisturbed: dict[str, Undisturbed] = {}
        self._made: dict[str, State] = {}
        self._numbers = iter(range(1 << 60))

    # ---- what would have been ----

    def undisturbed(self, phase: Phase) -> Undisturbed:
        """Return what the command does if nothing happens; it runs once."""
        if phase.name not in self._undisturbed:
            if phase.name == "import":
                self.templates.make("facts")
            place = self.place(phase)
            before = value_of(lambda: whole_state(place))
            faults = value_of(lambda: faults_of(place / DATABASE))
            cells = value_of(lambda: stored_cells(place / DATABASE))
            size = _size(place)
            ended = forked(lambda: phase.run(place, self.inputs, lambda _: None))
            answer = self._said(ended)
            if answer.code:
                raise RuntimeError(f"{phase.name}: {answer.err}")
            after = value_of(lambda: whole_state(place))
            growth = max(_size(place) - size, 0)
            self._undisturbed[phase.name] = Undisturbed(
                before, after, faults, cells, ended.seconds, growth
            )
            shutil.rmtree(place)
        return self._undisturbed[phase.name]

    def place(self, phase: Phase, parent: Path | None = None) -> Path:
        """Return a new copy of where a command starts."""
        place = (parent or self.root) / f"trial-{next(self._numbers)}"
        self.templates.copy(phase.start, place)
        return place

    # ---- trials ----

    def killed(self, name: str, seed: int) -> Outcome:
        """Kill a command at a random moment; if it was faster, at another."""
        phase, random_ = PHASES[name], random.Random(f"{name} {seed}")
        usual = self.undisturbed(phase)
        outcome = Outcome(name, "kill -9", seed)
        while not outcome.is_hit:
            place, log = self.place(phase), self.root / f"acknowledged-{seed}-{name}"
            log.unlink(missing_ok=True)
            running = Running(partial(_run, phase, place, self.inputs, log))
            moment = random_.uniform(0, usual.seconds)
            ended = running.kill_at(moment, random_.uniform(0, _JITTER_SECONDS))
            outcome.is_hit = bool(ended.signal)
            if outcome.is_hit:
                self.judge(outcome, phase, place, log)
            shutil.rmtree(place)
        return outcome

    def full(self, name: str, seed: int) -> Outcome:
        """Give a command a random amount of disk space, and half as much until it fails.

        A command that needs no space at all is not hit.
        """
        phase, random_ = PHASES[name], random.Random(f"{name} {seed}")
        usual = self.undisturbed(phase)
        outcome = Outcome(name, "full disk", seed)
        log = self.root / f"acknowledged-full-{seed}-{name}"
        room = random_.randrange(0, usual.num_bytes + SPARE // 2)
        while not outcome.is_hit and not outcome.said and room:
            room = room // 2 if room > _PAGE else 0
            log.unlink(missing_ok=True)
            with small_disk(self.root / f"disk-{seed}") as disk:
                if disk is None:
                    outcome.said = "no disk can be mounted here"
                else:
                    self._run_on(disk, room, outcome, phase, log)
        return outcome

    def _run_on(self, disk: Path, room: int, outcome: Outcome, phase: Phase, log: Path) -> None:
        """Run a command on a disk that has `room` bytes left; then give it space again."""
        place = self.place(phase, disk)
        filler = disk / "filler"
        with filler.open("wb") as file:
            free = shutil.disk_usage(disk).free
            os.posix_fallocate(file.fileno(), 0, max(free - room, 1))
        answer = self._said(forked(lambda: phase.run(place, self.inputs, acknowledge_in(log))))
        filler.unlink()
        outcome.is_hit = answer.code != 0
        if not outcome.is_hit:
            return
        outcome.said = answer.err.strip().splitlines()[-2] if answer.is_refusal else answer.err
        if not (answer.is_refusal and "space" in answer.err):
            outcome.lost.append(f"exit {answer.code}: {answer.err[-600:]}")
        self.judge(outcome, phase, place, log)

    def limited(self, name: str, seed: int) -> Outcome:
        """Let a command make no file larger than a random size, as `ulimit -f` does."""
        import resource

        phase, random_ = PHASES[name], random.Random(f"{name} {seed}")
        usual = self.undisturbed(phase)
        outcome = Outcome(name, "file size limit", seed)
        log = self.root / f"acknowledged-limit-{seed}-{name}"
        place = self.place(phase)
        database = place / DATABASE
        start = database.stat().st_size if database.exists() else 0
        size = start + random_.randrange(-start // 2, usual.num_bytes + 4096)

        def run() -> list[Any]:
            acknowledge = acknowledge_in(log)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            found = phase.run(place, self.inputs, acknowledge)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            return found

        answer = self._said(forked(run))
        outcome.is_hit = answer.code != 0
        if outcome.is_hit and not (answer.is_refusal and "space" in answer.err):
            outcome.lost.append(f"exit {answer.code}: {answer.err[-600:]}")
        if outcome.is_hit:
            self.judge(outcome, phase, place, log)
        shutil.rmtree(place)
        return outcome

    def two_at_once(self, name: str, seed: int) -> Outcome:
        """Sweep two studies that share cells at once; every second trial kills one of them."""
        random_ = random.Random(f"{name} {seed}")
        phase = PHASES["sweep"]
        usual = self.undisturbed(phase)
        outcome = Outcome("sweep", "two sweeps at once", seed)
        wanted = self._both()
        place = self.place(phase)
        log = self.root / f"acknowledged-two-{seed}"
        second = Phase("other", "measured", lambda p, i: ["sweep", i.other, *_options(p)])
        running = [
            Running(lambda: phase.run(place, self.inputs, acknowledge_in(log))),
            Running(lambda: second.run(place, self.inputs, acknowledge_in(log))),
        ]
        if seed % 2:
            ended = running[0].kill_at(random_.uniform(0, 2 * usual.seconds))
            outcome.is_hit = bool(ended.signal)
            self._expect(outcome, self._said(running[1].wait()), "the other sweep")
            answer = self._said(forked(lambda: phase.run(place, self.inputs, lambda _: None)))
            self._expect(outcome, answer, "the sweep again")
        else:
            outcome.is_hit = True
            for each in running:
                self._expect(outcome, self._said(each.wait()), "a sweep")
        self._compare(outcome, place, value_of(lambda: whole_state(place)), wanted)
        shutil.rmtree(place)
        return outcome

    def _both(self) -> State:
        if "both" not in self._undisturbed:
            place = self.place(PHASES["force"])
            state = value_of(lambda: whole_state(place))
            self._undisturbed["both"] = Undisturbed({}, state, [], [], 0.0, 0)
            shutil.rmtree(place)
        return self._undisturbed["both"].after

    # ---- what must hold ----

    def judge(self, outcome: Outcome, phase: Phase, place: Path, log: Path) -> None:
        """Check what a disturbed command left, and what the same command then makes of it."""
        usual, database = self.undisturbed(phase), place / DATABASE

        def look() -> list[Any]:
            found = whole_state(place), faults_of(database), stored_cells(database)
            opened = said("status", "--db", database) if database.exists() else [0, "", ""]
            return [*found, opened]

        try:
            found, faults, stored, opened = value_of(look)
        except RuntimeError as error:
            outcome.lost.append(f"cannot be read: {error}")
            return
        outcome.lost += [fault for fault in faults if fault not in usual.faults_before]
        befores, afters = [usual.before], [usual.after]
        if outcome.is_rebuilt:
            befores.append(self._rebuilt(phase, is_done=False))
            afters.append(self._rebuilt(phase, is_done=True))
        outcome.is_complete = found in afters
        self._expect(outcome, Said(*opened), "status")
        if phase.in_groups:
            self._judge_groups(outcome, phase, stored, log, found)
        elif found not in (*befores, *afters):
            parts = {k for k in {*found, *usual.after} if found.get(k) != usual.after.get(k)}
            parts &= {k for k in {*found, *usual.before} if found.get(k) != usual.before.get(k)}
            outcome.lost.append(f"neither as before nor as after: {sorted(parts)}")

        def run_again() -> list[Any]:
            answer = phase.run(place, self.inputs, lambda _: None)
            if database.exists():  # it may have found its work done: the next writer tidies up
                open_for_write(database).close()
            return [answer, whole_state(place), views_of(database) if outcome.is_rebuilt else {}]

        try:
            answer, last, views = value_of(run_again)
        except RuntimeError as error:
            outcome.lost.append(f"cannot be run again: {error}")
            return
        again = Said(*answer)
        if again.code not in phase.again or (again.code and not outcome.is_complete):
            outcome.lost.append(f"again: exit {again.code}: {again.err[-600:]}")
        self._compare(outcome, place, last, last if last in afters else usual.after)
        if outcome.is_rebuilt and last == usual.after and views != (wanted := self._views(phase)):
            others = sorted(name for name in views if views[name] != wanted.get(name))
            outcome.lost.append(f"other rows of views: {others}")

    def _views(self, phase: Phase) -> State:
        """Return the rows of all views after an undisturbed command."""
        key = f"{phase.name} views"
        if key not in self._made:
            place = self.place(phase)

            def views() -> State:
                phase.run(place, self.inputs, lambda _: None)
                return views_of(place / DATABASE)

            self._made[key] = value_of(views)
            shutil.rmtree(place)
        return self._made[key]

    def _rebuilt(self, phase: Phase, *, is_done: bool) -> State:
        """Return what `rebuild` makes of the place before or after an undisturbed command."""
        key = f"{phase.name} rebuilt {is_done}"
        if key not in self._undisturbed:
            place = self.place(phase)

            def rebuilt() -> State:
                if is_done:
                    phase.run(place, self.inputs, lambda _: None)
                said("rebuild", "--db", place / DATABASE)
                for kept in place.glob(f"{DATABASE}.old*"):
                    kept.unlink()
                return whole_state(place)

            state = value_of(rebuilt)
            self._undisturbed[key] = Undisturbed({}, state, [], [], 0.0, 0)
            shutil.rmtree(place)
        return self._undisturbed[key].after

    def _judge_groups(
        self, outcome: Outcome, phase: Phase, stored: list[int], log: Path, found: State
    ) -> None:
        usual = self.undisturbed(phase)
        if phase.name == "shard":
            manifests = [n for n in found if "/cells/" in n and n.endswith(".json")]
            cells = len(manifests)
            unsound = [name for name in manifests if not found[name][1]]
            if unsound:
                outcome.lost.append(f"cells whose rows are not as written: {unsound}")
        else:
            gone = set(usual.cells_before) - set(stored)
            if gone:
                outcome.lost.append(f"cells that were stored before are gone: {sorted(gone)}")
            cells = len(stored) - len(usual.cells_before)
            if phase.name == "force":
                cells = acknowledged(log)  # the same cells, stored again
        if cells < acknowledged(log):
            outcome.lost.append(f"{acknowledged(log)} cells acknowledged, {cells} stored")
        lines = log.read_text().splitlines() if log.exists() else []
        outcome.num_groups = len(lines) if not outcome.is_complete or phase.name == "force" else 0
        for table in ("measurement", "calibration", "model", "system"):
            if found.get(table) != usual.before.get(table):
                outcome.lost.append(f"table {table} is another")

    def _compare(self, outcome: Outcome, place: Path, found: State, wanted: State) -> None:
        if found != wanted:
            parts = sorted(k for k in {*found, *wanted} if found.get(k) != wanted.get(k))
            outcome.lost.append(f"after running again these differ: {parts}")
        left = leftovers(place)
        if left:
            outcome.lost.append(f"temporary files stay: {left}")

    def _expect(self, outcome: Outcome, answer: Said, what: str) -> None:
        if answer.code:
            outcome.lost.append(f"{what}: exit {answer.code}: {answer.err[-600:]}")

    def _said(self, ended: Ended) -> Said:
        if ended.signal:
            return Said(-ended.signal, "", f"ended by signal {ended.signal}")
        return Said(70, "", ended.error) if ended.error else Said(*ended.value)


def _options(place: Path) -> tuple[object, ...]:
    return ("--db", place / DATABASE, "--wait", 300)


def _size(place: Path) -> int:
    """Return the disk space that a folder takes on a file system of pages of 4 KiB."""
    return sum(-(-path.stat().st_size // 4096) * 4096 + 4096 for path in place.rglob("*"))


@contextmanager
def small_disk(place: Path) -> Iterator[Path | None]:
    """Mount a disk in memory; yield None where that is not permitted."""
    place.mkdir()
    options = f"size={_DISK_BYTES},nr_inodes=100000"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=False, capture_output=True
    )
    if done.returncode:
        place.rmdir()
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        place.rmdir()
