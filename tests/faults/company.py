"""Trials of a sweep next to others: readers of its snapshots, and a clock that goes back."""

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
from warehouse.database.connection import open_as_it_is, snapshot_path
from warehouse.errors import DatabaseError, LockedError
from warehouse.sweep import record

if TYPE_CHECKING:
    from tests.faults.trials import Campaign, Outcome

_QUERY = "select count(*) from cell"


def readers(campaign: Campaign, outcome: Outcome) -> None:
    """Read what a sweep publishes while it runs: whole groups, and never fewer than before."""
    phase = PHASES["sweep"]
    usual = campaign.undisturbed(phase)
    place, end = campaign.place(phase), campaign.root / f"ended-{outcome.seed}"
    database = place / DATABASE

    def read() -> list[Any]:
        counts, faults, codes = [], [], set()
        while not end.exists():
            try:
                with open_as_it_is(snapshot_path(database)) as connection:
                    counts.append(connection.execute(_QUERY).fetchall()[0][0])
                    faults += half_stored(connection)
            except (DatabaseError, LockedError):  # it has published nothing yet
                time.sleep(0.01)
                continue
            code, out, _ = said("sql", _QUERY, "--snapshot", "--json", "--db", database)
            codes.add(code)
            if not code:
                counts.append(next(iter(json.loads(out)[0].values())))
        return [counts, faults, sorted(codes)]

    def sweep() -> list[Any]:
        publish_every_group()
        return phase.run(place, campaign.inputs, lambda _: None)

    reading, sweeping = Running(read), Running(sweep)
    answer = sweeping.wait()
    end.touch()
    counts, faults, codes = reading.wait().value
    if answer.value is None or answer.value[0]:
        outcome.lost.append(f"the sweep: {answer}")
    outcome.is_hit, outcome.num_groups = bool(counts), len(set(counts))
    outcome.said = f"{len(counts)} reads of {len(set(counts))} states, exit codes {codes}"
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
            "select count(*) from current_cell"
            " anti join stored_best using (cell_id, sibling_record)"
        )
        return int(connection.execute(query).fetchall()[0][0])
