"""The history in one file. For one controller on one disk; several replicas need PostgreSQL."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from muster.errors import BadInputError, MusterError
from muster.operate.history.address import Address
from muster.operate.history.store import Connection, Dialect, unreachable

BUSY_S = 10.0
"""How long a statement waits for another process that writes."""


def connect(address: Address, create: bool) -> tuple[Connection, Dialect]:
    """Open the file. Raises BadInputError when it is not there or is no database, UnreachableError."""
    path = Path(address.target)
    if not create and not path.exists():
        raise BadInputError(f"There is no file {address.shown}; name the one that the controller writes (--history).")
    mode = "rwc" if create else "ro"
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        if create:
            # Readers do not wait for the writer, and a power cut loses the last rows at most.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.Error as error:
        found = _problem(address, error)
        assert found is not None  # noqa: S101 - it is an error of the driver
        raise found from error
    dialect = Dialect(
        mark="?",
        begin_write=("BEGIN IMMEDIATE",),
        begin_migration=("BEGIN IMMEDIATE",),
        begin_read=("BEGIN",),
        table_exists="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'muster_meta'",
        problem=lambda e: _problem(address, e),
    )
    return connection, dialect


def _problem(address: Address, error: Exception) -> MusterError | None:
    if not isinstance(error, sqlite3.Error):
        return None
    if isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
        return BadInputError(f"{address.shown} is no SQLite database; name another file.")
    return unreachable(address, error)
