"""The folder of facts: what nothing can evaluate again, beside the database file.

Nearly every row of a database follows from a few facts: measured runs, profiles, the definitions
of studies and questions, the inputs of evaluated files, and what was removed of these. They are
appended here, and flushed to the disk, before the transaction that stores them commits.

::

    FILE.facts/
      facts.jsonl             a line for the folder, then a line for each entry and each outcome
      inputs/<number>.parquet configurations of an evaluated file

An entry has a number, a checksum, the version of the package, and one fact as JSON. The line after
it has its outcome: `committed`, or `withdrawn` if its transaction failed. An entry without an
outcome is *open*: its process ended in between, and the database knows whether it committed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shlex
import shutil
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warehouse import __version__
from warehouse.errors import DatabaseError, InputError, space_error
from warehouse.files import (
    digest_of,
    flush_directory,
    partial_path,
    remove_abandoned,
    target_of_partial,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SUFFIX = ".facts"

ASIDE = ".kept"
"""Ending of a file or folder that was moved aside."""

ENTRIES = "facts.jsonl"
INPUTS = "inputs"

FORMAT = "training-warehouse facts"

FORMAT_VERSION = 2
"""Increase it when older packages can no longer read what this one writes. Version 1 was a folder
of Parquet files with all rows."""

STUDY, MEASUREMENT, CALIBRATION, REMOVAL = "study", "measurement", "calibration", "removal"
"""Kinds of entries. The first three are also the tables that hold them."""

COMMITTED, WITHDRAWN, OPEN = "committed", "withdrawn", "open"

_HEAD_BYTES = 1 << 16
_TAIL_BYTES = 1 << 12

_AGAIN = "put the whole folder back from a backup, or evaluate the file again"


@dataclass(frozen=True)
class Entry:
    """One fact: a study, measured runs or a profile, or the removal of one."""

    number: int
    kind: str
    name: str
    content: Mapping[str, Any]  # that of a removal is the `kind` of what it removes
    package_version: str
    written_at: str
    inputs: str | None  # SHA-256 of the Parquet file with the configurations of an evaluated file
    checksum: str
    outcome: str = OPEN

    @property
    def subject(self) -> tuple[str, str]:
        """Return the kind and name of what it states or removes."""
        return (self.content["kind"] if self.kind == REMOVAL else self.kind, self.name)


@dataclass(frozen=True)
class Facts:
    """The intact entries of a folder, in the order of their numbers, and its damage."""

    folder: Path
    id: str  # unique; the database of the folder has it too
    entries: tuple[Entry, ...]
    damaged: tuple[int, ...] = ()  # lines with other content than was written, or of no entry
    lines: Mapping[int, int] = field(default_factory=dict)  # number of an entry -> its line
    lost_inputs: tuple[int, ...] = ()  # entries in force without their configurations

    @property
    def last(self) -> Entry | None:
        """Return the committed entry with the highest number."""
        return next((e for e in reversed(self.entries) if e.outcome == COMMITTED), None)

    @property
    def missing(self) -> list[int]:
        """Return the numbers without an entry: their lines are damaged, or were removed."""
        known = {entry.number for entry in self.entries}
        return sorted(set(range(1, max(known, default=0))) - known)

    @property
    def is_whole(self) -> bool:
        """Return whether every line is there and can be read, and no inputs are lost."""
        return not self.damaged and not self.missing and not self.lost_inputs

    @property
    def damage(self) -> str:
        """Return the lost parts in words; empty if the folder is whole."""
        parts = [f"line {line} is damaged" for line in self.damaged]
        if not self.damaged:  # otherwise these are the entries of the damaged lines
            parts += [f"entry {number} was removed" for number in self.missing]
        parts += [f"{INPUTS}/{number}.parquet is damaged" for number in self.lost_inputs]
        return ", ".join(parts)

    def with_inputs(self) -> Facts:
        """Return these facts with the `lost_inputs`: it reads every file of configurations."""
        lost = []
        for entry in self.live(with_open=True):
            if entry.inputs is not None:
                try:
                    self.inputs_of(entry)
                except InputError:
                    lost.append(entry.number)
        return replace(self, lost_inputs=tuple(lost))

    def live(self, *, with_open: bool = False) -> list[Entry]:
        """Return the entries in force: neither replaced nor removed by a later one.

        `with_open` counts open entries as committed, but for removals. Nobody was told that these
        were done, and without its database no one can say.
        """
        latest: dict[tuple[str, str], Entry] = {}
        for entry in self.entries:
            counts = entry.outcome == COMMITTED
            counts |= with_open and entry.outcome == OPEN and entry.kind != REMOVAL
            if counts:
                latest[entry.subject] = entry
        in_force = [entry for entry in latest.values() if entry.kind != REMOVAL]
        return sorted(in_force, key=lambda entry: entry.number)

    def inputs_of(self, entry: Entry) -> Path:
        """Return the file with the configurations of an entry.

        Raises `InputError` if the file is missing or is not the one that was written.
        """
        path = self.folder / INPUTS / f"{entry.number}.parquet"
        try:
            digest = digest_of(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}", _AGAIN) from None
        if digest != entry.inputs:
            raise InputError(f"{path}: its bytes are not those that were written", _AGAIN)
        return path


def folder_of(database: Path) -> Path:
    """Return the folder of facts of a database; its links are resolved."""
    file = database.resolve() if database.is_symlink() else database.absolute()
    return file.with_name(file.name + SUFFIX)


def is_folder(folder: Path) -> bool:
    """Return whether there is a folder of facts with a first line."""
    with suppress(OSError):
        return (folder / ENTRIES).stat().st_size > 0
    return False


def facts_of(database: Path) -> Facts | None:
    """Return the facts beside a database; None: there is no folder."""
    folder = folder_of(database)
    return read_facts(folder) if is_folder(folder) else None


def read_facts(folder: Path) -> Facts:
    """Return the content of a folder; refuse another folder, or one of a newer package.

    A last line that was cut while it was written is no entry: its transaction had not begun to
    commit.
    """
    path = folder / ENTRIES
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(
            f"{folder}: is no folder of facts: {path.name}: {error.strerror}",
            "name the folder that lies beside a database, FILE.facts",
        ) from None
    name = _read_head(lines[0], path)
    entries: dict[int, Entry] = {}
    lines_of: dict[int, int] = {}
    damaged = [] if name else [1]
    for number, line in enumerate(lines[1:-1], start=2):  # after the last \n is a line that was cut
        entry = _read_line(line, entries)
        if entry is None:
            damaged.append(number)
        else:
            lines_of.setdefault(entry.number, number)
            entries[entry.number] = entry
    if not name and not entries:
        raise InputError(
            f"{folder}: is no folder of facts: {path.name} has no line of one",
            f"name a folder that lies beside a database, FILE.facts; or {aside(folder)}",
        )
    return Facts(folder, name, tuple(entries.values()), tuple(damaged), lines_of)


def _read_head(line: bytes, path: Path) -> str:
    """Return the id of a folder; empty if its first line is damaged."""
    head = _json(line)
    if head.pop("checksum", None) != _checksum(head):
        return ""
    if head.get("format") != FORMAT:
        raise InputError(f'{path}: `format` is not "{FORMAT}"', "name the folder FILE.facts")
    version = head.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise InputError(
            f"{path}: `format_version` {version} is newer than this package, which reads "
            f"{FORMAT_VERSION}",
            "upgrade with `pip install --upgrade training-warehouse`",
        )
    return str(head.get("id", ""))


def _read_line(line: bytes, entries: dict[int, Entry]) -> Entry | None:
    """Return a new entry, or an earlier one with its outcome; None if the line is damaged."""
    record = _json(line)
    checksum = record.pop("checksum", None)
    for outcome in (COMMITTED, WITHDRAWN):
        if isinstance(number := record.get(outcome), int):
            earlier = entries.get(number)
            if earlier is None or earlier.checksum != checksum:
                return None
            return replace(earlier, outcome=outcome)
    last, number = next(reversed(entries), 0), record.get("number")
    if checksum != _checksum(record) or not isinstance(number, int) or number <= last:
        return None
    try:
        return Entry(**record, checksum=checksum)
    except TypeError:  # a line with other keys
        return None


def _json(line: bytes) -> dict[str, Any]:
    """Return the object of a line; empty if the line is damaged."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(record).encode()).hexdigest()


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, default=datetime.isoformat)


def new_entry(
    number: int, kind: str, name: str, content: Mapping[str, Any], inputs: str | None = None
) -> Entry:
    """Return an entry of this package, written now."""
    record = {
        "number": number,
        "kind": kind,
        "name": name,
        "content": json.loads(_text(content)),
        "package_version": __version__,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "inputs": inputs,
    }
    return Entry(**record, checksum=_checksum(record))


def last_outcome(folder: Path) -> tuple[str, int, str] | None:
    """Return id of the folder, number and checksum of its last entry, if that is committed.

    It reads the ends of the file alone. None: read the whole folder.
    """
    try:
        with (folder / ENTRIES).open("rb") as file:
            head = _json(file.readline(_HEAD_BYTES))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            *_, line, rest = b"\n", b"", *file.read().split(b"\n")
    except OSError:
        return None
    last = _json(line)
    if rest or COMMITTED not in last or head.pop("checksum", None) != _checksum(head):
        return None
    return str(head.get("id")), last[COMMITTED], str(last.get("checksum"))


def begin_folder(folder: Path) -> None:
    """Make a folder of facts without entries."""
    folder.mkdir()
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "id": uuid.uuid4().hex}
    _append(folder, [{**head, "checksum": _checksum(head)}])


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder of facts without entries, which gets its name when the block ends.

    Nothing may have that name. A killed process leaves no folder of that name.
    """
    partial = partial_path(folder)
    with named_errors(folder):
        remove_abandoned(folder)
        shutil.rmtree(partial, ignore_errors=True)
        begin_folder(partial)
    try:
        yield partial
        with named_errors(folder):
            flush_directory(partial)
            partial.rename(folder)
            flush_directory(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def append_entry(folder: Path, entry: Entry, outcome: str = OPEN) -> None:
    """Append an entry, with its outcome if that is known, and flush it to the disk."""
    record = {**_record(entry), "checksum": entry.checksum}
    with named_errors(folder):
        _append(folder, [record] if outcome == OPEN else [record, _outcome(entry, outcome)])


def append_copies(folder: Path, facts: Facts, entries: Iterable[Entry]) -> None:
    """Append entries of another folder, under the next numbers; leave out damaged inputs."""
    first = len(read_facts(folder).entries) + 1
    for number, entry in enumerate(entries, start=first):
        if entry.inputs is not None:
            with suppress(InputError):
                flushed_digest(shutil.copyfile(facts.inputs_of(entry), inputs_path(folder, number)))
        record = _record(replace(entry, number=number))
        append_entry(folder, Entry(**record, checksum=_checksum(record)), entry.outcome)


def append_outcome(folder: Path, entries: Iterable[Entry], outcome: str) -> None:
    """Append the outcome of entries. It need not reach the disk: the database knows it too."""
    if lines := [_outcome(entry, outcome) for entry in entries]:
        with suppress(OSError):
            _append(folder, lines, flushes=False)


def _record(entry: Entry) -> dict[str, Any]:
    """Return what the checksum of an entry is of."""
    record = dict(vars(entry))
    del record["checksum"], record["outcome"]
    return record


def _outcome(entry: Entry, outcome: str) -> dict[str, Any]:
    return {outcome: entry.number, "checksum": entry.checksum}


def inputs_path(folder: Path, number: int) -> Path:
    """Return where the configurations of an entry are written; its directory exists."""
    path = folder / INPUTS / f"{number}.parquet"
    with named_errors(folder):
        path.parent.mkdir(exist_ok=True)
    return path


def flushed_digest(path: Path) -> str:
    """Flush a file to the disk and return the SHA-256 of its bytes."""
    with named_errors(path), path.open("rb+") as file:
        os.fsync(file.fileno())
        flush_directory(path.parent)
    return digest_of(path)


def remove_dead_inputs(folder: Path) -> None:
    """Remove the configurations of entries that are replaced, removed or withdrawn."""
    with suppress(OSError, InputError):
        files = list((folder / INPUTS).iterdir())
        facts = read_facts(folder)
        undecided = [entry for entry in facts.entries if entry.outcome == OPEN]
        needed = {f"{entry.number}.parquet" for entry in [*facts.live(), *undecided]}
        for path in files:
            if facts.is_whole and path.name not in needed:
                path.unlink()


def free_name(path: Path, ending: str) -> Path:
    """Return a name that no file has: `path` with the ending, and a number from the second on."""
    numbers = itertools.chain([""], itertools.count(2))
    names = (path.with_name(f"{path.name}{ending}{number}") for number in numbers)
    return next(name for name in names if not os.path.lexists(name))


def aside(path: Path) -> str:
    """Return the command that moves a file or folder aside, over nothing else."""
    free = free_name(path, ASIDE)
    return f"move it aside (`mv {shlex.quote(str(path))} {shlex.quote(str(free))}`)"


def rebuild_command(database: Path) -> str:
    """Return the command that makes a database again from its facts."""
    return f"warehouse rebuild --db {shlex.quote(str(database))}"


def refuse_abandoned_facts(database: Path) -> None:
    """Raise `DatabaseError` if a missing database left facts: a new one would hide them."""
    facts = facts_of(database)
    if facts is not None and (live := facts.live(with_open=True)):
        raise DatabaseError(
            f"{database}: is gone, but {facts.folder} has {len(live)} facts of it",
            f"`{rebuild_command(database)}` makes the database again; to "
            f"begin with an empty one, {aside(facts.folder)}",
        )


def _append(folder: Path, records: Iterable[Mapping[str, Any]], *, flushes: bool = True) -> None:
    """Append lines. What a killed process or a full disk left of a line is cut off before."""
    lines = "".join(f"{_text(record)}\n" for record in records).encode()
    with (folder / ENTRIES).open("ab+", buffering=0) as file:  # a buffer would be written later
        file.seek(0)
        whole = (file.read() or b"").rfind(b"\n") + 1
        file.truncate(whole)
        try:
            while lines:
                lines = lines[file.write(lines) :]
            if flushes:
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(whole)
            raise


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Raise errors of the system as `DatabaseError` with the name of a file or folder."""
    try:
        yield
    except OSError as error:
        named = target_of_partial(path)
        raise space_error(named, str(error)) or DatabaseError(
            f"{named}: cannot be written: {error.strerror or error}",
            "let this user write there: facts are stored in it before they are in the database",
        ) from error
