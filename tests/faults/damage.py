"""Trials on damaged files: a database or its log is flipped, zeroed or cut at a random place."""

from __future__ import annotations

import os
import random
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.phases import DATABASE, PHASES, replace, whole_state
from tests.faults.processes import Ended, Said, forked, said, value_of
from tests.faults.state import faults_of
from warehouse.measure import compare

if TYPE_CHECKING:
    from tests.faults.trials import Campaign, Outcome

_WAYS = ("flip", "zero", "cut")

_FACTS = ("facts", "measurement", "calibration", "study")
"""Parts of a state that are facts."""


def hurt(path: Path, random_: random.Random) -> str:
    """Damage a file at a random place; return how."""
    content = bytearray(path.read_bytes())
    way, place = random_.choice(_WAYS), random_.randrange(len(content))
    if way == "flip":
        content[place] ^= 1 << random_.randrange(8)
    elif way == "zero":
        content[place : place + 4096] = bytes(len(content[place : place + 4096]))
    else:
        del content[place:]
    path.write_bytes(content)
    return f"{way} at {place} of {path.stat().st_size}"


def damaged_file(campaign: Campaign, outcome: Outcome) -> None:
    """Damage a database: each command refuses in words, or everything is as it was."""
    phase, random_ = PHASES["drop"], random.Random(f"file {outcome.seed}")
    usual = campaign.undisturbed(phase)
    place = campaign.place(phase)
    database = place / DATABASE
    how = hurt(database, random_)
    before = database.read_bytes()
    for command in (("status",), ("validate", "--deep"), ("rank",)):
        ended = forked(partial(said, *command, "--db", database))
        _expect_words(outcome, ended, how, command[0])
    if database.read_bytes() != before:
        outcome.lost.append(f"{how}: a command that reads wrote")
    deep = forked(lambda: said("validate", "--deep", "--db", database))
    looked = forked(lambda: whole_state(place))
    if deep.value and deep.value[0] == 0 and looked.value != usual.before:
        outcome.lost.append(f"{how}: validate --deep finds no fault, and rows are others")
    outcome.is_hit = looked.value != usual.before
    shutil.rmtree(place)


def damaged_log(campaign: Campaign, outcome: Outcome) -> None:
    """Damage the log that a killed `measure` left: a rebuild brings back each fact that is lost."""
    phase, random_ = PHASES["measure"], random.Random(f"log {outcome.seed}")
    usual = campaign.undisturbed(phase)
    place = campaign.place(phase)
    database, log = place / DATABASE, place / f"{DATABASE}.wal"

    def kill_before_it_closes() -> list[Any]:
        replace(compare, "_compared", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        return phase.run(place, campaign.inputs, lambda _: None)

    ended = forked(kill_before_it_closes)
    if not (ended.signal and log.exists()):
        raise RuntimeError(f"no log was left: {ended}")
    how = hurt(log, random_)
    answer = _expect_words(outcome, forked(lambda: said("status", "--db", database)), how, "status")
    outcome.is_hit = f"`warehouse rebuild --db {database}`" in answer.err
    if answer.code and not outcome.is_hit:
        outcome.lost.append(f"{how}: no remedy is named: {answer.err[-400:]}")
    if outcome.is_hit:
        _expect_words(outcome, forked(lambda: said("rebuild", "--db", database)), how, "rebuild")
    found = value_of(lambda: [whole_state(place), faults_of(database)])
    compared = _FACTS if outcome.is_hit else usual.after  # cells that no study needs are gone
    parts = [name for name in compared if found[0].get(name) != usual.after[name]]
    if parts or found[1]:
        outcome.lost.append(f"{how}: these are others: {parts}, half stored: {found[1]}")
    shutil.rmtree(place)


def _expect_words(outcome: Outcome, ended: Ended, how: str, command: str) -> Said:
    """Record it if a command neither succeeded nor refused in words."""
    if ended.signal or ended.error:
        outcome.lost.append(f"{how}: {command}: signal {ended.signal} {ended.error[-400:]}")
        return Said(70, "", ended.error)
    answer = Said(*ended.value)
    if answer.code and not answer.is_refusal and answer.code != 4:
        outcome.lost.append(f"{how}: {command}: exit {answer.code}: {answer.err[-400:]}")
    elif answer.code:
        outcome.said = answer.err.strip().splitlines()[0][-200:]
    return answer
