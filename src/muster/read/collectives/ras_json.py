"""Reads the JSON of NCCL's state query (`ncclras -f json`, NCCL 2.28 and later)."""

from __future__ import annotations

import json
import re
from typing import Any

from muster.read.collectives.ras_state import Counts, Member, Peer, Row, Section, Snapshot

IN_PROGRESS = 7
"""`ncclInProgress`: no error."""
MAX_ANSWERS = 1000
_LACKS_COMMA = re.compile(r'(?<=[\d"}\]el])(\s*\n\s*)(?=")')
"""NCCL 2.28 leaves out the comma before `status` of a missing rank."""


def snapshots(file: str, text: str) -> list[Snapshot]:
    """All answers in a text, oldest first. An answer that breaks off gives a truncated snapshot."""
    decoder = json.JSONDecoder()
    repaired = _LACKS_COMMA.sub(lambda m: "," + m[1], text)
    found: list[Snapshot] = []
    at = repaired.find("{")
    while at >= 0 and len(found) < MAX_ANSWERS:
        try:
            answer, end = decoder.raw_decode(repaired, at)
        except (ValueError, RecursionError):
            found.append(Snapshot(file, truncated=1))
            break
        if isinstance(answer, dict) and isinstance(answer.get("communicators"), list):
            found.append(_snapshot(file, answer))
        at = repaired.find("{", end)
    return found


def _snapshot(file: str, answer: dict[str, Any]) -> Snapshot:
    now = Snapshot(file, version=_text(answer.get("nccl_version")))
    nodes: dict[str, None] = {}
    processes: dict[tuple[str, int], None] = {}
    gpus: dict[tuple[str, int], None] = {}
    for position, comm in enumerate(answer["communicators"]):
        if not isinstance(comm, dict):
            now.truncated += 1
            continue
        ranks, missing = _entries(comm.get("ranks")), _entries(comm.get("missing_ranks"))
        for entry in [*ranks, *missing]:
            host, pid, gpu = _text(entry.get("host")), _int(entry.get("pid")), _int(entry.get("nvml_dev"))
            if host is not None:
                nodes[host] = None
                if pid is not None:
                    processes[(host, pid)] = None
                if gpu is not None:
                    gpus[(host, gpu)] = None
        _communicator(now, position, comm, ranks, missing)
    now.job = {"nodes": len(nodes), "processes": len(processes), "gpus": len(gpus)}
    ras = answer.get("ras")
    now.timeouts = (_int(ras.get("timeouts_count")) or 0) if isinstance(ras, dict) else 0
    return now


def _communicator(
    now: Snapshot, position: int, comm: dict[str, Any], ranks: list[dict[str, Any]], missing: list[dict[str, Any]]
) -> None:
    digest = (_text(comm.get("hash")) or "").removeprefix("0x")
    identity = f"#{position}-0"
    errors: list[str] = []

    def section(error: str) -> Section:
        made = Section(identity, digest, error, 1, f"{identity} ({digest}) {error}")
        now.sections.append(made)
        errors.append(error)
        return made

    if missing:
        made = section("INCOMPLETE")
        made.missing = len(missing)
        made.members = [member for entry in missing if (member := _member(entry)) is not None]
        for entry in missing:
            _missing(now, entry)
    failed = {
        rank: code for entry in ranks if (rank := _int(entry.get("rank"))) is not None and (code := _error(entry))
    }
    if failed:
        made = section("ERROR")
        made.members = [m for entry in ranks if (m := _member(entry)) is not None and m.rank in failed]
        for code in failed.values():
            made.errors[str(code)] = made.errors.get(str(code), 0) + 1
    statuses: dict[str, int] = {}
    for entry in ranks:
        status = _status(entry)
        statuses[status] = statuses.get(status, 0) + 1
    differing = _differing(now, digest, ranks)
    if differing or len(statuses) > 1:
        made = section("MISMATCH")
        made.counts = differing
        made.statuses = statuses if len(statuses) > 1 else {}
    size = _int(comm.get("size"))
    hosts = dict.fromkeys(_text(entry.get("host")) for entry in [*ranks, *missing])
    worst = next((s for s in ("ABORT", "FINALIZE", "RUNNING", "INIT") if s in statuses), "NOCOMM")
    total = size if size is not None else len(ranks) + len(missing)
    error = ",".join(errors) or "OK"
    now.rows.append(Row(position, 1, len(hosts), "", total, len(ranks), worst, error, digest))


def _differing(now: Snapshot, digest: str, ranks: list[dict[str, Any]]) -> list[Counts]:
    by_op: dict[str, list[tuple[int, Member]]] = {}
    for entry in ranks:
        member, counts = _member(entry), entry.get("collective_counts")
        if member is None or not isinstance(counts, dict):
            continue
        for op, value in counts.items():
            count = _int(value)
            if count is not None:
                by_op.setdefault(str(op)[:40], []).append((count, member))
    differing = []
    for op, told in sorted(by_op.items()):
        numbers = [count for count, _ in told]
        now.progress[(digest, op)] = (min(numbers), max(numbers))
        if len(set(numbers)) > 1:
            differing.append(_counts(op, told))
    return differing


def _counts(op: str, told: list[tuple[int, Member]]) -> Counts:
    counts = Counts(op)
    for count, _ in sorted(told, key=lambda pair: pair[0]):
        counts.ranks[count] = counts.ranks.get(count, 0) + 1
    behind = [pair for pair in told if pair[0] < max(counts.ranks)]
    ahead = [pair for pair in told if pair[0] == max(counts.ranks)]
    for count, member in behind if len(behind) <= len(ahead) else ahead:
        counts.members.append(
            Member(member.rank, member.gpu, member.nvml, member.pid, member.node, count=count)
        )  # the smaller set, as the text form lists it
    return counts


def _missing(now: Snapshot, entry: dict[str, Any]) -> None:
    status = entry.get("status")
    dead = isinstance(status, dict) and status.get("considered_dead") is True
    pid, gpu = _int(entry.get("pid")), _int(entry.get("cuda_dev"))
    if pid is None:
        return
    peer = Peer(pid, _text(entry.get("host")), (gpu,) if gpu is not None else ())
    peers = now.dead if dead else now.missing
    if peer not in peers:
        peers.append(peer)
        now.dead_count, now.missing_count = len(now.dead), len(now.missing)


def _member(entry: dict[str, Any]) -> Member | None:
    rank = _int(entry.get("rank"))
    if rank is None:
        return None
    gpu, nvml = _int(entry.get("cuda_dev")), _int(entry.get("nvml_dev"))
    return Member(rank, gpu, nvml, _int(entry.get("pid")), _text(entry.get("host")))


def _error(entry: dict[str, Any]) -> int:
    status = entry.get("status")
    if not isinstance(status, dict):
        return 0
    codes = [_int(status.get(name)) or 0 for name in ("init_state", "async_error")]
    return next((code for code in codes if code not in (0, IN_PROGRESS)), 0)


def _status(entry: dict[str, Any]) -> str:
    status = entry.get("status")
    if not isinstance(status, dict):
        return "INIT"
    if status.get("abort_flag") is True:
        return "ABORT"
    if status.get("finalize_called") is True or status.get("destroy_flag") is True:
        return "FINALIZE"
    return "RUNNING" if status.get("init_state") == 0 else "INIT"


def _entries(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _int(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _text(value: Any) -> str | None:
    return value[:255] if isinstance(value, str) and value else None
