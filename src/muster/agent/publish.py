"""What the agent writes to the API: the observed part of its own NodeHealth, and its heartbeat Lease.

The status is a state, so the spool through an outage is the latest state: one value, whatever the length of the
outage. What happened in between is inside it (open faults with counts and times).
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum

from muster.clock import Clock
from muster.errors import UnreachableError
from muster.kube.api import (
    LEASES,
    NODE_HEALTHS,
    NODES,
    AlreadyExistsError,
    ApiError,
    KubeApi,
    NotFoundError,
    Object,
    PatchType,
    ServerError,
    TooManyRequestsError,
)
from muster.kube.backoff import Backoff
from muster.kube.election import micro_time
from muster.resources.base import AGENT_MANAGER, SYSTEM_NAMESPACE, agent_lease, to_object
from muster.resources.node_health import NodeHealth, Observed
from muster.telemetry.observer import AgentObserver

log = logging.getLogger(__name__)

RESYNC_S = 1800.0
"""How often an unchanged state is applied again, in case somebody deleted or changed it; a no-op for the server."""


class PublishResult(StrEnum):
    """How an attempt to publish ended."""

    PUBLISHED = "published"
    THROTTLED = "throttled"
    """The API server asks to come back later."""
    UNREACHABLE = "unreachable"
    """No answer, or one that says nothing about the request."""
    REFUSED = "refused"
    """The API server understood and said no: rights or definitions are not what the agent needs."""


class Publisher:
    """Brings the latest offered state to NodeHealth/<node>, `status.observed`, and touches nothing else."""

    def __init__(
        self,
        api: KubeApi,
        node: str,
        clock: Clock,
        *,
        resync_s: float = RESYNC_S,
        observer: AgentObserver | None = None,
    ) -> None:
        self._api = api
        self._node = node
        self._clock = clock
        self._observer = observer or AgentObserver()
        self._resync_s = resync_s
        self._backoff = Backoff(f"publish/{node}", cap_s=60.0)
        self._wanted: Observed | None = None
        self._changed = asyncio.Event()
        self.published: Observed | None = None
        """The state that the API server has accepted last."""
        self.failing = ""
        """Why the latest attempt failed; empty when it did not."""
        self.result: PublishResult | None = None
        """How the latest attempt ended; None before the first."""

    def offer(self, observed: Observed) -> None:
        """This is the state now; an older one that was not sent yet is forgotten."""
        self._wanted = observed
        if observed != self.published:
            self._changed.set()

    async def run(self) -> None:
        """Send for ever: at once on change, with backoff through an outage, and again after `resync_s`."""
        while True:
            await self._due()
            wanted = self._wanted
            if wanted is None:
                continue
            self._changed.clear()
            try:
                await self.send(wanted)
            except Exception as error:  # whatever it is: the agent watches on and tells it later
                self._changed.set()
                wait_s = self._backoff.next_s()
                if isinstance(error, TooManyRequestsError):
                    wait_s = max(wait_s, error.retry_after_s or 0.0)
                log.warning("%s: cannot publish: %s; again in %.1f s", self._node, error, wait_s)
                self.failing = str(error) or type(error).__name__
                self._ended(_result(error))
                await self._clock.sleep(wait_s)
            else:
                self._backoff.reset()

    async def send(self, observed: Observed) -> None:
        """Apply one state; creates the NodeHealth when it is absent. Raises ApiError or UnreachableError."""
        patch = _status(self._node, observed)
        try:
            await self._api.apply(NODE_HEALTHS, patch, manager=AGENT_MANAGER, subresource="status")
        except NotFoundError:
            try:
                await self._api.create(NODE_HEALTHS, _named(self._node), manager=AGENT_MANAGER)
            except AlreadyExistsError:
                pass
            await self._api.apply(NODE_HEALTHS, patch, manager=AGENT_MANAGER, subresource="status")
        self.published = observed
        self.failing = ""
        self._ended(PublishResult.PUBLISHED)

    def _ended(self, result: PublishResult) -> None:
        self.result = result
        self._observer.published(result.value)

    async def node_uid(self) -> str:
        """The UID of the Node object. Raises ApiError or UnreachableError."""
        node = await self._api.get(NODES, self._node)
        return str(node["metadata"]["uid"])

    async def _due(self) -> None:
        """Return on a change, or when the state has to be applied again."""
        if self._changed.is_set():
            return
        resync = asyncio.ensure_future(self._clock.sleep(self._resync_s))
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({resync, change}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            resync.cancel()
            change.cancel()


class Heartbeat:
    """Renews the Lease `agent-<node>`: who does not see it renewed must not rely on the observed state."""

    def __init__(self, api: KubeApi, node: str, clock: Clock, *, heartbeat_s: float) -> None:
        self._api = api
        self._node = node
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._acquired = micro_time(clock.now())

    async def run(self) -> None:
        """Renew for ever; through an outage with backoff, so that the first answer counts."""
        backoff = Backoff(f"heartbeat/{self._node}", base_s=1.0, cap_s=self._heartbeat_s)
        while True:
            try:
                await self.send()
            except Exception as error:  # as above
                log.warning("%s: no heartbeat: %s", self._node, error)
                await self._clock.sleep(backoff.next_s())
            else:
                backoff.reset()
                await self._clock.sleep(self._heartbeat_s)

    async def send(self) -> None:
        """One renewal. Raises ApiError or UnreachableError."""
        spec = {
            "holderIdentity": self._node,
            "leaseDurationSeconds": max(1, round(3 * self._heartbeat_s)),
            "acquireTime": self._acquired,
            "renewTime": micro_time(self._clock.now()),
        }
        name = agent_lease(self._node)
        try:
            # A merge patch: the cheapest write there is for a heartbeat of every node of a fleet.
            await self._api.patch(
                LEASES, name, {"spec": spec}, PatchType.MERGE, SYSTEM_NAMESPACE, manager=AGENT_MANAGER
            )
        except NotFoundError:
            lease: Object = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE},
                "spec": spec,
            }
            await self._api.create(LEASES, lease, SYSTEM_NAMESPACE, manager=AGENT_MANAGER)


def _result(error: Exception) -> PublishResult:
    match error:
        case TooManyRequestsError():
            return PublishResult.THROTTLED
        case ServerError() | UnreachableError():
            return PublishResult.UNREACHABLE
        case ApiError():
            return PublishResult.REFUSED
        case _:
            return PublishResult.UNREACHABLE


def _named(node: str) -> Object:
    return {
        "apiVersion": NODE_HEALTHS.api_version,
        "kind": NodeHealth.__name__,
        "metadata": {"name": node},
    }


def _status(node: str, observed: Observed) -> Object:
    return {**_named(node), "status": {"observed": to_object(observed)}}
