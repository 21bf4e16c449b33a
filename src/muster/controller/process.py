"""The controller process: one election, and behind it the node controller and the certification controller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from muster.certify.controller import CertificationController
from muster.clock import Clock, ScaledClock
from muster.kube.api import LEASES, KubeApi, NotFoundError
from muster.kube.election import Election
from muster.operate.carry_out import NotLeadingError
from muster.operate.node_controller import NodeController
from muster.operate.together import run_together
from muster.resources.base import CONTROLLER_LEASE, SYSTEM_NAMESPACE

log = logging.getLogger(__name__)

LEASE_S = 15.0
"""How long a dead leader keeps the others waiting; the usual value in Kubernetes."""

SHORTEST_LEASE_S = 3.0
"""Of the machine's time: in a simulation that runs fast, requests take as long as ever."""


class Controller(Protocol):
    """Something that works for ever until it is cancelled."""

    async def run(self) -> None: ...


class ControllerProcess:
    """Any number of these may run; the one that holds the lease works, the others wait."""

    def __init__(
        self,
        api_factory: Callable[[], KubeApi],
        clock: Clock,
        identity: str,
        *,
        tell: Callable[[str], None] = log.info,
        certifications: Callable[[KubeApi, Clock], Controller] = CertificationController,
        lease_s: float = LEASE_S,
    ) -> None:
        """`api_factory` makes a client; it is called twice, so that a busy controller cannot delay the election.

        `identity` must be unique among the processes. `tell` receives one line for each transition of a node.
        """
        self._api = api_factory()
        self._election_api = api_factory()
        self._clock = clock
        self._identity = identity
        self._tell = tell
        self._certifications = certifications
        scale = _lease_scale(clock)
        self._election = Election(
            self._election_api,
            CONTROLLER_LEASE,
            identity,
            clock=clock,
            duration_s=lease_s * scale,
            renew_s=lease_s * scale * 2 / 3,
            retry_s=lease_s * scale * 2 / 15,
        )

    async def run(self) -> None:
        """Take part in the election for ever, work while leading. Cancel it to stop: the lease is then given back."""
        await self._election.run(self._lead)

    async def _lead(self, token: int) -> None:
        async def still_leading() -> bool:
            return await self._holds(token)

        self._tell(f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ} controller {self._identity} leads (term {token})")
        nodes = NodeController(
            self._api, self._clock, identity=self._identity, still_leading=still_leading, tell=self._tell
        )
        certifications = self._certifications(self._api, self._clock)
        try:
            await run_together(nodes.run(), certifications.run())
        except NotLeadingError as error:
            # The election finds out by itself within seconds and cancels this; until then nothing is written.
            log.warning("%s", error)
            await asyncio.get_running_loop().create_future()

    async def _holds(self, token: int) -> bool:
        """Whether the lease still names us in the same term: asked of the API server, not of memory."""
        try:
            lease = await self._election_api.get(LEASES, CONTROLLER_LEASE, SYSTEM_NAMESPACE)
        except NotFoundError:
            return False
        spec = lease.get("spec") or {}
        return spec.get("holderIdentity") == self._identity and spec.get("leaseTransitions") == token


def _lease_scale(clock: Clock) -> float:
    """By how much the lease must be longer than LEASE_S so that a fast clock leaves time to renew it."""
    return max(1.0, clock.speed * SHORTEST_LEASE_S / LEASE_S) if isinstance(clock, ScaledClock) else 1.0
