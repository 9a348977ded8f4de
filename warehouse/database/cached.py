"""The cache directory: documents that are computed from the package or from few facts.

Each is one file, named by a hash of its inputs: a line with the digest of the document, then the
document as JSON. The cache is optional: a directory that cannot be read or written is not used, and
a damaged file in it is replaced.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from estimators import registry
from warehouse import settings
from warehouse.database.source import package_hash

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_KEPT_FILES = 64
"""Number of documents of a kind that are kept by default."""


def cached(kind: str, facts: object, make: Callable[[], Any], kept_files: int | None = None) -> Any:
    """Return the document that `make` returns, from the cache if it is there.

    Estimators outside the package may change without a change of the package. If one is registered,
    nothing is cached.

    Parameters
    ----------
    kind
        Beginning of the file's name.
    facts
        All inputs of the document except the source of the package, JSON-able.
    make
        Returns a JSON-able document. Tuples in it become lists, kept or not.
    kept_files
        Number of documents of the kind that stay, the last used ones. None: the default.
    """
    directory = settings.cache()
    if directory is None or not _is_packaged():
        return _plain(make())
    content = f"{package_hash()} {facts!r}"
    key = blake2b(content.encode(), digest_size=16).hexdigest()
    path = directory / f"{kind}-{key}.txt"
    with suppress(OSError, ValueError):
        digest, _, text = path.read_text(encoding="utf-8").partition("\n")
        if digest == _digest(text):
            with suppress(OSError):  # a directory that may only be read
                os.utime(path)
            return json.loads(text)
    text = json.dumps(make())
    made = json.loads(text)
    with suppress(OSError):
        _store(path, f"{_digest(text)}\n{text}")
        _remove_old(directory, kind, kept_files or _KEPT_FILES)
    return made


def remembered(name: str) -> Any:
    """Return the document that `remember` kept under a name, or None."""
    directory = settings.cache()
    if directory is None:
        return None
    with suppress(OSError, ValueError):
        return json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
    return None


def remember(name: str, document: object) -> None:
    """Keep a document about this machine, in place of the former one."""
    directory = settings.cache()
    if directory is not None:
        with suppress(OSError):
            _store(directory / f"{name}.json", json.dumps(document))


def _is_packaged() -> bool:
    return all(place.startswith("estimators.") for place in registry.ESTIMATORS.values())


def _plain(document: object) -> Any:
    """Return a document as a file gives it back."""
    return json.loads(json.dumps(document))


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _store(path: Path, text: str) -> None:
    """Write a file that appears whole under its name, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _remove_old(directory: Path, kind: str, kept_files: int) -> None:
    used = sorted(directory.glob(f"{kind}-*.txt"), key=_last_used, reverse=True)
    for path in used[kept_files:]:
        with suppress(OSError):
            path.unlink()


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process removed it
        return 0.0
