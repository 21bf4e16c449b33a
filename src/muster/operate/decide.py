"""`decide`: from what is known about one node to its lifecycle, and to what must be done. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType

from msgspec.structs import replace

from muster.moments import after
from muster.operate import people, remedy, repairs, service, validation
from muster.operate.age import expiry
from muster.operate.certificates import ADOPTED, BRINGUP, adopt, voided
from muster.operate.draft import MESSAGE_LIMIT, Draft
from muster.operate.episode import LEFT, belongs_to, open_episode, uncordoned_by_person
from muster.operate.lifecycle import Trigger, adopted, born, move
from muster.operate.model import BlockerKind, Decision, FleetView, NodeView
from muster.operate.next_step import next_sentence
from muster.operate.policy import EffectivePolicy
from muster.plain_text import plain
from muster.resources.fault import Severity
from muster.resources.fingerprint import fingerprint
from muster.resources.node_health import AgentSeen, Blocker, Cause, CauseKind, Lifecycle, State

STEP_LIMIT = 16
"""Steps that one decision may take in a row; more would be a circle in the rules, which is a bug."""

TOLD_LIMIT = 256
"""Open faults of one node whose first telling is remembered."""

HANDLERS: Mapping[State, Callable[[Draft], None]] = MappingProxyType(
    {
        State.UNCERTIFIED: validation.uncertified,
        State.CERTIFYING: validation.certifying,
        State.IN_SERVICE: service.in_service,
        State.QUARANTINED: remedy.quarantined,
        State.DRAINING: remedy.draining,
        State.REPAIRING: remedy.repairing,
        State.OUT_OF_SERVICE: remedy.out_of_service,
    }
)


def decide(node: NodeView, fleet: FleetView, policy: EffectivePolicy, now: datetime) -> Decision:
    """What the node's lifecycle becomes at `now` and what must be done about it.

    Level-triggered: it looks at the present state alone, so no event can be missed; deciding again gives the same.
    Every disruption of a node in service asks `fleet.usage` first; recoveries and releases do not.
    """
    if node.lifecycle is None:
        return _run(_first_seen(node, fleet, policy, now))
    d = Draft(node, fleet, policy, node.lifecycle, now)
    _notice_replacement(d)
    return _run(d)


def decide_departed(life: Lifecycle, node: str, now: datetime) -> Lifecycle:
    """The lifecycle of a node whose Node object is gone: it serves nobody, and what joins under the name is new."""
    if life.episode is not None and life.episode.cause.name == LEFT:
        return life
    cause = Cause(kind=CauseKind.NEW_NODE, name=LEFT, message="The Node object is gone from the cluster.")
    gone = replace(
        life,
        # Of no node's UID: whichever node joins under the name opens an episode of its own.
        episode=open_episode(node, "", cause, now),
        certificate=voided(life.certificate, cause.message, now),
        profile=BRINGUP,
        certification="",
        cordon=False,
        no_execute=False,
        drain_pods=0,
        derived=(),
        earlier=(),
        deferred_until=None,
    )
    gone = move(gone, Trigger.NODE_REPLACED, cause, now)
    return replace(
        gone,
        blockers=(Blocker(kind=BlockerKind.NODE.value, message=cause.message, since=now),),
        next=f"{cause.message} A node that joins under its name is tested as new; "
        f"'kubectl delete nodehealth {node}' forgets this one.",
    )


def _run(d: Draft) -> Decision:
    if d.life.deferred_until is not None and d.now >= d.life.deferred_until:
        d.update(deferred_until=None)
    d.renew()
    _remember_agent(d)
    people.hear(d)
    for _ in range(STEP_LIMIT):
        before = d.life.state
        d.clear_blockers()
        HANDLERS[before](d)
        if d.life.state is before:
            break
        d.renew()
        # A word that had to wait for the state to change goes before whatever would follow by itself.
        people.obey(d)
    else:
        raise AssertionError(f"node {d.node.name} runs in a circle through {d.life.history[-4:]}")
    people.settle_approval(d)
    repairs.call_back_unwanted(d)
    _settle_projection(d)
    _wake_for_faults_and_silence(d)
    if d.life.blockers != d.blockers:
        d.update(blockers=d.blockers)
    takes_work = d.node.ready and not d.node.unschedulable
    return d.finish(next_sentence(d.node.name, d.life, d.blockers, d.remarks, d.policy, takes_work=takes_work))


def _remember_agent(d: Draft) -> None:
    """Since when the agent has its version and since when each open fault is known, by the controller's clock.

    What a new agent tells may be days old: the time in its report says nothing of when it was told first.
    """
    seen = d.observed
    if seen is None:
        return
    life = d.life
    if seen.agent_version and (life.agent is None or life.agent.version != seen.agent_version):
        before = life.agent.version if life.agent is not None else ""
        d.update(agent=AgentSeen(version=seen.agent_version, before=before, since=d.now))
    if not (seen.faults or life.derived or life.told):
        return  # most nodes, most of the time
    told_of = (*seen.faults, *life.derived)
    keys = sorted(f.key() for f in told_of if f.severity is not Severity.INFO)[:TOLD_LIMIT]
    told = {key: life.told.get(key, d.now) for key in keys}
    if told != life.told:
        d.update(told=told)


def _settle_projection(d: Draft) -> None:
    """What rules ask for beside the hold: a cordon, and the eviction of whatever does not tolerate the taint."""
    life = d.life
    if life.state is not State.DRAINING and life.drain_pods:
        d.update(drain_pods=0)
    out = life.state in (State.QUARANTINED, State.DRAINING, State.REPAIRING)
    if not out and not life.no_execute:
        return
    asked = d.disqualifying if out else ()
    stopped = d.node.spec.paused or uncordoned_by_person(life) is not None
    if any(j.judgement.cordon for j in asked) and not stopped and not life.cordon:
        d.update(cordon=True)
    wanted = any(j.judgement.no_execute for j in asked)
    if life.no_execute and not wanted:
        d.update(no_execute=False)
    elif wanted and not life.no_execute and not stopped and not d.uncompared:
        d.update(no_execute=True)


def _first_seen(node: NodeView, fleet: FleetView, policy: EffectivePolicy, now: datetime) -> Draft:
    # What Muster had held or cordoned was out of service, whoever deleted its NodeHealth since; and a node that
    # registers with the hold is new.
    out = node.hold_taint or bool(node.cordoned_by)
    if policy.certification.adopt and node.work and not out:
        return _adopted(node, fleet, policy, now)
    slipped = ", ".join(p.key for p in node.work[:3])
    told = f" {validation.SLIPPED}: {slipped}." if slipped else ""
    message = f"The node joined and has never been certified.{told}"
    cause = Cause(kind=CauseKind.NEW_NODE, name="joined", message=plain(message, MESSAGE_LIMIT))
    life = born(open_episode(node.name, node.uid, cause, now), BRINGUP, now)
    d = Draft(node, fleet, policy, life, now)
    if slipped:
        d.note("WorkBeforeHold", told.strip(), warning=True)
    d.adopt(life.history)
    return d


def _adopted(node: NodeView, fleet: FleetView, policy: EffectivePolicy, now: datetime) -> Draft:
    """The node has work already, and the policy lets it go on: it is certified when it is idle."""
    cause = Cause(kind=CauseKind.NEW_NODE, name="adopted", message=ADOPTED.message)
    seen = node.observed
    known = seen.fingerprint if seen is not None and seen.node_uid == node.uid else fingerprint(())
    life = adopted(adopt(node.uid, known, now), cause, now)
    d = Draft(node, fleet, policy, life, now)
    d.note("Adopted", f"{ADOPTED.message} It works on under grace until it is idle.")
    d.adopt(life.history)
    return d


def _notice_replacement(d: Draft) -> None:
    """Another node joined under the name: nothing that was known about the old one holds."""
    life, node = d.life, d.node
    if life.episode is not None:
        same = belongs_to(life.episode, node.name, node.uid)
    else:
        same = life.certificate is not None and life.certificate.node_uid == node.uid
    if same:
        return
    cause = Cause(kind=CauseKind.NEW_NODE, name="replaced", message="Another node joined under this name.")
    d.update(
        episode=open_episode(node.name, node.uid, cause, d.now),
        certificate=voided(life.certificate, cause.message, d.now),
        profile=BRINGUP,
        certification="",
        cordon=False,
        derived=(),
        earlier=(),
        deferred_until=None,
    )
    d.take(Trigger.NODE_REPLACED, cause)
    d.note("NodeReplaced", cause.message)


def _wake_for_faults_and_silence(d: Draft) -> None:
    """Times at which the clock alone changes what is known."""
    for judged in d.judged:
        if not judged.judgement.due:
            d.wake(judged.judgement.due_at)
    if d.life.state in (State.UNCERTIFIED, State.CERTIFYING, State.IN_SERVICE):
        if d.node.agent_seen is not None:
            # One microsecond more: silence begins after the limit, not at it.
            d.wake(after(d.node.agent_seen, d.policy.agent_silent_s + 1e-6))
        if d.life.certificate is not None:
            d.wake(expiry(d.life.certificate, d.node.name, d.policy.certification))
