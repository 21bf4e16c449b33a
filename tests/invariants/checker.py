"""The invariants of Muster as pure functions over what the API server holds.

`violations` looks at one moment, `broken_between` at two. Rules marked settled only hold once the controller had time
to react; the others hold at every instant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from muster.kube.api import CERTIFICATIONS, MAINTENANCES, NODE_HEALTHS, NODES, REPAIRS, KubeApi
from muster.operate.budget import allowance
from muster.operate.certificates import counted_digest
from muster.operate.episode import open_attempt
from muster.operate.fleet_usage import is_out
from muster.operate.lifecycle import admits
from muster.operate.policy import EffectivePolicy
from muster.operate.projection import health, node_patch
from muster.operate.proof import REBOOTING
from muster.resources.base import CORDON_ANNOTATION, HEALTH_CONDITION, HOLD_TAINT, from_object
from muster.resources.certification import Certification, NodeVerdict
from muster.resources.fault import Severity
from muster.resources.maintenance import Maintenance
from muster.resources.node_health import CauseKind, Lifecycle, NodeHealth, Standing, State
from muster.resources.repair import Repair, RepairPhase, Rung

Object = dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """What the API server holds at `now`, by name."""

    now: datetime
    policy: EffectivePolicy
    nodes: Mapping[str, Object] = field(default_factory=dict)
    healths: Mapping[str, NodeHealth] = field(default_factory=dict)
    repairs: Mapping[str, Repair] = field(default_factory=dict)
    certifications: Mapping[str, Certification] = field(default_factory=dict)
    maintenances: Mapping[str, Maintenance] = field(default_factory=dict)

    def lives(self) -> Iterator[tuple[str, Lifecycle]]:
        """Nodes that exist, with their lifecycle, by name."""
        for name in sorted(self.nodes):
            found = self.healths.get(name)
            if found is not None and found.status.lifecycle is not None:
                yield name, found.status.lifecycle


@dataclass(frozen=True)
class Violation:
    """`invariant` is its number; `message` says which node breaks it and how."""

    invariant: int
    message: str


async def take(api: KubeApi, now: datetime, policy: EffectivePolicy) -> Snapshot:
    """Read everything that the rules look at."""

    async def read(res: Any) -> dict[str, Object]:
        page = await api.list_page(res)
        found = [msgspec.json.decode(raw) for raw in page.items]
        return {o["metadata"]["name"]: o for o in found}

    return Snapshot(
        now=now,
        policy=policy,
        nodes=await read(NODES),
        healths={k: from_object(NodeHealth, v) for k, v in (await read(NODE_HEALTHS)).items()},
        repairs={k: from_object(Repair, v) for k, v in (await read(REPAIRS)).items()},
        certifications={k: from_object(Certification, v) for k, v in (await read(CERTIFICATIONS)).items()},
        maintenances={k: from_object(Maintenance, v) for k, v in (await read(MAINTENANCES)).items()},
    )


def schedulable(node: Object) -> bool:
    """Whether GPU work that tolerates nothing may be placed on the node."""
    spec = node.get("spec", {})
    return not spec.get("unschedulable") and all(t["key"] != HOLD_TAINT for t in spec.get("taints") or [])


def admission(s: Snapshot, settled: bool) -> Iterator[str]:
    """1: no node is open for GPU work without a certificate that matches it."""
    for name, life in s.lives():
        if not life.held and not admits(life.certificate):
            yield f"{name} is not held although its certificate does not admit it"
    if not settled:
        return
    for name in sorted(s.nodes):
        found = s.healths.get(name)
        life = found.status.lifecycle if found else None
        if not schedulable(s.nodes[name]):
            continue
        certificate = life.certificate if life else None
        if certificate is None or not admits(certificate):
            yield f"{name} takes work without a certificate"
            continue
        if certificate.node_uid != s.nodes[name]["metadata"]["uid"]:
            yield f"{name} takes work on the certificate of another node of its name"
        observed = found.status.observed if found else None
        if certificate.standing is Standing.GRACE:
            limit = timedelta(seconds=s.policy.drift.max_grace_s)
            if certificate.voided_at is None or s.now > certificate.voided_at + limit:
                yield f"{name} takes work after its grace"
        elif observed is not None and counted_digest(observed.fingerprint) != counted_digest(certificate.fingerprint):
            yield f"{name} takes work with another fingerprint than its certificate"


def one_truth(s: Snapshot, settled: bool) -> Iterator[str]:
    """2: taint, label, cordon and condition of a node follow from its status."""
    if not settled:
        return
    for name, life in s.lives():
        node = s.nodes[name]
        spec, metadata = node.get("spec", {}), node["metadata"]
        cordoned_by = metadata.get("annotations", {}).get(CORDON_ANNOTATION, "")
        labels = metadata.get("labels", {})
        patch = node_patch(life, spec.get("taints") or [], labels, cordoned_by, bool(spec.get("unschedulable")))
        if patch:
            yield f"{name} lacks {patch}"
        seen = [c for c in node.get("status", {}).get("conditions", []) if c["type"] == HEALTH_CONDITION]
        wanted = health(life)
        if not seen or (seen[0]["status"], seen[0]["reason"]) != (wanted.status.value, wanted.reason):
            yield f"{name} shows the condition {seen}, not {wanted.reason}"


def budgeted(s: Snapshot, settled: bool) -> Iterator[str]:
    """3: no more nodes are out for reasons that Muster chose than the budget allows."""
    chosen: list[str] = []
    for name, life in s.lives():
        episode = life.episode
        if is_out(life) and episode is not None and episode.cause.kind is not CauseKind.PERSON:
            certificate = life.certificate
            overdue = (
                certificate is not None
                and certificate.voided_at is not None
                and episode.cause.kind in (CauseKind.DRIFT, CauseKind.AGE)
                and life.since - certificate.voided_at >= timedelta(seconds=s.policy.drift.max_grace_s)
            )
            if not overdue:
                chosen.append(name)
    limit = allowance(s.policy.budget.max_disrupted, len(s.nodes))
    if len(chosen) > limit:
        yield f"{len(chosen)} nodes are out ({', '.join(chosen)}), the budget allows {limit}"


def blame(s: Snapshot, settled: bool) -> Iterator[str]:
    """4: a node is quarantined for a certification only when that named it Failed."""
    for name, life in s.lives():
        last = life.history[-1] if life.history else None
        if last is None or last.state is not State.QUARANTINED or last.cause.kind is not CauseKind.CERTIFICATION:
            continue
        found = s.certifications.get(last.cause.name)
        verdicts = [r.verdict for r in found.status.nodes if r.name == name] if found else []
        if verdicts != [NodeVerdict.FAILED]:
            yield f"{name} is blamed by {last.cause.name}, which says {verdicts}"


def unknown_is_harmless(s: Snapshot, settled: bool) -> Iterator[str]:
    """6: a fault of unknown severity holds nobody."""
    for name, life in s.lives():
        observed = s.healths[name].status.observed
        unknown = {f.key() for f in observed.faults if f.severity is Severity.UNKNOWN} if observed else set()
        cause = life.episode.cause if life.episode else None
        if life.held and cause is not None and cause.kind is CauseKind.FAULT and cause.name in unknown:
            yield f"{name} is held for {cause.name}, whose severity is unknown"


def keyed(s: Snapshot, settled: bool) -> Iterator[str]:
    """8: every step is keyed by its episode: one repair for one attempt, one repair at a time for a node."""
    attempts = Counter((r.spec.node_name, r.spec.episode, r.spec.rung, r.spec.attempt) for r in s.repairs.values())
    for key, count in sorted(attempts.items()):
        if count > 1:
            yield f"{count} repairs for one attempt {key}"
    open_repairs = Counter(
        r.spec.node_name
        for r in s.repairs.values()
        if r.status.phase in (RepairPhase.PENDING, RepairPhase.RUNNING) and r.spec.rung is not Rung.TICKET
    )
    for node, count in sorted(open_repairs.items()):
        if count > 1:
            yield f"{count} repairs of {node} at once"
    active = Counter(
        name
        for c in s.certifications.values()
        if not c.status.finished_at and not c.status.nodes
        for name in c.spec.nodes
    )
    for node, count in sorted(active.items()):
        if count > 1:
            yield f"{node} is in {count} certifications at once"


def explained(s: Snapshot, settled: bool) -> Iterator[str]:
    """9: every node says why it is where it is, and what is next."""
    for name, life in s.lives():
        if not life.next:
            yield f"{name} does not say what is next"
        if life.held and (not life.hold_reason or not life.history):
            yield f"{name} is held without a reason"
        if life.state is not State.IN_SERVICE and life.episode is None:
            yield f"{name} is {life.state.value} without an episode"


def wanted(s: Snapshot, settled: bool) -> Iterator[str]:
    """10: what was released, retired or replaced is not repaired: a repair that nobody wants is called back."""
    if not settled:
        return
    lives = dict(s.lives())
    for name, repair in sorted(s.repairs.items()):
        life = lives.get(repair.spec.node_name)
        begun = repair.status.phase is not RepairPhase.PENDING or repair.status.started_at is not None
        if life is None or begun or repair.spec.cancel:
            continue
        attempt = open_attempt(life.episode)
        if attempt is None or attempt.repair != name or life.state not in (State.REPAIRING, State.OUT_OF_SERVICE):
            yield f"{name} waits for its provider although {repair.spec.node_name} is {life.state.value}"


def in_its_window(s: Snapshot, settled: bool) -> Iterator[str]:
    """11: nothing leaves a node for a maintenance that is not open yet."""
    for name, life in s.lives():
        last = life.history[-1] if life.history else None
        if life.state is not State.DRAINING or last is None or last.cause.kind is not CauseKind.MAINTENANCE:
            continue
        found = s.maintenances.get(last.cause.name)
        if found is not None and not found.spec.emergency and last.at < found.spec.opens_at:
            yield f"{name} was drained for {found.metadata.name} before it opened"


def evicting(s: Snapshot, settled: bool) -> Iterator[str]:
    """12: the taint that evicts is only on nodes that are out for an open fault."""
    for name, life in s.lives():
        if life.no_execute and life.state not in (State.QUARANTINED, State.DRAINING, State.REPAIRING):
            yield f"{name} evicts what it runs although it is {life.state.value}"
        if not settled:
            continue
        there = [t for t in s.nodes[name].get("spec", {}).get("taints") or () if t["key"] == HOLD_TAINT]
        if any(t["effect"] == "NoExecute" for t in there) is not life.no_execute:
            yield f"{name} has the taints {there}"


RULES: Mapping[int, Callable[[Snapshot, bool], Iterator[str]]] = {
    1: admission,
    2: one_truth,
    3: budgeted,
    4: blame,
    6: unknown_is_harmless,
    8: keyed,
    9: explained,
    10: wanted,
    11: in_its_window,
    12: evicting,
}


def violations(snapshot: Snapshot, *, settled: bool = False) -> list[Violation]:
    """Every rule that `snapshot` breaks."""
    return [Violation(n, text) for n, rule in RULES.items() for text in rule(snapshot, settled)]


def broken_between(before: Snapshot, after: Snapshot, uncordoned: Collection[str] = ()) -> list[Violation]:
    """Rules about a change. `uncordoned` names nodes whose cordon a person lifted in between."""
    found: list[Violation] = []
    for name, old in sorted(before.nodes.items()):
        new = after.nodes.get(name)
        if new is None or new["metadata"]["uid"] != old["metadata"]["uid"] or name in uncordoned:
            continue
        foreign = old.get("spec", {}).get("unschedulable") and CORDON_ANNOTATION not in old["metadata"].get(
            "annotations", {}
        )
        if foreign and not new.get("spec", {}).get("unschedulable"):
            found.append(Violation(7, f"the cordon that a person put on {name} was lifted"))
    olds = dict(before.lives())
    for name, life in after.lives():
        old_life = olds.get(name)
        if old_life is None:
            continue
        for entry in life.history:
            proved = entry.state is State.UNCERTIFIED and entry.cause.kind is CauseKind.REPAIR
            if proved and entry not in old_life.history and not _proved(after, name, life, entry.cause.name):
                found.append(Violation(5, f"{name} counts {entry.cause.name} as done without proof"))
    return found


def _proved(s: Snapshot, name: str, life: Lifecycle, rung: str) -> bool:
    attempts = [a for a in life.episode.attempts if a.rung == rung] if life.episode else []
    repair = s.repairs.get(attempts[-1].repair) if attempts else None
    observed = s.healths[name].status.observed
    if observed is not None and repair is None and attempts:
        # Its object was deleted after it had begun: then its effect alone counts.
        before = attempts[-1].boot_id_before
        return attempts[-1].seen_at is not None and bool(before) and observed.boot_id != before
    if repair is None or observed is None or repair.status.phase is not RepairPhase.DONE:
        return False
    return repair.spec.rung not in REBOOTING or observed.boot_id != repair.spec.boot_id_before
