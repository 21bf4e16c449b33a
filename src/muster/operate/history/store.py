"""The history in a database: telling rows, reading a window, deleting what is old. The same for both engines.

A connection is used by one thread at a time. What a driver raises becomes an UnreachableError or a BadInputError that
names the database without its password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from muster.errors import BadInputError, MusterError, UnreachableError
from muster.operate.history import schema
from muster.operate.history.address import Address, Engine
from muster.operate.history.facts import (
    ROWS,
    DelayRow,
    Facts,
    NodeRow,
    RepairRow,
    Row,
    StepRow,
    WatchedRow,
    WorkRow,
)
from muster.plain_text import plain

R = TypeVar("R", NodeRow, StepRow, WorkRow, RepairRow, WatchedRow, DelayRow)
CHUNK = 5000
"""Rows that are fetched at once."""


class Connection(Protocol):
    """What both drivers offer."""

    def cursor(self) -> Any: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Dialect:
    """What differs between the engines. `begin_write` also keeps others from migrating at the same time."""

    mark: str
    begin_write: tuple[str, ...]
    begin_migration: tuple[str, ...]
    begin_read: tuple[str, ...]
    table_exists: str
    problem: Callable[[Exception], MusterError | None]
    """What to raise for an error of the driver; None: it is none."""


class HistoryStore:
    """One open history. Close it; it may not be used by two threads at once."""

    def __init__(self, address: Address, connection: Connection, dialect: Dialect) -> None:
        self.address = address
        self._connection = connection
        self._dialect = dialect

    def close(self) -> None:
        self._connection.close()

    def migrate(self) -> int:
        """Bring the schema up to date, alone; the version that it had (0: there was none).

        Raises BadInputError for one that is newer than this Muster, UnreachableError.
        """
        with self._transaction(self._dialect.begin_migration) as cursor:
            cursor.execute(schema.META)
            found = self._version(cursor)
            self._not_newer(found)
            for statements in schema.MIGRATIONS[found:]:
                for statement in statements:
                    cursor.execute(statement)
            if found < schema.VERSION:
                self._set(cursor, schema.VERSION_KEY, schema.VERSION)
        return found

    def write(self, rows: Iterable[Row]) -> None:
        """Tell rows, all or none. Raises UnreachableError."""
        by_kind: dict[type[Row], list[tuple[Any, ...]]] = {}
        for row in rows:
            values = tuple(getattr(row, name) for name in schema.columns(type(row)))
            by_kind.setdefault(type(row), []).append(values)
        with self._transaction(self._dialect.begin_write) as cursor:
            # In one order always, by table and key: two controllers for a moment must not wait for each other.
            for kind in ROWS:
                if kind in by_kind:
                    told = sorted(by_kind[kind], key=lambda values: tuple(map(str, values)))
                    cursor.executemany(schema.upsert(kind, self._dialect.mark), told)

    def read(self, start_us: int, end_us: int) -> Facts:
        """All that matters to [start, end), as of one moment. Raises BadInputError, UnreachableError."""
        with self._transaction(self._dialect.begin_read) as cursor:
            self._ready(cursor)
            return Facts(
                nodes=self._rows(cursor, NodeRow, start_us, end_us),
                steps=self._rows(cursor, StepRow, start_us, end_us),
                work=self._rows(cursor, WorkRow, start_us, end_us),
                repairs=self._rows(cursor, RepairRow, start_us, end_us),
                watched=self._rows(cursor, WatchedRow, start_us, end_us),
                delays=self._rows(cursor, DelayRow, start_us, end_us),
                kept_from_us=self._get(cursor, schema.KEPT_FROM_KEY),
            )

    def unfinished(self) -> tuple[tuple[Row, ...], int | None]:
        """Rows without an end, and until when anybody watched (None: nobody ever did). Raises UnreachableError."""
        with self._transaction(self._dialect.begin_read) as cursor:
            found: list[Row] = [
                *self._open_rows(cursor, NodeRow),
                *self._open_rows(cursor, WorkRow),
                *self._open_rows(cursor, DelayRow),
            ]
            cursor.execute("SELECT max(to_us) FROM muster_watched")
            (last,) = cursor.fetchone()
        return tuple(found), last

    def prune(self, before_us: int) -> int:
        """Delete what ended before `before_us` and remember that; how many rows that were. Raises UnreachableError.

        Of a node that is still there, the way to its present state is kept.
        """
        deleted = 0
        with self._transaction(self._dialect.begin_write) as cursor:
            for statement, times in schema.prunes(self._dialect.mark):
                cursor.execute(statement, (before_us,) * times)
                deleted += max(0, cursor.rowcount)
            if (self._get(cursor, schema.KEPT_FROM_KEY) or 0) < before_us:
                self._set(cursor, schema.KEPT_FROM_KEY, before_us)
        return deleted

    @contextmanager
    def _transaction(self, begin: Sequence[str]) -> Iterator[Any]:
        cursor = None
        try:
            cursor = self._connection.cursor()
            for statement in begin:
                cursor.execute(statement)
            yield cursor
            cursor.execute("COMMIT")
        except BaseException as error:
            if cursor is not None:
                self._roll_back(cursor)
            found = self._dialect.problem(error) if isinstance(error, Exception) else None
            if found is None:
                raise
            raise found from error
        finally:
            if cursor is not None:
                cursor.close()

    def _roll_back(self, cursor: Any) -> None:
        try:
            cursor.execute("ROLLBACK")
        except Exception as error:
            # The connection is broken; the first error is the one to tell.
            if self._dialect.problem(error) is None:
                raise

    def _ready(self, cursor: Any) -> None:
        cursor.execute(self._dialect.table_exists)
        found = self._version(cursor) if cursor.fetchone() is not None else 0
        if found == 0:
            raise BadInputError(
                f"{self.address.shown} holds no history of Muster yet; run a controller with --history first."
            )
        self._not_newer(found)
        if found < schema.VERSION:
            raise BadInputError(
                f"The history in {self.address.shown} is of an older Muster (version {found}, this one reads "
                f"{schema.VERSION}); start a controller of this version once, it brings it up to date."
            )

    def _not_newer(self, found: int) -> None:
        if found > schema.VERSION:
            raise BadInputError(
                f"The history in {self.address.shown} was written by a newer Muster (version {found}, this one knows "
                f"{schema.VERSION}); use that version of Muster."
            )

    def _version(self, cursor: Any) -> int:
        return self._get(cursor, schema.VERSION_KEY) or 0

    def _get(self, cursor: Any, name: str) -> int | None:
        cursor.execute(f"SELECT value FROM muster_meta WHERE name = {self._dialect.mark}", (name,))  # noqa: S608
        found = cursor.fetchone()
        return int(found[0]) if found is not None else None

    def _set(self, cursor: Any, name: str, value: int) -> None:
        mark = self._dialect.mark
        cursor.execute(
            f"INSERT INTO muster_meta (name, value) VALUES ({mark}, {mark}) "  # noqa: S608
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )

    def _open_rows(self, cursor: Any, kind: type[R]) -> Iterator[R]:
        names = ", ".join(schema.columns(kind))
        cursor.execute(f"SELECT {names} FROM {schema.TABLES[kind]} WHERE to_us IS NULL")  # noqa: S608
        return _fetched(cursor, kind)

    def _rows(self, cursor: Any, kind: type[R], start_us: int, end_us: int) -> tuple[R, ...]:
        statement, takes = schema.select(kind, self._dialect.mark)
        cursor.execute(statement, tuple(end_us if end == "end" else start_us for end in takes))
        return tuple(_fetched(cursor, kind))


def _fetched(cursor: Any, kind: type[R]) -> Iterator[R]:
    while batch := cursor.fetchmany(CHUNK):
        for values in batch:
            yield kind(*values)


def open_store(address: Address, *, create: bool) -> HistoryStore:
    """Connect. `create`: a file that is not there is made. Raises BadInputError, UnreachableError."""
    match address.engine:
        case Engine.SQLITE:
            from muster.operate.history import sqlite

            connection, dialect = sqlite.connect(address, create=create)
        case Engine.POSTGRESQL:
            from muster.operate.history import postgresql

            connection, dialect = postgresql.connect(address)
    return HistoryStore(address, connection, dialect)


def require_driver(address: Address) -> None:
    """Raises BadInputError where the extra that the engine needs is not installed."""
    if address.engine is Engine.POSTGRESQL:
        from muster.operate.history import postgresql

        postgresql.driver()


def unreachable(address: Address, error: Exception) -> UnreachableError:
    """What a driver says, on one line. Drivers do not repeat passwords, but may repeat what a server says."""
    words = plain(" ".join(str(error).split()), 300).rstrip(".") or type(error).__name__
    return UnreachableError(f"The history in {address.shown} cannot be used: {words}.")
