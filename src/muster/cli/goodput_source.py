"""What `muster goodput` reads: a history, or a live cluster; and the logs of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from muster.cli.cluster import decoder, read_all, with_cluster
from muster.cli.input_files import input_of
from muster.errors import BadInputError
from muster.kube.api import NODE_HEALTHS, NODES, PODS, REPAIRS, KubeApi
from muster.operate.history.address import parse
from muster.operate.history.facts import interval, moment, records_of
from muster.operate.history.store import open_store
from muster.operate.jobs import JobWork, Wait, waits
from muster.operate.ledger import Interval, NodeRecord, microseconds
from muster.plain_text import plain
from muster.read.training import report
from muster.read.training.interval_log import IntervalLog
from muster.read.training.intervals import intervals_of
from muster.resources.base import ObjectMeta
from muster.resources.repair import Repair
from muster.resources.topology import pool_of

MOST_LOGS = 64


@dataclass(frozen=True)
class Source:
    """`work` and `delays` (node, kind, interval) are None where no history is kept. `notes` are for people."""

    records: tuple[NodeRecord, ...]
    work: tuple[JobWork, ...] | None = None
    delays: tuple[tuple[str, str, Interval], ...] | None = None
    notes: tuple[str, ...] = ()

    def only(self, records: Sequence[NodeRecord]) -> Source:
        """The part about these nodes."""
        names = {r.name for r in records}
        work = tuple(w for w in self.work if w.node in names) if self.work is not None else None
        delays = tuple(d for d in self.delays if d[0] in names) if self.delays is not None else None
        return replace(self, records=tuple(records), work=work, delays=delays)

    def waits(self, start: datetime, end: datetime) -> tuple[Wait, ...] | None:
        """What nodes waited for in the window."""
        return waits(self.delays, start, end) if self.delays is not None else None


def from_history(url: str, start: datetime, end: datetime) -> Source:
    """What the history knows of [start, end). Raises BadInputError, UnreachableError."""
    store = open_store(parse(url), create=False)
    try:
        facts = store.read(microseconds(start), microseconds(end))
    finally:
        store.close()
    notes = []
    if facts.kept_from_us is not None and facts.kept_from_us > microseconds(start):
        kept = moment(facts.kept_from_us)
        notes.append(f"What was before {kept:%Y-%m-%d %H:%M} UTC has been deleted (--history-retention).")
    return Source(
        records=records_of(facts),
        work=tuple(JobWork(w.job, w.node, interval(w.from_us, w.to_us)) for w in facts.work),
        delays=tuple((d.node, d.kind, interval(d.from_us, d.to_us)) for d in facts.delays),
        notes=tuple(notes),
    )


class _Node(msgspec.Struct):
    metadata: ObjectMeta


def from_cluster(kubeconfig: str | None, context: str | None, now: datetime) -> Source:
    """What the cluster holds now. Raises what `with_cluster` does."""

    async def read(api: KubeApi) -> Source:
        from muster.operate.records import pod_use, snapshot_records
        from muster.operate.views import node_health

        healths = await read_all(api, NODE_HEALTHS, node_health)
        uses = await read_all(api, PODS, pod_use)
        repairs = await read_all(api, REPAIRS, decoder(Repair))
        found: list[Any] = await read_all(api, NODES, decoder(_Node))
        pools = {n.metadata.name: pool_of(n.metadata.labels) for n in found}
        return Source(snapshot_records(healths, uses, repairs, pools, now))

    return with_cluster(kubeconfig, context, read)


def read_job_logs(given: Sequence[str]) -> dict[str, IntervalLog]:
    """Job -> where its time went, from `JOB=FILE`; files of one job are read together. Raises BadInputError."""
    files: dict[str, list[str]] = {}
    for text in given[: MOST_LOGS + 1]:
        job, separator, file = text.partition("=")
        if not separator or not job or not file:
            raise BadInputError(f"--job-log {plain(text, 80)!r} is not JOB=FILE; write namespace/name=FILE.")
        files.setdefault(job, []).append(file)
    if len(given) > MOST_LOGS:
        raise BadInputError(f"More than {MOST_LOGS} logs were given; ask for fewer jobs at once.")
    found = {}
    for job, names in files.items():
        log = report.read([input_of(name) for name in names], {}).log
        parts = intervals_of(log) if log is not None else None
        if parts is None:
            raise BadInputError(
                f"{names[0]} tells no times of training steps, so it does not say what {plain(job, 80)} made of its "
                "time; 'muster read' says what it is."
            )
        found[job] = parts
    return found


def require_jobs(logs: Mapping[str, IntervalLog], work: Iterable[JobWork]) -> None:
    """Raises BadInputError for a log of a job that the history does not know in the window."""
    known = {w.job for w in work}
    for job in logs:
        if job not in known:
            some = ", ".join(plain(name, 80) for name in sorted(known)[:10])
            raise BadInputError(f"No job {plain(job, 80)} ran in the window; those that did: {some or 'none'}.")
