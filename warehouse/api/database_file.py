"""A database file that is open during a call, or during a ``with`` block."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from estimators.contract import RefusedError
from warehouse import settings
from warehouse.database.access import access_for, accessing
from warehouse.database.connection import open_for_read
from warehouse.database.failures import database_error
from warehouse.errors import InputError, UsageError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from duckdb import DuckDBPyConnection


class DatabaseFile:
    """A database file, opened for each call or kept open for reading.

    Parameters
    ----------
    path
        The file; None: the one that `warehouse config` shows.
    writable
        Whether methods may write; a missing file is then created.
    wait
        Seconds to wait for a database that another process has open; None: 30 to write, 0.2 to
        read. While that process goes on writing, a reader then gets the rows that it published
        last; a warning says how old they are.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        writable: bool = False,
        wait: float | None = None,
    ) -> None:
        self.path = Path(path) if path is not None else settings.database()
        self.writable = writable
        self.wait = wait
        self._is_kept_open = False
        self._kept: DuckDBPyConnection | None = None

    def __repr__(self) -> str:
        return f"Warehouse({str(self.path)!r}, writable={self.writable})"

    def __enter__(self) -> Self:
        """Keep the file open for reading until the block ends."""
        self._is_kept_open = True
        if not self.writable or self.path.exists():
            with self._access():
                self._keep()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file; relations of the block end."""
        self._is_kept_open = False
        self._release()

    def _keep(self) -> DuckDBPyConnection:
        """Return the connection of the ``with`` block, opened where it is closed."""
        if self._kept is None:
            self._kept = open_for_read(self.path)
        return self._kept

    def _release(self) -> None:
        """Close the connection of the ``with`` block."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    @contextmanager
    def _reading(self) -> Iterator[DuckDBPyConnection]:
        """Yield a connection for this call; its temporary objects end with it."""
        with self._explained():
            if self._is_kept_open:
                with self._keep().cursor() as connection:
                    yield connection
            else:
                with open_for_read(self.path) as connection:
                    yield connection

    @contextmanager
    def _writing(self, method: str) -> Iterator[None]:
        """Close the file for a writer, which opens it alone."""
        if not self.writable:
            raise UsageError(
                f"{self.path}: `{method}` writes, and this warehouse is read-only",
                f"open it with Warehouse({str(self.path)!r}, writable=True)",
            )
        self._release()
        yield

    def _access(self) -> AbstractContextManager[None]:
        """Return a block in which the file is opened as this warehouse says."""
        access = access_for(self.wait, writes=self.writable, say=_warn)
        return accessing(replace(access, upgrades=self.writable))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Open the file as this warehouse says, and turn errors into those of the project."""
        try:
            with self._access():
                yield
        except RefusedError as error:
            raise InputError.from_refusals(error.refusals) from None
        except duckdb.Error as error:
            raise database_error(error, self.path) from error


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=3)
