"""Trials of a sweep next to others: readers, and a clock that goes back."""

from __future__ import annotations

import datetime as clock
import json
import shutil
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.phases import DATABASE, PHASES, publish_every_group, replace, whole_state
from tests.faults.processes import Running, said, value_of
from tests.faults.state import half_stored
from warehouse.database import sink
from warehouse.database.access import access_for, accessing
from warehouse.database.connection import open_as_it_is
from warehouse.sweep import record

if TYPE_CHECKING:
    from tests.faults.trials import Campaign, Outcome

_QUERY = "select count(*) from cell"


def readers(campaign: Campaign, outcome: Outcome) -> None:
    """Read while a sweep runs: no refusal, whole groups, and never fewer than before."""
    phase = PHASES["sweep"]
    usual = campaign.undisturbed(phase)
    place, end = campaign.place(phase), campaign.root / f"ended-{outcome.seed}"
    database = place / DATABASE

    def read() -> list[Any]:
        counts, faults, refused = [], [], []
        while not end.exists():
            with accessing(access_for(None, writes=False)), open_as_it_is(database) as connection:
                counts.append(connection.execute(_QUERY).fetchall()[0][0])
                faults += half_stored(connection)
            code, out, err = said("sql", _QUERY, "--json", "--db", database)
            if code:
                refused.append(err)
            else:
                counts.append(next(iter(json.loads(out)[0].values())))
        return [counts, faults, refused]

    def sweep() -> list[Any]:
        publish_every_group()
        return phase.run(place, campaign.inputs, lambda _: None)

    reading, sweeping = Running(read), Running(sweep)
    answer = sweeping.wait()
    end.touch()
    reads = reading.wait()
    counts, faults, refused = reads.value or [[], [], [reads.error]]
    if answer.value is None or answer.value[0]:
        outcome.lost.append(f"the sweep: {answer}")
    outcome.is_hit, outcome.num_groups = bool(counts), len(set(counts))
    outcome.said = f"{len(counts)} reads of {len(set(counts))} states, {len(refused)} refused"
    if refused:
        outcome.lost.append(f"a read was refused: {refused[0]}")
    if counts != sorted(counts) or faults:
        outcome.lost.append(f"readers saw {counts}: {faults[:3]}")
    if value_of(lambda: whole_state(place)) != usual.after:
        outcome.lost.append("the sweep stored something else")
    shutil.rmtree(place)


def clock_going_back(campaign: Campaign, outcome: Outcome) -> None:
    """Set the clock back by an hour at every look at it, during a sweep and its forced repetition.

    Caches are found by when a cell was stored; they must be as without the change.
    """
    place = campaign.place(PHASES["sweep"])

    class Backwards(clock.datetime):
        looks = 0

        @classmethod
        def now(cls, tz: clock.tzinfo | None = None) -> Backwards:
            Backwards.looks += 1
            moment = clock.datetime.now(tz) - clock.timedelta(hours=Backwards.looks)
            return cls.fromtimestamp(moment.timestamp(), tz)

    def sweep(phase: str) -> list[Any]:
        for module in (sink, record):
            replace(module, "datetime", Backwards)
        usual = time.time
        replace(time, "time", lambda: usual() - 3600 * Backwards.looks)
        answer = PHASES[phase].run(place, campaign.inputs, lambda _: None)
        return [*answer, Backwards.looks]

    usual = campaign.undisturbed(PHASES["sweep"])
    for phase in ("sweep", "force"):
        answer = value_of(partial(sweep, phase))
        outcome.is_hit = answer[3] > 1
        if answer[0]:
            outcome.lost.append(f"{phase}: {answer}")
        if value_of(lambda: whole_state(place)) != usual.after:
            outcome.lost.append(f"{phase}: stored something else")
        if stale := value_of(lambda: _stale(place / DATABASE)):
            outcome.lost.append(f"{phase}: {stale} cells have a stale cache")
    shutil.rmtree(place)


def _stale(database: Path) -> int:
    with open_as_it_is(database) as connection:
        query = (
            "select count(*) from current_cell where num_layouts is null or num_layouts > 0"
            " and cell_id not in (select cell_id from leading_row) and num_fitting_layouts > 0"
        )
        return int(connection.execute(query).fetchall()[0][0])
