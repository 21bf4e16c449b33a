"""Invariants looked at with every single change of the store, at the moment it is made."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any

from muster.clock import Clock
from muster.kube.api import EventType
from muster.operate.policy import EffectivePolicy
from muster.operate.providers.provider import FINAL
from muster.resources.base import from_object
from muster.resources.certification import Certification
from muster.resources.fault_policy import FaultPolicy
from muster.resources.node_health import CauseKind, Lifecycle, NodeHealth, State, Verb
from muster.resources.repair import Repair, RepairPhase
from muster.sim.store import Store
from tests.invariants.checker import Snapshot, broken_between, violations

KINDS: dict[str, tuple[str, Any]] = {
    "nodes": ("nodes", None),
    "nodehealths": ("healths", NodeHealth),
    "repairs": ("repairs", Repair),
    "certifications": ("certifications", Certification),
}


class Watchman:
    """Follows the store synchronously; `found` are the violations, each with its time."""

    def __init__(self, store: Store, clock: Clock, policy: EffectivePolicy, target: str) -> None:
        self.found: list[str] = []
        self.uncordoned: set[str] = set()
        self.was_uncordoned = False
        """Nodes whose cordon a person lifts right now."""
        self.closed_until: datetime | None = None
        """Before this time nothing that serves may be taken out."""
        self.news = asyncio.Event()
        """Set with every change of a node, its health or a repair."""
        self._taken_up: set[str] = set()
        self._clock = clock
        self._target = target
        self.snapshot = Snapshot(now=clock.now(), policy=policy)
        record = store._record

        def recorded(kind: Any, storage: Any, change: Any) -> None:
            record(kind, storage, change)
            if kind.plural in KINDS:
                self._changed(kind.plural, change)

        store._record = recorded  # type: ignore[method-assign]  # the one place through which every change goes

    def say(self, text: str) -> None:
        line = f"{self._clock.now():%H:%M:%S} {text}"
        if all(text not in known for known in self.found):
            self.found.append(line)

    def _changed(self, plural: str, change: Any) -> None:
        field, model = KINDS[plural]
        before = self.snapshot
        there = dict(getattr(before, field))
        name = change.key[1]
        if change.type is EventType.DELETED:
            there.pop(name, None)
        else:
            there[name] = from_object(model, change.current.obj) if model else change.current.obj
        self.news.set()
        now: Any = {"now": self._clock.now(), field: there}
        self.snapshot = replace(before, **now)
        for violation in violations(self.snapshot) + broken_between(before, self.snapshot, self.uncordoned):
            self.say(f"[{violation.invariant}] {violation.message}")
        if plural == "repairs":
            self._claimed(before.repairs.get(name), self.snapshot.repairs.get(name), name)
            # An uncordon in the moment in which the Repair is made delays the note that it was seen; one that is
            # deleted before that may be asked for again, and the provider knows its work by the name.
            if name not in before.repairs and name in self._taken_up and not self.was_uncordoned:
                self.say(f"{name} is asked for again although it had begun")
        if plural == "nodehealths":
            self._stepped(before.healths.get(name), self.snapshot.healths.get(name), name)

    def _stepped(self, before: NodeHealth | None, after: NodeHealth | None, name: str) -> None:
        """Rules about one step of one node."""
        old = before.status.lifecycle if before is not None else None
        new = after.status.lifecycle if after is not None else None
        if old is None or new is None:
            return
        left = old.state is State.IN_SERVICE and new.state is not State.IN_SERVICE
        ours = new.episode is not None and new.episode.cause.kind is CauseKind.FAULT
        if left and ours and self.closed_until is not None and self._clock.now() < self.closed_until:
            self.say(f"{name} was taken out of service while the budget was closed")
        if name == "n00" and new.state is not State.IN_SERVICE:
            self.say(f"{name}, which nothing is wrong with, is {new.state.value}")

    def _claimed(self, before: Repair | None, after: Repair | None, name: str) -> None:
        """A repair is taken up only while somebody wants it, and never leaves a phase that is final."""
        if before is None or after is None or before.metadata.uid != after.metadata.uid:
            return
        old, new = before.status.phase, after.status.phase
        if before.spec.cancel and old is RepairPhase.PENDING and new is RepairPhase.RUNNING:
            self.say(f"{name} was taken up although it had been called back")
        life = self.life(after.spec.node_name)
        claimed = old is RepairPhase.PENDING and new is RepairPhase.RUNNING
        if claimed:
            self._taken_up.add(name)
        if claimed and (life is None or life.state not in (State.REPAIRING, State.OUT_OF_SERVICE)):
            self.say(f"{name} is taken up although the node is {life.state.value if life else 'unknown'}")
        if old in FINAL and new is not old:
            self.say(f"{name} was {old.value} and is {new.value}")

    def life(self, name: str) -> Lifecycle | None:
        found = self.snapshot.healths.get(name)
        return found.status.lifecycle if found is not None else None

    def begins(self, repair: Repair) -> None:
        """A provider begins with `repair`: is it still wanted, for this node, for the first time?"""
        name, life = repair.metadata.name, self.life(repair.spec.node_name)
        node = self.snapshot.nodes.get(repair.spec.node_name)
        if repair.spec.node_name != self._target:
            self.say(f"{name} begins, and nothing is to be repaired on {repair.spec.node_name}")
        if node is None or node["metadata"]["uid"] != repair.spec.node_uid:
            self.say(f"{name} begins on another node than the one it is for")
        if life is None or life.episode is None or life.episode.id != repair.spec.episode:
            self.say(f"{name} begins although its episode is over")
            return
        said = self.snapshot.healths[repair.spec.node_name].spec.decision
        retired = said is not None and said.verb is Verb.RETIRE and life.state is State.OUT_OF_SERVICE
        # What was taken up just before its node was retired may go on: nobody works there any more.
        if life.state is not State.REPAIRING and not retired:
            self.say(f"{name} begins although the node is {life.state.value}")
        shown = self.snapshot.repairs.get(name)
        if shown is not None and shown.status.phase is RepairPhase.CANCELLED:
            self.say(f"{name} begins although it was cancelled")
        words = [e for e in life.history if e.cause.kind is CauseKind.PERSON and e.cause.name == Verb.RELEASE]
        attempts = [a for a in life.episode.attempts if a.repair == name]
        if words and attempts and words[-1].at > attempts[0].at:
            self.say(f"{name} begins after the node was released")


def merged(policy: FaultPolicy) -> EffectivePolicy:
    from muster.operate.policy import effective_policy

    return effective_policy([policy], {})
