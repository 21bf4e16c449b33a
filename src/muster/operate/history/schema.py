"""Tables of the history, one schema for SQLite and PostgreSQL, with numbered migrations. Pure: SQL as text.

What is written twice, in another order, or by two controllers for a moment, ends in the same rows: a beginning is the
earliest that was told, an end the earliest, how long was watched the longest.
"""

from __future__ import annotations

from dataclasses import fields

from muster.operate.history.facts import (
    DelayRow,
    NodeRow,
    RepairRow,
    Row,
    StepRow,
    WatchedRow,
    WorkRow,
)

TABLES: dict[type[Row], str] = {
    NodeRow: "muster_nodes",
    StepRow: "muster_steps",
    WorkRow: "muster_work",
    RepairRow: "muster_repairs",
    WatchedRow: "muster_watched",
    DelayRow: "muster_delays",
}
KEYS: dict[type[Row], tuple[str, ...]] = {
    NodeRow: ("name", "uid"),
    StepRow: ("node", "at_us", "state", "episode"),
    WorkRow: ("pod", "node"),
    RepairRow: ("name", "at_us"),
    WatchedRow: ("session",),
    DelayRow: ("node", "kind", "from_us"),
}

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE muster_nodes (name TEXT NOT NULL, uid TEXT NOT NULL, pool TEXT NOT NULL,
        from_us BIGINT NOT NULL, to_us BIGINT, PRIMARY KEY (name, uid))""",
        """CREATE TABLE muster_steps (node TEXT NOT NULL, at_us BIGINT NOT NULL, state TEXT NOT NULL,
        episode TEXT NOT NULL, cause_kind TEXT NOT NULL, cause_name TEXT NOT NULL, seq BIGINT NOT NULL,
        PRIMARY KEY (node, at_us, state, episode))""",
        """CREATE TABLE muster_work (pod TEXT NOT NULL, node TEXT NOT NULL, job TEXT NOT NULL,
        from_us BIGINT NOT NULL, to_us BIGINT, PRIMARY KEY (pod, node))""",
        """CREATE TABLE muster_repairs (name TEXT NOT NULL, node TEXT NOT NULL, at_us BIGINT NOT NULL,
        rung TEXT NOT NULL, attempt BIGINT NOT NULL, PRIMARY KEY (name, at_us))""",
        """CREATE TABLE muster_watched (session TEXT NOT NULL PRIMARY KEY, from_us BIGINT NOT NULL,
        to_us BIGINT NOT NULL)""",
    ),
    (
        """CREATE TABLE muster_delays (node TEXT NOT NULL, kind TEXT NOT NULL, from_us BIGINT NOT NULL, to_us BIGINT,
        PRIMARY KEY (node, kind, from_us))""",
        "CREATE INDEX muster_work_by_time ON muster_work (to_us, from_us)",
        "CREATE INDEX muster_steps_by_time ON muster_steps (at_us)",
    ),
)
"""Migration N (from 1) leads from version N - 1 to N. Never changed once released; add another one."""

VERSION = len(MIGRATIONS)
META = "CREATE TABLE IF NOT EXISTS muster_meta (name TEXT NOT NULL PRIMARY KEY, value BIGINT NOT NULL)"
VERSION_KEY, KEPT_FROM_KEY = "version", "kept_from_us"

# A stay outside of service is told from its beginning, so that steps are kept from the last time in service on.
_LAST_IN_SERVICE = """(SELECT max(s.at_us) FROM muster_steps s
WHERE s.node = muster_steps.node AND s.at_us < {mark} AND s.state = 'InService')"""


def columns(row: type[Row]) -> tuple[str, ...]:
    """Names of the columns, those of the fields."""
    return tuple(field.name for field in fields(row))


def upsert(row: type[Row], mark: str) -> str:
    """The statement that tells a row. `mark` is the placeholder of the driver."""
    names, table = columns(row), TABLES[row]
    keys = KEYS[row]
    rules = [rule for name in names if name not in keys and (rule := _rule(row, table, name))]
    action = f"UPDATE SET {', '.join(rules)}" if rules else "NOTHING"
    marks = ", ".join(mark for _ in names)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) ON CONFLICT ({', '.join(keys)}) DO {action}"  # noqa: S608


def _rule(row: type[Row], table: str, name: str) -> str:
    old, new = f"{table}.{name}", f"excluded.{name}"
    if row is WatchedRow and name == "to_us":
        return f"{name} = CASE WHEN {new} > {old} THEN {new} ELSE {old} END"
    if name == "from_us":
        return f"{name} = CASE WHEN {new} < {old} THEN {new} ELSE {old} END"
    if name == "to_us":
        return f"{name} = CASE WHEN {old} IS NULL OR {new} < {old} THEN {new} ELSE {old} END"
    if name == "pool":
        return f"{name} = {new}"
    return ""


def select(row: type[Row], mark: str) -> tuple[str, tuple[str, ...]]:
    """The statement that reads what matters to a window, and which of its ends (`start`, `end`) each mark takes."""
    chosen = f"SELECT {', '.join(columns(row))} FROM {TABLES[row]}"  # noqa: S608 - names of ours
    if row is StepRow:
        last = _LAST_IN_SERVICE.format(mark=mark)
        return f"{chosen} WHERE at_us < {mark} AND at_us >= COALESCE({last}, at_us)", ("end", "start")
    if row is RepairRow:
        # A repair that was ordered before the window may go on inside it.
        return f"{chosen} WHERE at_us < {mark}", ("end",)
    if row is WatchedRow:
        return f"{chosen} WHERE from_us < {mark} AND to_us > {mark}", ("end", "start")
    return f"{chosen} WHERE from_us < {mark} AND (to_us IS NULL OR to_us > {mark})", ("end", "start")


def prunes(mark: str) -> tuple[tuple[str, int], ...]:
    """Statements that delete what ended before a moment, each with how often it takes that moment."""
    ended = [
        (f"DELETE FROM {TABLES[row]} WHERE to_us < {mark}", 1)  # noqa: S608
        for row in (NodeRow, WorkRow, WatchedRow, DelayRow)
    ]
    last = _LAST_IN_SERVICE.format(mark=mark)
    return (
        *ended,
        (f"DELETE FROM muster_repairs WHERE at_us < {mark}", 1),  # noqa: S608
        (f"DELETE FROM muster_steps WHERE at_us < {mark} AND at_us < {last}", 2),  # noqa: S608
        # Of a node that is gone nothing needs to be told from the beginning.
        (
            f"DELETE FROM muster_steps WHERE at_us < {mark} AND NOT EXISTS "  # noqa: S608
            "(SELECT 1 FROM muster_nodes n WHERE n.name = muster_steps.node)",
            1,
        ),
    )
