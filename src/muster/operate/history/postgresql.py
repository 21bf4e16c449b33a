"""The history in PostgreSQL (12 or newer). Needs the extra `postgres`."""

from __future__ import annotations

from typing import Any

from muster.errors import BadInputError, MusterError
from muster.operate.history.address import Address
from muster.operate.history.store import Connection, Dialect, unreachable

CONNECT_S = 10
STATEMENT_MS = 120_000
"""No statement may hang for longer: the server ends it."""
UNANSWERED_MS = 60_000
"""A server that is gone without a word is given up after this time."""
LOCK = 7_305_613_180
"""Number of the advisory lock under which the schema is changed; any number that others do not use."""


def driver() -> Any:
    """The module of the driver. Raises BadInputError where it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise BadInputError(
            "History in PostgreSQL needs the extra 'postgres', which is not installed; "
            "run pip install 'muster-gpu[postgres]'."
        ) from error
    return psycopg


def connect(address: Address) -> tuple[Connection, Dialect]:
    """Connect; the database itself must be there. Raises BadInputError, UnreachableError."""
    psycopg = driver()
    try:
        connection: Any = psycopg.connect(
            address.target,
            autocommit=True,
            connect_timeout=CONNECT_S,
            application_name="muster",
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=3,
            tcp_user_timeout=UNANSWERED_MS,
            options=f"-c statement_timeout={STATEMENT_MS}",
        )
    except psycopg.ProgrammingError as error:
        # The text of this error repeats the address.
        raise BadInputError(f"The address {address.shown} cannot be used; check its options.") from error
    except psycopg.Error as error:
        raise unreachable(address, error) from error

    def problem(error: Exception) -> MusterError | None:
        return unreachable(address, error) if isinstance(error, psycopg.Error) else None

    dialect = Dialect(
        mark="%s",
        begin_write=("BEGIN",),
        begin_migration=("BEGIN", f"SELECT pg_advisory_xact_lock({LOCK})"),
        begin_read=("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",),
        table_exists="SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass('muster_meta')",
        problem=problem,
    )
    return connection, dialect
