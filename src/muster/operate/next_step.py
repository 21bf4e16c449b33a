"""The one sentence that every node carries: what happens next and who can change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from muster.operate.certificates import IDLE, grace_ends
from muster.operate.model import BlockerKind
from muster.operate.policy import EffectivePolicy
from muster.resources.fault_policy import DriftAction
from muster.resources.node_health import Blocker, CauseKind, Lifecycle, State

LIMIT = 600


def next_sentence(
    node: str,
    life: Lifecycle,
    blockers: Sequence[Blocker],
    remarks: Sequence[str],
    policy: EffectivePolicy,
    *,
    takes_work: bool = True,
) -> str:
    """One sentence or two, for people. Free of anything that changes by time alone.

    `takes_work`: whether Kubernetes places work on the node, as far as Muster can see.
    """
    parts = [_stance(node, life, policy, takes_work), *(b.message for b in blockers[:2]), *remarks[:2]]
    return " ".join(_sentence(p) for p in parts if p)[:LIMIT]


def _stance(node: str, life: Lifecycle, policy: EffectivePolicy, takes_work: bool) -> str:
    match life.state:
        case State.UNCERTIFIED:
            return f"Held until it passes profile {life.profile}"
        case State.CERTIFYING:
            return f"Passes or fails Certification {life.certification}"
        case State.IN_SERVICE:
            return _serving(life, policy, "Takes work" if takes_work else "In service")
        case State.QUARANTINED:
            if any(b.kind == BlockerKind.MAINTENANCE for b in life.blockers):
                return "Handed over for maintenance; it is recertified when it is handed back"
            if any(b.kind == BlockerKind.PERSON for b in life.blockers):
                return "Held"
            return f"Held; 'muster node {node} release' sends it to certification"
        case State.DRAINING:
            if life.history and life.history[-1].cause.kind is CauseKind.MAINTENANCE:
                return "Work leaves the node, then it is handed over for maintenance"
            return "Work leaves the node, then its rule says what follows"
        case State.REPAIRING:
            attempts = life.episode.attempts if life.episode else ()
            rung = f"{attempts[-1].rung} (attempt {attempts[-1].attempt})" if attempts else "the repair"
            return f"When {rung} has proved its effect, the node is recertified; otherwise the next rung follows"
        case State.OUT_OF_SERVICE:
            return f"Out of service; 'muster node {node} retry' sends it to certification once it is repaired"
        case _:
            assert_never(life.state)


def _serving(life: Lifecycle, policy: EffectivePolicy, stance: str) -> str:
    certificate = life.certificate
    ends = grace_ends(certificate, policy.drift) if certificate is not None else None
    if certificate is None or ends is None:
        return stance
    because = certificate.voided_because.rstrip(". ")
    rolls = certificate.adopted or (life.profile == IDLE and policy.certification.age_action is not DriftAction.HOLD)
    if rolls:
        return (
            f"{stance} under grace until it is idle, or from {ends:%Y-%m-%d %H:%M} UTC on its turn comes ({because})"
        )
    return f"{stance} under grace until {ends:%Y-%m-%d %H:%M} UTC at the latest ({because})"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
