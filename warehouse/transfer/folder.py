"""The layout of a folder of facts, and its manifest.

::

    FOLDER/
      manifest.json                            what the folder is, and every file in it
      rows/<table>/model=<model>/rows.parquet  rows of a relation, in hive partitions
      tables/<table>.parquet                   cell, problem, study and the other stored tables
      reference/<table>.parquet                published figures, for readers

A row has the id of its cell and the values that vary in the cell. Table ``cell`` has the problem of
the cell, and table ``problem`` its values. The model's name is in the path alone, percent-encoded.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from warehouse.database.meta import SCHEMA_VERSION
from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST = "manifest.json"
FORMAT = "training-warehouse facts"

FORMAT_VERSION = 1
"""Increase it when older packages can no longer read what this one writes."""

ROWS, TABLES, REFERENCE = "rows", "tables", "reference"
"""Parts of the folder."""

_NO_NAME = "__HIVE_DEFAULT_PARTITION__"
"""The partition of NULL, as Hive, Spark, DuckDB and Arrow have it."""

_ANOTHER = "name a folder that `warehouse export --facts` wrote"
_AGAIN = "copy the folder again, or export it again"


@dataclass(frozen=True)
class StoredFile:
    """One file of the folder: its number of rows, its size, and the hash of its bytes."""

    num_rows: int
    num_bytes: int
    sha256: str


def rows_path(table: str, model: str | None) -> str:
    """Return the path of the rows of one model, relative to the folder."""
    return f"{ROWS}/{table}/{partition_of(model)}/rows.parquet"


def partition_of(model: str | None) -> str:
    """Return the hive partition of one model's rows; the name is percent-encoded."""
    return f"model={_NO_NAME if model is None else quote(model, safe='')}"


def table_path(table: str, part: str = TABLES) -> str:
    """Return the path of a whole table, relative to the folder."""
    return f"{part}/{table}.parquet"


def described(file: Path, num_rows: int) -> StoredFile:
    """Return the record of a file that was just written."""
    return StoredFile(num_rows, file.stat().st_size, digest_of(file))


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_manifest(folder: Path, files: Mapping[str, StoredFile], **versions: str | None) -> None:
    """Write the manifest, which comes last: a folder with a manifest is complete."""
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "schema_version": SCHEMA_VERSION,
        **versions,
        "files": {name: asdict(file) for name, file in sorted(files.items())},
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, StoredFile]:
    """Return the files of a folder after comparing each with its hash.

    Raises
    ------
    InputError
        If it is not a folder of facts, was written by a newer package, or is damaged.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder", _ANOTHER)
    place = folder / MANIFEST
    try:
        document = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{folder}: is no folder of facts: it has no {MANIFEST}", _ANOTHER
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{place}: cannot be read: {error}", _AGAIN) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f'{place}: `format` is not "{FORMAT}"', _ANOTHER)
    for name, most in (("format_version", FORMAT_VERSION), ("schema_version", SCHEMA_VERSION)):
        version = document.get(name)
        if not isinstance(version, int):
            raise InputError(f"{place}: `{name}` is {version!r}, not a number", _AGAIN)
        if version > most:
            raise InputError(
                f"{place}: `{name}` {version} is newer than this package, which reads {most}",
                "upgrade with `pip install --upgrade training-warehouse`",
            )
    files = _files(document.get("files"), place)
    for name, file in files.items():
        _check_file(folder / name, file)
    return files


def _files(listed: Any, place: Path) -> dict[str, StoredFile]:
    try:
        files = {name: StoredFile(**record) for name, record in listed.items()}
    except (AttributeError, TypeError):
        raise InputError(f"{place}: `files` does not list files", _AGAIN) from None
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or path.suffix != ".parquet":
            raise InputError(f"{place}: `files` has {name!r}, which is not in the folder", _AGAIN)
    return files


def _check_file(path: Path, file: StoredFile) -> None:
    try:
        size = path.stat().st_size
        if size != file.num_bytes:
            raise InputError(
                f"{path}: has {size:,} bytes, and {file.num_bytes:,} were written", _AGAIN
            )
        digest = digest_of(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", _AGAIN) from None
    if digest != file.sha256:
        raise InputError(f"{path}: its bytes are not those that were written", _AGAIN)
