"""The commands that the campaign disturbs: where each starts, and what must hold afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.processes import said, value_of
from tests.faults.state import State, facts_in_force, state_of, state_of_folder
from warehouse.database import resources, snapshot
from warehouse.database.connection import open_as_it_is
from warehouse.database.sql_text import literal
from warehouse.lake import collect as collecting
from warehouse.lake import shard as sharding
from warehouse.sweep import record, runner

BLOCKS_AT, BLOCK_BYTES = 3 * 4096, 262_144
"""Where the blocks of a DuckDB file begin, and their size."""

GROUP_ROWS = 1
"""Rows of a commit group here: each cell is a group."""

STUDY = """\
name = "{name}"
estimator = "roofline"
variant = "corrected"

[space]
model = "gpt3"
accelerator = {accelerators}
nvlink_size = 8
num_gpus = [8, 16, 32, 64]
global_batch_size = 512
"""

RUNS = (
    "run,model,accelerator,num_gpus,global_batch_size,tensor_parallel,step_seconds\n"
    "a,gpt3_1.3B,H100,8,64,{degree},{seconds}\nb,gpt3_1.3B,H100,16,64,{degree},{seconds}\n"
)

SIZES = (2048, 3072, 4096, 6144, 8192)
"""Number of timed products: a profile needs five of a kind."""

DATABASE = "warehouse.duckdb"
COPY = "copy.duckdb"
FACTS = "facts"
LAKE = "lake"


@dataclass(frozen=True)
class Inputs:
    """Files that commands read. Their paths are stored, so that all trials read the same files."""

    folder: Path

    @property
    def study(self) -> Path:
        """The study that is swept, forced and dropped."""
        return self.folder / "small.toml"

    @property
    def other(self) -> Path:
        """A study that shares half of the cells of the first."""
        return self.folder / "other.toml"

    @property
    def runs(self) -> Path:
        """Two measured runs, which every database has."""
        return self.folder / "runs.csv"

    @property
    def newer_runs(self) -> Path:
        """The runs that take their place."""
        return self.folder / "newer.csv"

    @property
    def configurations(self) -> Path:
        """A file of configurations that is evaluated."""
        return self.folder / "configurations.csv"

    @property
    def kernels(self) -> Path:
        """Timings, which a profile of every database was calibrated to."""
        return self.folder / "kernels.csv"

    @property
    def newer_kernels(self) -> Path:
        """The timings of the profile that takes its place."""
        return self.folder / "newer_kernels.csv"

    def write(self) -> None:
        """Write the files."""
        self.folder.mkdir(parents=True)
        self.study.write_text(STUDY.format(name="small", accelerators='["A100", "H200"]'))
        self.other.write_text(STUDY.format(name="other", accelerators='["H100", "H200"]'))
        self.runs.write_text(RUNS.format(degree=2, seconds=0.5))
        self.newer_runs.write_text(RUNS.format(degree=4, seconds=0.7))
        self.configurations.write_text(
            "model,accelerator,num_gpus,global_batch_size\n"
            "gpt3_1.3B,H100,8,64\ngpt3_1.3B,H100,16,64\n"
        )
        for path, rate in ((self.kernels, 4e14), (self.newer_kernels, 5e14)):
            lines = [f"bf16,{n},{n},{n},{2 * n**3 / rate},TN" for n in SIZES]
            header = "number_format,num_rows,num_columns,inner_size,seconds,layout"
            path.write_text("\n".join([header, *lines]) + "\n")


Acknowledge = Callable[[int], None]
"""Called with the number of cells that a command counts as stored."""


@dataclass(frozen=True)
class Phase:
    """A command.

    Attributes
    ----------
    start
        The template that a trial copies, by name; see `Templates`.
    command
        Its arguments, given the place of the trial and the inputs.
    in_groups
        Whether it commits several times: what it stored of its cells then stays.
    again
        Exit codes of the second run: a drop that was committed finds nothing to drop.
    """

    name: str
    start: str
    command: Callable[[Path, Inputs], list[object]]
    in_groups: bool = False
    again: tuple[int, ...] = (0,)

    def run(self, place: Path, inputs: Inputs, acknowledge: Acknowledge) -> list[Any]:
        """Run the command in this process, which is a fork; return what it said."""
        make_groups_small()
        acknowledging(acknowledge)
        return said(*self.command(place, inputs))


def make_groups_small() -> None:
    """Commit after a few rows, and publish each group, in this process."""
    for module in (runner, collecting):
        replace(module, "COMMIT_ROWS", GROUP_ROWS)


def replace(owner: object, name: str, value: object) -> None:
    """Replace a name for the rest of this process, which is a fork."""
    if not hasattr(owner, name):
        raise AttributeError(f"{owner!r} has no {name}")
    setattr(owner, name, value)


def acknowledging(acknowledge: Acknowledge) -> None:
    """Report each group that is stored, in this process."""
    store = runner.Missing.store

    def stored(self: Any, relation: Any, group: Any, *rest: Any) -> None:
        store(self, relation, group, *rest)
        acknowledge(len(group))

    write = sharding._write_cell

    def written(*arguments: Any) -> int:
        rows = write(*arguments)
        acknowledge(1)
        return rows

    replace(runner.Missing, "store", stored)
    replace(sharding, "_write_cell", written)


def _db(place: Path) -> tuple[object, ...]:
    return ("--db", place / DATABASE, "--wait", 300)


def _calibration(timings: Path) -> list[object]:
    """Return the command that stores a profile of timings, and replaces an earlier one."""
    options = ("--accelerator", "H100 SXM 80GB", "--name", "own", "--replace")
    return ["calibrate", "--kernels", timings, *options]


_QUESTION = (
    *("--model", "gpt3_1.3B", "--accelerator", "H100", "--num-gpus", 8, "--batch", 64),
    *("--tokens", "1e12", "tensor_parallel=2", "pipeline_parallel=1"),
)
"""A small plan, whose layouts no other command stores."""

PHASES = {
    phase.name: phase
    for phase in (
        Phase("sweep", "measured", lambda p, i: ["sweep", i.study, *_db(p)], in_groups=True),
        Phase(
            "workers",
            "measured",
            lambda p, i: ["sweep", i.study, "--workers", 2, *_db(p)],
            in_groups=True,
        ),
        Phase("init", "nothing", lambda p, _: ["init", *_db(p)]),
        Phase("reference", "older", lambda p, _: ["init", *_db(p)]),
        Phase(
            "force", "swept", lambda p, i: ["sweep", i.study, "--force", *_db(p)], in_groups=True
        ),
        Phase("drop", "swept", lambda p, _: ["drop", "small", *_db(p)], again=(0, 3)),
        Phase(
            "measure",
            "swept",
            lambda p, i: ["measure", i.newer_runs, "--name", "ours", "--replace", *_db(p)],
        ),
        Phase(
            "forget",
            "swept",
            lambda p, _: ["measure", "--drop", "ours", *_db(p)],
            again=(0, 3),
        ),
        Phase("calibrate", "swept", lambda p, i: [*_calibration(i.newer_kernels), *_db(p)]),
        Phase(
            "evaluate",
            "swept",
            lambda p, i: [
                *("evaluate", "--estimator", "roofline", i.configurations, "--into-db"),
                *("--out", p / "results.csv", *_db(p)),
            ],
            in_groups=True,
        ),
        Phase("plan", "swept", lambda p, _: ["plan", *_QUESTION, *_db(p)], in_groups=True),
        Phase("rebuild", "hurt", lambda p, _: ["rebuild", *_db(p)]),
        Phase("backup", "swept", lambda p, _: ["backup", p / COPY, "--force", *_db(p)]),
        Phase(
            "export", "swept", lambda p, _: ["export", "--facts", p / FACTS, *_db(p)], again=(0, 3)
        ),
        Phase(
            "import", "measured", lambda p, i: ["import", i.folder / FACTS, *_db(p)], in_groups=True
        ),
        Phase("compact", "dropped", lambda p, _: ["compact", "--db", p / DATABASE]),
        Phase(
            "shard",
            "nothing",
            lambda p, i: ["sweep", i.study, "--lake", p / LAKE, "--shard", "1/1"],
            in_groups=True,
        ),
        Phase("collect", "lake", lambda p, _: ["collect", p / LAKE, *_db(p)], in_groups=True),
    )
}


def _blocks_of(database: Path, table: str) -> list[int]:
    """Return the blocks that hold columns of a table."""
    with open_as_it_is(database) as connection:
        query = f"select distinct block_id from pragma_storage_info({literal(table)}) order by 1"
        return [block for (block,) in connection.execute(query).fetchall() if block >= 0]


def whole_state(place: Path) -> State:
    """Return all that a place holds: its database, its copy, its folder of facts and its lake."""
    found = {**state_of(place / DATABASE), "facts": facts_in_force(place / DATABASE)}
    found.update({f"{COPY}/{name}": value for name, value in state_of(place / COPY).items()})
    for name in (FACTS, LAKE):
        if (place / name).is_dir():
            files = state_of_folder(place / name)
            found.update({f"{name}/{path}": value for path, value in files.items()})
    return {name: value for name, value in found.items() if "/shards/" not in name}


@dataclass
class Templates:
    """The places from which trials start, each made once."""

    root: Path
    inputs: Inputs

    def copy(self, name: str, place: Path) -> None:
        """Copy a template to a place."""
        self.make(name)
        shutil.copytree(self.root / name, place, dirs_exist_ok=True)

    def make(self, name: str) -> Path:
        """Make a template, and those that it is made from."""
        place = self.root / name
        if not place.exists():
            place.mkdir(parents=True)
            value_of(lambda: getattr(self, f"_{name}")(place))
        return place

    def _do(self, *arguments: object) -> None:
        code, _, err = said(*arguments)
        if code:
            raise RuntimeError(err)

    def _nothing(self, place: Path) -> None:
        pass

    def _measured(self, place: Path) -> None:
        self._do("measure", self.inputs.runs, "--name", "ours", *_db(place))
        self._do(*_calibration(self.inputs.kernels), *_db(place))

    def _swept(self, place: Path) -> None:
        make_groups_small()
        self.copy("measured", place)
        for study in (self.inputs.study, self.inputs.other):
            self._do("sweep", study, *_db(place))

    def _dropped(self, place: Path) -> None:
        replace(record, "compact", lambda *_, **__: None)
        self.copy("swept", place)
        self._do("drop", "small", *_db(place))

    def _hurt(self, place: Path) -> None:
        """A database with a flipped bit in a block of rows, which `rebuild` evaluates again."""
        self.copy("swept", place)
        database = place / DATABASE
        sound = database.read_bytes()
        for block in value_of(lambda: _blocks_of(database, "roofline")):
            content = bytearray(sound)
            content[BLOCKS_AT + block * BLOCK_BYTES + 1000] ^= 1
            database.write_bytes(content)
            if not said("status", *_db(place))[0] and said("validate", "--deep", *_db(place))[0]:
                return
        raise RuntimeError("no block has rows alone")

    def _facts(self, place: Path) -> None:
        self.copy("swept", place)
        self._do("export", "--facts", self.inputs.folder / FACTS, *_db(place))

    def _lake(self, place: Path) -> None:
        self.copy("measured", place)
        self._do("sweep", self.inputs.study, "--lake", place / LAKE, "--shard", "1/1")

    def _older(self, place: Path) -> None:
        """A database whose reference tables lack rows that the package now has."""
        self.copy("swept", place)
        reference = place / "reference"
        shutil.copytree(resources.reference_directory(), reference)
        for path in reference.glob("*.csv"):
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            if path.stem in {"model", "system", "printed_step"}:
                path.write_text("".join(lines[:-1]), encoding="utf-8")
        replace(resources, "reference_directory", lambda: reference)
        self._do("init", *_db(place))
        shutil.rmtree(reference)


def publish_every_group() -> None:
    """Publish a snapshot of each group, in this process."""
    replace(snapshot, "FIRST_SECONDS", 0.0)
    replace(snapshot, "MOST_OF_THE_TIME", 1e9)
    replace(snapshot, "SPARE_BYTES", 0)


def acknowledge_in(path: Path) -> Acknowledge:
    """Return a function that adds a line to a file, in one write that a kill does not undo."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def acknowledge(cells: int) -> None:
        os.write(handle, f"{cells}\n".encode())

    return acknowledge


def acknowledged(path: Path) -> int:
    """Return how many cells were acknowledged."""
    return sum(map(int, path.read_text().split())) if path.exists() else 0
