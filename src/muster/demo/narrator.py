"""Watches a cluster and tells what happens in it, one line per thing that a person would care about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from muster.clock import Clock
from muster.demo.outcome import Line
from muster.kube.api import CERTIFICATIONS, KubeApi
from muster.kube.cache import WatchCache
from muster.operate.phrases import counted
from muster.operate.recorder import Recorder
from muster.plain_text import plain
from muster.resources.certification import Certification, NodeVerdict, Phase
from muster.resources.node_health import CauseKind, Lifecycle, State, Transition
from muster.resources.repair import Repair, RepairPhase

ENDED = (Phase.SUCCEEDED, Phase.FAILED, Phase.ABORTED)
QUIET_STATES = (State.CERTIFYING,)
"""Entering them is told once for the whole certification, not node by node."""


class Narrator:
    """Tells through `say` what changes in NodeHealths, Certifications and Repairs; `chapter` names the chapter."""

    def __init__(self, api: KubeApi, clock: Clock, say: Callable[[Line], None], chapter: Callable[[], str]) -> None:
        self._clock = clock
        self._say = say
        self._chapter = chapter
        self._told: dict[str, tuple[Transition, ...]] = {}
        self._phases: dict[str, Phase] = {}
        self._repairs: dict[str, RepairPhase] = {}
        self._seen: dict[str, Certification] = {}
        self.recorder = Recorder(api, clock, on_health=self._health_changed, on_repair=self._repair_changed)
        self._certifications: WatchCache[Certification] = WatchCache(
            api,
            CERTIFICATIONS,
            msgspec.json.Decoder(Certification, strict=False).decode,
            clock=clock,
            on_change=self._certification_changed,
        )

    async def run(self) -> None:
        """Watch for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.run())
            group.create_task(self._certifications.run())

    def certifications(self) -> list[Certification]:
        """Every certification ever seen, as last seen, sorted by name; deleted ones included."""
        return [self._seen[name] for name in sorted(self._seen)]

    def repairs(self) -> list[Repair]:
        """Every repair of the cluster, sorted by name."""
        found = self.recorder.repairs.items()
        return [found[name] for name in sorted(found)]

    def tell(self, node: str, text: str) -> None:
        """Say something that was learnt elsewhere."""
        self._say(Line(self._clock.now(), self._chapter(), node, plain(text, 300)))

    def _health_changed(self, name: str) -> None:
        health = self.recorder.healths.get(name)
        life = health.status.lifecycle if health is not None else None
        if life is None or not life.history:
            return
        # The newest steps that were not told yet: several can come in one write, and old ones may be cut off.
        told = self._told.get(name, ())
        self._told[name] = life.history
        for step in (s for s in life.history if s not in told and (not told or s.at >= told[-1].at)):
            if _is_told(step):
                self.tell(name, transition_sentence(life, step))

    def _certification_changed(self, name: str) -> None:
        certification = self._certifications.get(name)
        if certification is None:
            return
        self._seen[name] = certification
        phase = certification.status.phase
        if self._phases.get(name) is phase:
            return
        self._phases[name] = phase
        if phase is Phase.RUNNING:
            spec = certification.spec
            partners = f" with {counted(len(spec.partners), 'borrowed partner')}" if spec.partners else ""
            self.tell("", f"{name}: {counted(len(spec.nodes), 'node')}, profile {spec.profile}{partners}, starts.")
        elif phase in ENDED:
            self.tell("", certification_sentence(certification))
            for result in certification.status.nodes:
                if result.verdict is not NodeVerdict.PASSED:
                    reason = f" ({result.reason.value})" if result.reason.value else ""
                    self.tell(result.name, f"{result.verdict.value}{reason}: {plain(result.message, 200)}")
            for link in certification.status.links:
                if link.verdict is NodeVerdict.FAILED:
                    self.tell(link.a, f"the link to {link.b} failed: {plain(link.message, 200)}")

    def _repair_changed(self, name: str) -> None:
        repair = self.recorder.repairs.get(name)
        if repair is None or self._repairs.get(name) is repair.status.phase:
            return
        self._repairs[name] = repair.status.phase
        if repair.status.phase in (RepairPhase.DONE, RepairPhase.FAILED):
            what = f"{repair.spec.provider} says {repair.spec.rung.value} is {repair.status.phase.value.lower()}"
            self.tell(repair.spec.node_name, f"{what}: {plain(repair.status.message, 160) or 'no message'}")


def _is_told(step: Transition) -> bool:
    """Routine steps of many nodes at once (bring-up, waves) are told by their certification."""
    if step.state in QUIET_STATES:
        return False
    if step.state is State.UNCERTIFIED:
        return step.cause.kind not in (CauseKind.NEW_NODE, CauseKind.DRIFT)
    if step.state is State.QUARANTINED:
        return step.cause.kind is not CauseKind.CERTIFICATION
    return step.state is not State.IN_SERVICE or step.cause.kind is CauseKind.PERSON


def transition_sentence(life: Lifecycle, step: Transition) -> str:
    """What a transition means, in one sentence."""
    why = plain(step.cause.message or step.cause.name or step.cause.kind.value, 200)
    if step.state is State.REPAIRING and life.episode is not None:
        why = next((f"{a.rung}, attempt {a.attempt}." for a in life.episode.attempts if a.at == step.at), why)
    ticket = life.episode.ticket if life.episode and step.state is State.OUT_OF_SERVICE else ""
    return f"-> {step.state.value}: {why}{f' Ticket {ticket}.' if ticket else ''}"


def certification_sentence(certification: Certification) -> str:
    """How a certification ended, in one sentence."""
    status = certification.status
    counts = {v: sum(1 for r in status.nodes if r.verdict is v) for v in NodeVerdict}
    told = ", ".join(f"{count} {verdict.value.lower()}" for verdict, count in counts.items() if count)
    cost = f"{counted(status.cost.rounds, 'round')}, {counted(status.cost.runs, 'run')}"
    return f"{certification.metadata.name}: {status.phase.value}: {told or 'no verdicts'} ({cost})."
