"""What the store holds of a node, and what follows from it for one write. Pure; the watch asks here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from muster.operate.certificates import counted_digest
from muster.operate.lifecycle import admits
from muster.resources.base import CORDON_ANNOTATION, HOLD_TAINT, STATE_LABEL
from muster.resources.node_health import (
    HISTORY_LIMIT,
    Lifecycle,
    NodeHealth,
    Standing,
    Transition,
)
from muster.resources.repair import Repair, Rung
from tests.chaos.apiserver import Journal

Object = dict[str, Any]


@dataclass
class Known:
    """What the store holds of one node name."""

    node: Object | None = None
    health: NodeHealth | None = None
    open_since_s: float | None = None
    """Since when it takes work that it must not take, in the time in which a controller could react."""
    reborn_at_s: float = -1e9
    """When its Node was deleted or made anew."""
    erased_at_s: float = -1e9
    """When its NodeHealth was deleted."""

    @property
    def life(self) -> Lifecycle | None:
        return self.health.status.lifecycle if self.health is not None else None


def attempt_key(repair: Repair) -> tuple[str, str, Rung, int]:
    spec = repair.spec
    return (spec.node_name, spec.episode, spec.rung, spec.attempt)


def annotations_of(obj: Object) -> dict[str, str]:
    return obj.get("metadata", {}).get("annotations") or {}


def appended(old: Lifecycle | None, new: Lifecycle) -> tuple[Transition, ...] | None:
    """What was appended to the history; None when it is no continuation."""
    if old is None:
        return new.history[1:]
    for count in range(len(new.history) + 1):
        kept = new.history[: len(new.history) - count]
        whole = len(old.history) + count <= HISTORY_LIMIT
        if kept == (old.history if whole else old.history[len(old.history) - len(kept) :]):
            return new.history[len(kept) :]
    return None


def why_closed(known: Known, max_grace: timedelta, journal: Journal) -> str:
    """Why the node must not take work; empty when it may."""
    life = known.life
    if life is None:
        return "it has no status"
    if known.health is not None and known.health.spec.paused:
        return ""
    if life.held:
        return f"it is {life.state.value}"
    certificate = life.certificate
    if certificate is None or not admits(certificate):
        return "it has no certificate"
    assert known.node is not None
    assert known.health is not None
    if certificate.node_uid != known.node["metadata"]["uid"]:
        return "its certificate is that of another node of its name"
    seen = known.health.status.observed
    if certificate.standing is Standing.GRACE:
        over = certificate.voided_at is None or journal.store.clock.now() > certificate.voided_at + max_grace
        return "its grace is over" if over else ""
    if seen is None or seen.node_uid != certificate.node_uid:
        return ""
    same = counted_digest(seen.fingerprint) == counted_digest(certificate.fingerprint)
    return "" if same else "it has another fingerprint than its certificate"


def node_rules(name: str, before: Object, after: Object, life: Lifecycle | None) -> Iterator[tuple[str, str]]:
    """Rules about a write of the controller to a Node."""
    was, now = before.get("spec", {}), after.get("spec", {})
    if (
        was.get("unschedulable")
        and not now.get("unschedulable")
        and not annotations_of(before).get(CORDON_ANNOTATION)
    ):
        yield "people-win", f"the cordon that a person put on {name} was lifted"
    old_taints, new_taints = was.get("taints") or [], now.get("taints") or []
    if [t for t in old_taints if t["key"] != HOLD_TAINT] != [t for t in new_taints if t["key"] != HOLD_TAINT]:
        yield "people-win", f"taints of others on {name} were changed"
    for part, own in (("labels", STATE_LABEL), ("annotations", CORDON_ANNOTATION)):
        old, new = before["metadata"].get(part) or {}, after["metadata"].get(part) or {}
        if {k: v for k, v in old.items() if k != own} != {k: v for k, v in new.items() if k != own}:
            yield "people-win", f"{part} of others on {name} were changed"
    freed = any(t["key"] == HOLD_TAINT for t in old_taints) and all(t["key"] != HOLD_TAINT for t in new_taints)
    if freed and life is not None and life.held:
        yield "durable-first", f"the hold of {name} was lifted although its status says {life.state.value}"


def line_of(plural: str, name: str, before: Object | None, after: Object | None) -> str:
    """One line about a change."""
    word = "creates" if before is None else "deletes" if after is None else "writes"
    more = ""
    obj = after or {}
    status = obj.get("status") or {}
    if plural == "nodehealths":
        life = status.get("lifecycle") or {}
        faults = [f["check"] + "/" + f["code"] for f in (status.get("observed") or {}).get("faults") or ()]
        more = (
            f"{life.get('state', '-')} held={life.get('held', '-')} faults={faults} {str(life.get('next', ''))[:90]}"
        )
    elif plural == "nodes":
        taints = [f"{t['key']}={t.get('value', '')}" for t in obj.get("spec", {}).get("taints") or ()]
        more = f"unschedulable={obj.get('spec', {}).get('unschedulable', False)} taints={taints}"
    elif plural in ("repairs", "certifications"):
        more = str(status.get("phase", "Pending"))
    return f"{word} {plural}/{name} {more}".rstrip()
