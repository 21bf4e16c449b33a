"""What changed on a node lately, and what was found on it: the inputs of correlation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache

from muster.operate.certificates import COUNTED, drift_cause, drift_of
from muster.operate.correlation.model import AGENT_CHANGE, AGENT_REACH_S, Change, NodeFinding
from muster.resources.fault import Fault
from muster.resources.node_health import CauseKind, Lifecycle, Observed


def agent_change(before: str, after: str, at: datetime) -> Change:
    """The agent of a node became another version at `at`."""
    return Change(name=AGENT_CHANGE, before=before, after=after, at=at)


def changes_of(
    life: Lifecycle | None, observed: Observed | None, now: datetime, agent: Change | None = None
) -> tuple[Change, ...]:
    """What changed on a node, sorted: the agent, readings that differ from the certificate, recertified drift.

    `agent` is a change of the agent that the lifecycle does not know. Whatever its age, a change counts for the
    findings that followed it soon: what it holds back does not come loose by waiting.
    """
    found: list[Change] = [agent] if agent is not None and agent.before else []
    if life is not None:
        if life.agent is not None and life.agent.before:
            found.append(agent_change(life.agent.before, life.agent.version, life.agent.since))
        found.extend(_drift(life, observed))
        found.extend(_recertified(life))
    if not found:
        return ()
    unique: dict[str, Change] = {}
    for change in sorted(found, key=lambda c: (c.at, c.before, c.key), reverse=True):
        if change.at <= now:
            unique.setdefault(change.key, change)
    return tuple(unique[key] for key in sorted(unique))


def _drift(life: Lifecycle, observed: Observed | None) -> list[Change]:
    certificate = life.certificate
    if certificate is None or observed is None:
        return []
    found: list[Change] = []
    drift = drift_of(certificate, observed)
    for kind in COUNTED:
        changed = tuple(c for c in drift if c.reading_class is kind)
        if changed:
            rollout = drift_cause(changed).name
            # Nobody noted the time of a change that is only reported: it counts as before what was found since.
            at = certificate.voided_at or min((observed.observed_at, *life.told.values()))
            found.extend(Change(c.name, c.before or "", c.after or "", at, rollout) for c in changed)
    return found


def _recertified(life: Lifecycle) -> list[Change]:
    """Changes for which the node left service, from its history, the latest of each reading and value."""
    latest: dict[str, datetime] = {}
    for entry in life.history:
        if entry.cause.kind is CauseKind.DRIFT:
            latest[entry.cause.name] = entry.at
    return [
        Change(name, "", value, at, rollout) for rollout, at in latest.items() for name, value in _readings(rollout)
    ]


@lru_cache(maxsize=1024)
def _readings(rollout: str) -> tuple[tuple[str, str], ...]:
    """(reading, value) pairs of the name of a drift: `reading=value;reading=value`."""
    parts = (part.partition("=") for part in rollout.split(";"))
    return tuple((name, "" if value == "absent" else value) for name, separator, value in parts if separator)


def findings_of(node: str, faults: tuple[Fault, ...], told: Mapping[str, datetime]) -> tuple[NodeFinding, ...]:
    """The open faults of `node` as findings, sorted by key.

    `told`: fault key -> when the controller saw it first; the time of the first sighting stands in where it is
    missing.
    """
    return tuple(
        NodeFinding(node=node, at=told.get(fault.key(), fault.first_seen), fault=fault)
        for fault in sorted(faults, key=lambda f: f.key())
    )


def by_new_agent(life: Lifecycle | None, now: datetime) -> bool:
    """Whether the agent of the node became another version so short a time ago that it may be what finds the faults.

    Nothing is held for its findings before those of all nodes were compared.
    """
    agent = life.agent if life is not None else None
    return agent is not None and bool(agent.before) and now <= agent.since + timedelta(seconds=AGENT_REACH_S)
