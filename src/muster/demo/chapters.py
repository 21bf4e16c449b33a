"""The chapters of the story, and when it is over. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from muster.resources.certification import Certification, Phase
from muster.resources.node_health import Lifecycle, NodeHealth, Standing, State
from muster.sim.defects import Appears
from muster.sim.plant import Plant

BRING_UP = "1 bring-up: every node proves itself"
SERVICE = "2 service: jobs run"
FAULT = "3 a fault: hold, drain, repair, recertify"
UPDATE = "4 driver update: recertify in waves within the budget"
SETTLED = "5 settled"

QUIET_S = 600.0
"""How long after the last event of the plant the story lasts at least: the agents look every two minutes."""


def chapter(plant: Plant, start: datetime, now: datetime, healths: Mapping[str, NodeHealth]) -> str:
    """The chapter at `now`."""
    elapsed_s = (now - start).total_seconds()
    if plant.update is not None and elapsed_s >= plant.update.at_s:
        over = elapsed_s >= plant.last_event_s() + QUIET_S and not unsettled(healths, plant.nodes)
        return SETTLED if over else UPDATE
    if any(d.appears is Appears.TIME and elapsed_s >= d.after_s for d in plant.defects):
        return FAULT
    served = sum(1 for h in healths.values() if _state(h) is State.IN_SERVICE)
    return SERVICE if served * 2 >= plant.nodes else BRING_UP


def _state(health: NodeHealth) -> State | None:
    life = health.status.lifecycle
    return life.state if life is not None else None


def unsettled(healths: Mapping[str, NodeHealth], nodes: int) -> list[str]:
    """One sentence for each node that is neither in service with a certificate for what it is, nor out of service."""
    found = []
    if len(healths) < nodes:
        found.append(f"{nodes - len(healths)} nodes have no NodeHealth.")
    for name in sorted(healths):
        health = healths[name]
        life = health.status.lifecycle
        if life is None:
            found.append(f"{name}: no controller has looked at it.")
        elif life.state is State.OUT_OF_SERVICE:
            continue
        elif life.state is not State.IN_SERVICE:
            found.append(f"{name}: {life.state.value}. {life.next}")
        elif not _proved(health, life):
            found.append(f"{name}: in service without a valid certificate for its fingerprint. {life.next}")
    return found


def _proved(health: NodeHealth, life: Lifecycle) -> bool:
    certificate, observed = life.certificate, health.status.observed
    if certificate is None or observed is None or certificate.standing is not Standing.VALID:
        return False
    return certificate.fingerprint.digest == observed.fingerprint.digest


def over(
    plant: Plant,
    start: datetime,
    now: datetime,
    healths: Mapping[str, NodeHealth],
    certifications: list[Certification],
) -> bool:
    """Whether nothing is left to happen: the plant's last event is past and every node has settled."""
    if now < start + timedelta(seconds=plant.last_event_s() + QUIET_S):
        return False
    if any(c.status.phase in (Phase.PENDING, Phase.RUNNING) for c in certifications):
        return False
    return not unsettled(healths, plant.nodes)
