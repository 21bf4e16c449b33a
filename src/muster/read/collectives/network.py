"""From faults of the network to incidents: which came from which, who is a culprit, and who only told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from muster.read.collectives import kinds
from muster.read.collectives.faults import Sighted
from muster.read.report import SEVERITY_RANK, Incident, Result, Verdict, span, worst
from muster.resources.fault import Hint, Severity

ADAPTER = (kinds.PORT_ERROR.code, kinds.DEVICE_FATAL.code)
"""News from the adapter of the node that logs it: where the fault lies."""
_PATH = (
    kinds.RETRY_EXCEEDED.code,
    kinds.RESPONSE_TIMEOUT.code,
    kinds.SOCKET_TIMEOUT.code,
    kinds.SOCKET_UNREACHABLE.code,
    kinds.SOCKET_REFUSED.code,
    kinds.RNR_EXCEEDED.code,
    kinds.REMOTE_ACCESS.code,
    kinds.COMPLETION_ERROR.code,
    kinds.LOCAL_PROTECTION.code,
    kinds.VERBS_CALL.code,
    kinds.FABRIC_LIBRARY.code,
)
"""Failures of a path or a call: they name ends and no culprit. The earlier in this list, the nearer to the cause."""
FOLLOWERS = (kinds.FLUSHED.code, kinds.SOCKET_RESET.code, kinds.PEER_CLOSED.code)
"""What the other ranks see once something has failed."""
_ORDER = {code: place for place, code in enumerate((*ADAPTER, *_PATH, *FOLLOWERS))}
NETWORK = frozenset(_ORDER)
"""Codes of all faults that speak of the network."""
_REASONS = {kinds.PORT_ERROR.code: "port-error", kinds.DEVICE_FATAL.code: "adapter-fatal"}


def ends(fault: Sighted) -> tuple[str, ...]:
    """The nodes that a fault speaks of, reporter first."""
    entity = fault.entity
    names = entity["between"] if entity["kind"] == "link" else [entity.get("name") or entity.get("node")]
    return tuple(name for name in names if name)


def clusters(faults: Sequence[Sighted]) -> list[list[Sighted]]:
    """Network faults that share nodes, each group in the order of first sighting."""
    concerned = [f for f in faults if f.kind.code in _ORDER]
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for fault in concerned:
        names = ends(fault) or ("",)
        for name in names[1:]:
            parent[root(name)] = root(names[0])
    groups: dict[str, list[Sighted]] = {}
    for fault in sorted(concerned, key=lambda f: f.order):
        groups.setdefault(root((ends(fault) or ("",))[0]), []).append(fault)
    return list(groups.values())


def incidents(faults: Sequence[Sighted]) -> list[Incident]:
    """One incident per group of network faults that have a cause or a victim to tell."""
    return [_incident(group) for group in clusters(faults) if _open(group)]


def _open(group: Sequence[Sighted]) -> bool:
    """Something is fatal, and not everything was taken back."""
    return any(f.kind.severity is Severity.FATAL for f in group) and not all(f.cleared for f in group)


def _incident(group: Sequence[Sighted]) -> Incident:
    adapter = [f for f in group if f.kind.code in ADAPTER]
    by_cause = sorted(group, key=lambda f: (_ORDER[f.kind.code], f.order))
    root = adapter[0] if adapter else by_cause[0]
    later = [f for f in group if f not in adapter]
    if adapter:
        for fault in later:
            if fault.order > root.order:
                fault.details["follows"] = root.kind.code
    members = list(dict.fromkeys(f.kind.code for f in [root, *sorted(group, key=lambda f: f.order)]))
    heaviest = max(group, key=lambda f: SEVERITY_RANK[f.kind.severity])
    fields: dict[str, Any] = dict(_span(group))
    guess = any(f.kind.confidence for f in group) and not adapter
    if adapter:
        fields["culprit"] = {
            "kind": "nic-port" if root.kind is kinds.PORT_ERROR else "nic",
            "node": root.entity.get("name"),
            "device": root.details.get("device"),
        }
        own = {name for f in adapter for name in ends(f)}
        fields["victims"] = sorted({name for f in later for name in ends(f)} - own)
        guess = any(f.order < root.order for f in later)
    else:
        fields["ends"] = sorted({name for f in group for name in ends(f)})
        fields["common_end"] = _common_end(group)
    if guess:
        fields["confidence"] = "low"
    return Incident(
        root=root.kind.code,
        members=tuple(members),
        severity=heaviest.kind.severity,
        scope=root.kind.scope,
        hint=root.kind.hint if root.kind.hint is not Hint.NONE else worst([f.kind.hint for f in group]),
        fields=fields,
    )


def _span(group: Sequence[Sighted]) -> dict[str, Any]:
    known = [f for f in group if f.first is not None]
    first = known[0].first if known else None
    last = known[-1].last if known else None
    return span(first, last)


def _common_end(group: Sequence[Sighted]) -> str | None:
    """The one node at which three or more failing links meet; None where no such node, or several, are there."""
    links = {frozenset(ends(f)) for f in group if f.entity["kind"] == "link" and len(set(ends(f))) == 2}
    if len(links) < 3:
        return None
    shared = frozenset.intersection(*links)
    return min(shared) if len(shared) == 1 else None


def verdicts(faults: Sequence[Sighted], found: Sequence[Incident]) -> list[Verdict]:
    """On every node that a network fault speaks of. Only an adapter's own news fails a node."""
    victims = {name for incident in found for name in incident.fields.get("victims", ())}
    harmful = {i.fields["culprit"]["node"] for i in found if i.fields.get("victims")}
    judged: dict[str, Verdict] = {}
    for fault in faults:
        if fault.kind.code not in ADAPTER:
            continue
        name = fault.entity.get("name") or "node"
        if fault.cleared and fault.entity.get("name") not in harmful:
            message = "The port came back, and no transport error followed."
            judged.setdefault(name, Verdict(name, Result.WARN, "port-flap", message))
        else:
            judged[name] = Verdict(name, Result.FAIL, _REASONS[fault.kind.code])
    for fault in faults:
        if fault.kind.code not in _PATH and fault.kind.code not in FOLLOWERS:
            continue
        for name in ends(fault):
            reason = "victim" if name in victims else "path-not-isolated"
            message = "Its lines name a path or another node; they are no evidence against this one."
            if fault.entity["kind"] != "link" and name not in victims:
                reason, message = (
                    "own-report-only",
                    "Only this node tells of it, and set-up or program may be the cause.",
                )
            judged.setdefault(name, Verdict(name, Result.UNKNOWN, reason, message))
    return list(judged.values())


def with_hang(found: Sequence[Incident], hangs: Sequence[Incident]) -> list[Incident]:
    """The hang of a job belongs to the one network incident that explains it; with several it stands alone."""
    if len(found) != 1:
        return [*found, *hangs]
    (cause,) = found
    for hang in hangs:
        members = tuple(dict.fromkeys((*cause.members, *hang.members)))
        fields = {**cause.fields, "ranks": hang.fields.get("ranks", [])}
        cause = replace(cause, members=members, fields=fields)
    return [cause]
