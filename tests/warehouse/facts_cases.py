"""Small facts, and what a database or its folder holds of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from estimators.registry import get
from tests.faults.phases import RUNS, SIZES
from tests.faults.state import State, state_of
from tests.shared import call
from tests.warehouse.test_drop import study
from warehouse.calibrate.store import drop_profile, replace_profile
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_as_it_is, open_for_write
from warehouse.database.facts import ENTRIES, folder_of, read_facts
from warehouse.measure import store
from warehouse.measure.published import store_published
from warehouse.measure.store import drop_measurements
from warehouse.sweep import cells, record
from warehouse.sweep.record import drop_study
from warehouse.sweep.runner import run_study


def store_profile(database: Path, name: str, value: float = 0.1 + 0.2) -> None:
    """Store a profile of one constant: the smallest fact."""
    row = {
        "profile": name,
        "reference": "published",
        "estimator": "training_step",
        "step_constant": "launch_seconds",
        "fitted_constant_value": value,
    }
    with open_for_write(database) as connection:
        replace_profile(connection, name, [row], [])


def forget_profile(database: Path, name: str) -> None:
    with open_for_write(database) as connection:
        drop_profile(connection, name)


def profiles(database: Path) -> dict[str, float]:
    """Return the constant of each profile that a database has."""
    with open_as_it_is(database) as connection:
        query = "select profile, fitted_constant_value from calibration order by 1"
        return dict(connection.execute(query).fetchall())


def facts_of(database: Path, *, with_open: bool = False) -> list[str]:
    """Return the names of the facts in force that the folder of a database has."""
    return [entry.name for entry in read_facts(folder_of(database)).live(with_open=with_open)]


def outcomes(database: Path) -> list[str]:
    """Return the outcome of each entry."""
    return [entry.outcome for entry in read_facts(folder_of(database)).entries]


def copied(database: Path, target: Path, *, with_facts: bool = True) -> Path:
    """Copy a database, by default with its folder of facts, to `target`."""
    shutil.copyfile(database, target)
    if with_facts and folder_of(database).exists():
        shutil.copytree(folder_of(database), folder_of(target))
    return target


def edit_lines(folder: Path, change: Callable[[list[str]], Any]) -> None:
    """Change the lines of a folder; those that `change` does not touch stay as they are."""
    path = folder / ENTRIES
    lines = path.read_text("utf-8").splitlines(keepends=True)
    change(lines)
    path.write_text("".join(lines), "utf-8")


def flip(place: int) -> Callable[[list[str]], None]:
    """Return a change of one digit of the checksum in a line, or of the id in the first."""

    def change(lines: list[str]) -> None:
        record = json.loads(lines[place])
        key = "checksum" if place else "id"
        lines[place] = lines[place].replace(record[key], record[key][::-1] + "x", 1)
        if not place:
            lines[place] = lines[place][1:]  # an id has no checksum: the line must be no JSON

    return change


def content(database: Path) -> State:
    """Return the rows and hash of every table."""
    state = state_of(database)
    del state["warehouse_meta"]
    return state


ROWS = (
    "model,accelerator,num_gpus,global_batch_size,tensor_parallel\n"
    "gpt3_1.3B,H100,8,64,2\ngpt3_1.3B,H100,16,64,4\ngpt3_1.3B,H100,16,64,4\n"
)


OWN_ROWS = (
    "model,accelerator,nvlink_size,num_gpus,global_batch_size,tensor_parallel\n"
    "gpt3_1.3B,mine,8,8,64,8\n"
)


def timings(rate: float) -> str:
    lines = [f"bf16,{n},{n},{n},{2 * n**3 / rate},TN" for n in SIZES]
    header = "number_format,num_rows,num_columns,inner_size,seconds,layout"
    return "\n".join([header, *lines]) + "\n"


def done(*arguments: object) -> str:
    code, _, err = call(*arguments)
    assert code == 0, err
    return err


def make_every_kind(place: Path) -> None:
    """Store every kind of fact, replace a profile after a study used it, and drop one of each."""
    db = ("--db", place / "warehouse.duckdb")
    for name, text in {
        "kernels.csv": timings(4e14),
        "newer.csv": timings(5e14),
        "runs.csv": RUNS.format(degree=2, seconds=0.5),
        "rows.csv": ROWS,
        "own_rows.csv": OWN_ROWS,
        "own.toml": '[systems.mine]\nbased_on = "H200"\nhbm_bytes_per_second = 9e12\n',
    }.items():
        (place / name).write_text(text)
    kernels = ("--accelerator", "H100 SXM 80GB", "--replace", *db)
    done("init", *db)
    for name in ("own", "dropped"):
        done("calibrate", "--kernels", place / "kernels.csv", "--name", name, *kernels)
    for name, more in (("ours", ()), ("tuned", ("--profile", "own")), ("dropped", ())):
        done("measure", place / "runs.csv", "--name", name, *more, *db)
    into = ("--out", place / "out.csv", "--into-db", *db)
    done("evaluate", "--estimator", "training_step", place / "rows.csv", "--profile", "own", *into)
    done("calibrate", "--kernels", place / "newer.csv", "--name", "own", *kernels)
    done("evaluate", "--estimator", "roofline", place / "rows.csv", *into)
    own = place / "own.toml"
    done("evaluate", "--estimator", "roofline", place / "own_rows.csv", "--catalog", own, *into)
    own.unlink()  # the fact has the definition
    done(
        *("operations", "--model", "gpt3", "--accelerator", "H200", "--nvlink-size", 8),
        *("--num-gpus", 64, "--global-batch-size", 64, "--tensor-parallel", 8, "--into-db", *db),
    )
    run_study(db[1], study(place, "swept", "[8, 16]"))
    run_study(db[1], study(place, "dropped", "[16, 32]"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "MOST_COUNTED", 1)
        run_study(db[1], study(place, "streamed", "[16, 64]"))
        for module in (record, store):  # a file that is not shrunk has the same rows
            patch.setattr(module, "compact", lambda *_, **__: None)
        drop_study(db[1], "dropped")
        drop_measurements(db[1], "dropped")
    with open_for_write(db[1]) as connection:
        store_published(connection, get("training_step"), packaged_catalog())
    done("profiles", "--drop", "dropped", *db)
