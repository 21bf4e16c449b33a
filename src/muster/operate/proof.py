"""Proof of a repair: its effect must be seen on the node. That a provider says `Done` is a claim, nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from muster.moments import after
from muster.resources.fault import Fault
from muster.resources.node_health import Observed, RungAttempt
from muster.resources.repair import Repair, RepairPhase, Rung

PROOF_WAIT_S = 300
"""How long after `Done` the effect may take to show: several intervals of the agent (30 s) and of its heartbeat."""

BOOT_WAIT_S = 900
"""The same for rungs that boot the node: firmware of eight-GPU servers alone takes minutes."""

CLAIM_MARGIN_S = 120
"""How much longer than its own time limit a repair may take to report."""

REBOOTING = (Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE)
"""Rungs after which the boot ID must have changed. A reset of a GPU or of its driver needs no boot."""


class ProofState(StrEnum):
    WAITING = "waiting"
    PROVED = "proved"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Proof:
    """How far an attempt is. `recheck_at` is when time alone changes the answer."""

    state: ProofState
    message: str
    recheck_at: datetime | None = None


@dataclass(frozen=True)
class Evidence:
    """What is known about the node while a repair is judged."""

    observed: Observed | None
    agent_seen: datetime | None
    ready: bool
    open_faults: tuple[Fault, ...]
    """Disqualifying faults that are open now."""


def judge_repair(attempt: RungAttempt, repair: Repair | None, evidence: Evidence, now: datetime) -> Proof:
    """Whether the attempt had its effect. Pure; asked again on each change and at `recheck_at`."""
    if repair is None:
        return Proof(ProofState.WAITING, f"Repair {attempt.repair} is being created.")
    match repair.status.phase:
        case RepairPhase.PENDING | RepairPhase.RUNNING:
            return _claim_outstanding(attempt, repair, now)
        case RepairPhase.FAILED:
            said = repair.status.message or "no reason given"
            return Proof(ProofState.FAILED, f"{attempt.rung} failed: {said[:200]}")
        case RepairPhase.CANCELLED:
            return Proof(ProofState.CANCELLED, f"{attempt.rung} was called back before it began")
        case RepairPhase.DONE:
            return _effect(attempt, repair, evidence, now)
        case _:
            assert_never(repair.status.phase)


def _claim_outstanding(attempt: RungAttempt, repair: Repair, now: datetime) -> Proof:
    limit_s = repair.spec.timeout_s + CLAIM_MARGIN_S
    # One that had to wait for another repair of the node has its own time from its beginning, which lies before
    # `latest`, whatever its status says: a repair that has not begun by then is given up.
    latest, began = after(attempt.at, limit_s), repair.status.started_at or attempt.at
    deadline = after(min(max(began, attempt.at), latest), limit_s)
    if now >= deadline:
        message = f"{attempt.rung} did not finish within {repair.spec.timeout_s} s"
        return Proof(ProofState.TIMEOUT, message)
    return Proof(ProofState.WAITING, f"Repair {attempt.repair} is {repair.status.phase.value}.", deadline)


def _effect(attempt: RungAttempt, repair: Repair, evidence: Evidence, now: datetime) -> Proof:
    finished = _finished(attempt, repair, now)
    rung = Rung(attempt.rung)
    missing = _missing(rung, repair, finished, evidence)
    if not missing:
        return Proof(ProofState.PROVED, f"{attempt.rung} proved: {_seen(rung)}")
    again = next((f for f in evidence.open_faults if f.last_seen > finished), None)
    if again is not None:
        return Proof(ProofState.FAILED, f"{attempt.rung} did not help: {again.key()} was seen again after it")
    wait_s = BOOT_WAIT_S if rung in REBOOTING else PROOF_WAIT_S
    deadline = after(finished, wait_s)
    if now >= deadline:
        return Proof(ProofState.FAILED, f"{attempt.rung} had no effect within {wait_s} s: {missing}")
    return Proof(ProofState.WAITING, f"Proof of {attempt.rung} is outstanding: {missing}.", deadline)


def _finished(attempt: RungAttempt, repair: Repair, now: datetime) -> datetime:
    """When the provider ended, by its own clock: not before it was asked, and not in a future without end."""
    told = repair.status.finished_at or attempt.at
    if told > now:
        told = min(told, after(attempt.at, repair.spec.timeout_s + CLAIM_MARGIN_S))
    return max(told, attempt.at)


def _missing(rung: Rung, repair: Repair, finished: datetime, evidence: Evidence) -> str:
    """What of the proof is not there yet; empty when it is complete."""
    observed = evidence.observed
    if observed is None:
        return "the agent has not reported from this node"
    if rung in REBOOTING and not repair.spec.boot_id_before:
        return "the boot ID before it is not known"
    if rung in REBOOTING and observed.boot_id == repair.spec.boot_id_before:
        return "the boot ID has not changed"
    still = sorted(gpus_of(observed) & set(repair.spec.gpu_uuids)) if rung is Rung.REPLACE else []
    if still:
        return f"GPU {still[0]}, which was to be replaced, is still there"
    # The content of an observation keeps its time while it stays equal; the heartbeat shows that it still holds.
    fresh = max(observed.observed_at, evidence.agent_seen or observed.observed_at)
    if fresh < finished:
        return "no observation is newer than the repair"
    if evidence.open_faults:
        return f"fault {evidence.open_faults[0].key()} is still open"
    if not evidence.ready:
        return "the node is not Ready"
    return ""


def gpus_of(observed: Observed) -> frozenset[str]:
    """UUIDs of the GPUs that the node has, as its agent tells."""
    listed = frozenset(gpu.uuid for gpu in observed.gpus)
    readings = observed.fingerprint.readings
    return listed or frozenset(r.value for r in readings if r.name.startswith("gpu.") and r.name.endswith(".uuid"))


def _seen(rung: Rung) -> str:
    if rung is Rung.REPLACE:
        return "the GPUs at fault are gone, new boot ID and a fresh clean observation"
    return "new boot ID and a fresh clean observation" if rung in REBOOTING else "a fresh clean observation"
