"""The layout of a lake, and its small files.

::

    LAKE/
      lake.json                               what the folder is
      studies/<study>.json                    a study, as the shards read it
      shards/<study>/<I>-of-<N>.json          a shard that was started
      rows/<table>/model=<model>/<cell>.parquet   rows of a cell, in hive partitions
      cells/<cell>.json                       manifest of a cell: it comes after the rows

A file is complete or absent: it is written under another name, flushed to the disk, and renamed. A
cell is in the lake if its manifest is. Machines share the folder and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from estimators.contract import variant_name
from estimators.registry import get
from warehouse.database.record_batches import schema_of
from warehouse.errors import InputError, UsageError, WarehouseError
from warehouse.files import digest_of, flush_directory
from warehouse.lake.jobs import read_shard
from warehouse.limits import shown
from warehouse.processes import has_ended, own_mark
from warehouse.studies.study import study_of_definition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from estimators.contract import Cell, Relation
    from estimators.estimator import Estimator
    from warehouse.lake.jobs import Shard
    from warehouse.studies.study import Study

FORMAT = "training-warehouse lake"

FORMAT_VERSION = 2
"""Increase it when older packages can no longer read what this one writes."""

DAMAGED = ".damaged"
"""Ending of a manifest that was set aside: the next run of its shard evaluates the cell again."""

_PARTIAL = ".partial"

_ABANDONED_SECONDS = 86_400.0
"""Age in seconds at which an unfinished file of another machine counts as abandoned: a cell takes
seconds."""

_LONGEST_NAME = 255
"""Bytes of the name of a file, on the usual file systems (NAME_MAX of POSIX.1-2017 limits.h)."""

_NO_NAME = "__HIVE_DEFAULT_PARTITION__"
"""The partition of NULL, as Hive, Spark, DuckDB and Arrow have it."""

_CHECKSUM = "checksum"
"""Key of a small file with the hash of its other keys; files of format 1 have none."""

_TYPES = {"int": int, "str": str, "dict[str, Any]": dict}

_AGAIN = "run the shard again"

_SWEEP_AGAIN = (
    "move this file away and run `warehouse sweep` with the study's file: it writes it again"
)


@dataclass(frozen=True)
class Manifest:
    """One cell of a lake."""

    cell_id: int
    estimator: str
    estimator_version: int
    relation: str
    variant: str
    file: str
    num_rows: int
    num_bytes: int
    sha256: str
    problem: dict[str, Any]
    choices: dict[str, Any]


class Lake:
    """A folder that shards of sweeps write to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # ---- the lake ----

    def prepare(self) -> None:
        """Make the folder a lake, unless it is one."""
        place = self.folder / "lake.json"
        if not place.exists():
            # Another shard may create the lake now: it writes lake.json before all but hidden
            # files.
            has_files = self.folder.is_dir() and any(
                not path.name.startswith(".lake.json.") for path in self.folder.iterdir()
            )
            if has_files and not place.exists():
                raise InputError(
                    f"{self.folder}: has files and is no lake", "name a new or an empty folder"
                )
            with _writing(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                _write_json(place, {"format": FORMAT, "format_version": FORMAT_VERSION})
        self.check()

    def check(self) -> None:
        """Raise unless the folder is a lake that this package can read."""
        place = self.folder / "lake.json"
        another = "name a folder that `warehouse sweep --lake` wrote"
        if not self.folder.is_dir():
            raise InputError(f"{self.folder}: there is no such folder", another)
        if not place.exists():
            raise InputError(f"{self.folder}: is no lake: it has no lake.json", another)
        whole = json.dumps({"format": FORMAT, "format_version": FORMAT_VERSION})
        document = _read_json(place, f"if the folder is a lake, write this to the file: {whole}")
        if document.get("format") != FORMAT:
            raise InputError(f'{place}: `format` is not "{FORMAT}"', another)
        version = document.get("format_version")
        if type(version) is not int or version > FORMAT_VERSION:
            raise InputError(
                f"{place}: `format_version` {version!r} is not one that this package reads",
                "upgrade with `pip install --upgrade training-warehouse`",
            )

    # ---- studies and shards ----

    def refuse_long_name(self, study: Study) -> None:
        """Refuse a study whose file in the lake would have a name that no file system takes."""
        more = len(partial_name(self.study_place(study.name))) - _LONGEST_NAME
        if more > 0:
            raise InputError(
                f"{study.file}: `name` {shown(study.name)} is too long: files of the lake have"
                f" it in their names, which would be {more} bytes longer than {_LONGEST_NAME}",
                "take a shorter `name`; a letter other than a to z takes up to 12 bytes",
            )

    def add_study(self, study: Study) -> None:
        """Record a study; one of that name must be the same."""
        place = self.study_place(study.name)
        document = {"file": study.file, "definition": study.definition}
        if place.exists():
            known = self._read(place, _SWEEP_AGAIN).get("definition")
            if known != json.loads(json.dumps(study.definition)):
                raise InputError(
                    f'{self.folder}: `study` "{study.name}": the lake has another of that name',
                    "name the study anew, or a new folder",
                )
            return
        with _writing(place):
            _write_json(place, document)

    def studies(self) -> list[str]:
        """Return the names of the lake's studies, in order."""
        return [unquote(path.stem) for path in sorted(self._parts("studies", "*.json"))]

    def has_study(self, name: str) -> bool:
        """Return whether the lake has a study of this name."""
        return self.study_place(name).is_file()

    def study(self, name: str) -> Study:
        """Return one study, or refuse a damaged file."""
        place = self.study_place(name)
        if not place.exists():
            raise InputError(f'{self.folder}: has no `study` "{name}"')
        document = self._read(place, _SWEEP_AGAIN)
        try:
            study = study_of_definition(document["definition"], document["file"])
            get(study.estimator)
        except (AttributeError, KeyError, TypeError, ValueError, WarehouseError) as error:
            raise InputError(f"{place}: is no study: {error!r}", _SWEEP_AGAIN) from None
        if study.name != name:
            raise InputError(f"{place}: has the study {shown(study.name)}", _SWEEP_AGAIN)
        return study

    def begin_shard(self, study: str, shard: Shard) -> None:
        """Record that a shard was started."""
        name = f"{shard.number}-of-{shard.of}.json"
        place = self.folder / "shards" / quote(study, safe=" ") / name
        with _writing(place):
            _write_json(place, asdict(shard))

    def shards(self, study: str) -> list[Shard]:
        """Return the shards that were started, the last one last; their files' names say which."""
        files = self._parts(f"shards/{quote(study, safe=' ')}", "*-of-*.json")
        shards: list[Shard] = []
        for file in sorted(files, key=lambda file: file.lstat().st_mtime_ns):
            with suppress(UsageError):  # another program's file
                shards.append(read_shard(file.stem.replace("-of-", "/")))
        return shards

    # ---- cells ----

    def cells(self) -> set[int]:
        """Return the ids of the finished cells; other files in that folder are ignored."""
        stems = (place.stem for place in self._parts("cells", "*.json"))
        return {int(stem) for stem in stems if stem.removeprefix("-").isdecimal()}

    def num_cells(self) -> int:
        """Return how many cells are finished."""
        return len(self.cells())

    def manifest(self, cell_id: int) -> Manifest:
        """Return the manifest of a finished cell."""
        place = self._manifest_place(cell_id)
        document = self._read(place)
        types = {field.name: _TYPES[str(field.type)] for field in fields(Manifest)}
        wrong = document.keys() ^ types.keys() or {
            name for name, kind in types.items() if type(document[name]) is not kind
        }
        if wrong:
            raise InputError(f"{place}: `{min(wrong)}` is not as in a manifest", _AGAIN)
        return Manifest(**document)

    def has(self, cell: Cell) -> bool:
        """Return whether a cell is finished and its manifest intact; the rows are not read."""
        try:
            return self.manifest(cell.id).cell_id == cell.id
        except InputError:
            return False

    def rows_place(self, table: str, cell: Cell) -> Path:
        """Return where the rows of a cell are."""
        model = cell.problem.values.get("model")
        partition = f"model={_NO_NAME if model is None else quote(str(model), safe='')}"
        return self.folder / "rows" / table / partition / f"{cell.id}.parquet"

    def add_cell(self, estimator: Estimator, cell: Cell, rows: Path, num_rows: int) -> None:
        """Record a cell as finished; its rows are written."""
        manifest = Manifest(
            cell_id=cell.id,
            estimator=cell.estimator,
            estimator_version=cell.version,
            relation=cell.relation,
            variant=variant_name(cell.mends, estimator.mends),
            file=rows.relative_to(self.folder).as_posix(),
            num_rows=num_rows,
            num_bytes=rows.stat().st_size,
            sha256=digest_of(rows),
            problem=dict(cell.problem.values),
            choices=dict(cell.choices),
        )
        _write_json(self._manifest_place(cell.id), asdict(manifest))

    def fault_of(self, relation: Relation, cell: Cell, num_rows: int) -> str | None:
        """Return how the files of a cell differ from what its shard writes; None if they do not."""
        place, rows = self._manifest_place(cell.id), self.rows_place(relation.table, cell)
        try:
            manifest = self.manifest(cell.id)
            if place.is_symlink() or rows.is_symlink():
                return f"{rows}: the file or its manifest is a symbolic link"
            named = (manifest.cell_id, manifest.estimator, manifest.relation, manifest.file)
            expected = rows.relative_to(self.folder).as_posix()
            if named != (cell.id, cell.estimator, cell.relation, expected):
                return f"{place}: is the manifest of another cell or file"
            if rows.exists() and not rows.is_file():  # the read of a pipe never ends
                return f"{rows}: is no regular file"
            if manifest.num_rows != num_rows:
                return f"{place}: has {manifest.num_rows:,} rows, and the cell {num_rows:,}"
            size = rows.stat().st_size
            if size != manifest.num_bytes:
                return f"{rows}: has {size:,} bytes, and {manifest.num_bytes:,} were written"
            if digest_of(rows) != manifest.sha256:
                return f"{rows}: its bytes are not those that were written"
            return _fault_of_rows(rows, relation, cell, num_rows)
        except InputError as error:
            return error.message
        except (OSError, pa.ArrowException) as error:
            return f"{rows}: cannot be read: {getattr(error, 'strerror', None) or error}"

    def remove_abandoned(self) -> None:
        """Remove unfinished files of ended processes.

        A file is removed if another process has completed it, if its process ran here and has
        ended, or if nobody has written to it for a day. If the process still runs after that, it
        fails when it completes the file, and its shard must be run again.
        """
        latest = time.time() - _ABANDONED_SECONDS
        for pattern in ("", "studies/", "shards/*/", "rows/*/*/", "cells/"):
            for place in self._parts(".", f"{pattern}.*{_PARTIAL}"):
                name, _, mark = place.name[1:].removesuffix(_PARTIAL).rpartition(".")
                with suppress(OSError):
                    is_useless = place.with_name(name).exists() or has_ended(
                        mark.rpartition("-")[0]
                    )
                    if is_useless or place.stat().st_mtime < latest:
                        place.unlink()

    def set_aside(self, cell_id: int) -> None:
        """Mark a damaged cell as missing: rename its manifest."""
        place = self._manifest_place(cell_id)
        with _writing(place):
            place.replace(place.with_name(place.name + DAMAGED))

    def _read(self, place: Path, remedy: str = _AGAIN) -> dict[str, Any]:
        """Return the content of a small file, with the checksum that the lake's format asks for."""
        return _read_json(place, remedy, needs_checksum=self._format_version != 1)

    @cached_property
    def _format_version(self) -> Any:
        return _read_json(self.folder / "lake.json", _AGAIN).get("format_version")

    def study_place(self, name: str) -> Path:
        """Return where the file of a study is."""
        return self.folder / "studies" / f"{quote(name, safe=' ')}.json"

    def _manifest_place(self, cell_id: int) -> Path:
        return self.folder / "cells" / f"{cell_id}.json"

    def _parts(self, part: str, pattern: str) -> Iterator[Path]:
        with suppress(FileNotFoundError):
            yield from (self.folder / part).glob(pattern)


def partial_name(place: Path) -> str:
    """Return a name for a file that becomes `place` once it is complete."""
    return f".{place.name}.{own_mark()}-{uuid.uuid4().hex[:8]}{_PARTIAL}"


@contextmanager
def complete_or_absent(place: Path) -> Iterator[Path]:
    """Yield a path to write to, which becomes `place` when the block ends.

    The bytes are on the disk before the file gets its name, so that a power cut leaves no partial
    file. Two machines may write one file; the faster one may remove the other's unfinished file.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(partial_name(place))
    try:
        yield partial
        try:
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.replace(place)
        except FileNotFoundError:
            if not place.exists():
                raise
        flush_directory(place.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    """Turn an error of the file system into one that names the place."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{place}: cannot be written: {error.strerror or error}",
            "free some space, or name another folder",
        ) from None


def _write_json(place: Path, document: dict[str, Any]) -> None:
    text = json.dumps({**document, _CHECKSUM: _checksum(document)}, ensure_ascii=False, indent=1)
    with complete_or_absent(place) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def _checksum(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _fault_of_rows(place: Path, relation: Relation, cell: Cell, num_rows: int) -> str | None:
    """Return how the metadata of a Parquet file differ from the rows of a cell."""
    wanted = schema_of(relation)
    of_old_lake = wanted.remove(wanted.get_field_index("problem_id"))
    with pq.ParquetFile(place) as file:
        if not any(file.schema_arrow.equals(schema) for schema in (wanted, of_old_lake)):
            return f"{place}: its columns are not those of table {relation.table}"
        metadata, column = file.metadata, file.schema_arrow.get_field_index("cell_id")
        if metadata.num_rows != num_rows:
            return f"{place}: has {metadata.num_rows:,} rows, and the cell {num_rows:,}"
        for group in range(metadata.num_row_groups):
            ids = metadata.row_group(group).column(column).statistics
            if ids is None or not ids.has_min_max or {ids.min, ids.max} != {cell.id}:
                return f"{place}: has rows of another cell"
    return None


def _read_json(place: Path, remedy: str, *, needs_checksum: bool = False) -> dict[str, Any]:
    """Return the content of a small file without its checksum."""
    if place.exists() and not place.is_file():  # the read of a pipe never ends
        raise InputError(f"{place}: is no regular file", remedy)
    try:
        document = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{place}: cannot be read: {error}", remedy) from None
    if not isinstance(document, dict):
        raise InputError(f"{place}: is no JSON object", remedy)
    if needs_checksum and _CHECKSUM not in document:
        raise InputError(f"{place}: has no `{_CHECKSUM}`", remedy)
    if _CHECKSUM in document and document.pop(_CHECKSUM) != _checksum(document):
        raise InputError(f"{place}: its `{_CHECKSUM}` does not fit its content", remedy)
    return document
