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
from warehouse.database import resources
from warehouse.database.stamp import package_hash
from warehouse.files import abandoned, put_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MOST = 64
"""Number of documents of a kind that stay by default, the last used ones."""


def cached(kind: str, facts: object, make: Callable[[], Any], most: int = _MOST) -> Any:
    """Return the JSON-able document that `make` returns, from the cache if it is there.

    A release has some documents with it, which are taken where the cache lacks them. `facts` are
    all its inputs except the source of the package. Estimators outside the package may
    change without a change of the package: if one is registered, nothing is cached. Tuples become
    lists in any case.
    """
    directory = settings.cache()
    packaged = all(module.startswith("estimators.") for module in registry.ESTIMATORS.values())
    if directory is None or not packaged:
        return json.loads(json.dumps(make()))
    content = f"{package_hash()} {facts!r}"
    path = directory / f"{kind}-{_digest(content)}.txt"
    for place in (path, resources.cache_directory() / path.name):
        with suppress(OSError, ValueError):
            digest, _, text = place.read_text(encoding="utf-8").partition("\n")
            if digest == _digest(text):
                note_use(path)
                return json.loads(text)
    text = json.dumps(make())
    with suppress(OSError):
        _store(path, f"{_digest(text)}\n{text}")
        remove_old(directory, f"{kind}-*.txt", most)
    return json.loads(text)


def remembered(name: str) -> Any:
    """Return the document that `remember` stored under a name, or None."""
    directory = settings.cache()
    if directory is None:
        return None
    with suppress(OSError, ValueError):
        return json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
    return None


def remember(name: str, document: object) -> None:
    """Store a document about this machine, in place of the former one."""
    directory = settings.cache()
    if directory is not None:
        with suppress(OSError):
            _store(directory / f"{name}.json", json.dumps(document))


def note_use(path: Path) -> None:
    """Make a file of the cache the last used one."""
    with suppress(OSError):  # a directory that may only be read
        os.utime(path)


def remove_old(directory: Path, pattern: str, most: int) -> None:
    """Remove all but the last used files of a kind, and what killed processes left."""
    used = sorted(directory.glob(pattern), key=_last_used, reverse=True)
    for path in (*used[most:], *abandoned(directory)):
        with suppress(OSError):
            path.unlink()


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process removed it
        return 0.0


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _store(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with put_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
