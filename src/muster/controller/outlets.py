"""Where the controllers of the leading process tell what they did: events to receivers, the audit log, metrics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from types import MappingProxyType

from muster.clock import Clock
from muster.kube.api import KubeApi
from muster.operate.outputs.action import Action
from muster.operate.outputs.audit import AuditLog
from muster.operate.outputs.config import OutputsConfig
from muster.operate.outputs.delivery import Outputs
from muster.operate.outputs.http_sink import HttpSink
from muster.operate.views import NodeRecord
from muster.resources.node_health import Lifecycle, Transition
from muster.telemetry.observer import ControllerObserver

log = logging.getLogger(__name__)


class Outlets:
    """One for each term of leading. `acted` and `stepped` never wait and never fail."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        config: OutputsConfig,
        still_leading: Callable[[], Awaitable[bool]],
        observer: ControllerObserver,
    ) -> None:
        sinks = [HttpSink(sink, clock, config.cluster) for sink in config.sinks]
        self._outputs = Outputs(api, clock, sinks, still_leading=still_leading, observer=observer)
        self._audit = AuditLog(config.audit, config.cluster) if config.audit is not None else None
        self._observer = observer

    def acted(self, action: Action) -> None:
        """Something was done: into the audit log, and counted."""
        self._observer.acted(action.action, action.result.value)
        if self._audit is not None:
            self._audit.write(action)

    def stepped(
        self, record: NodeRecord | None, node: str, life: Lifecycle, transitions: Sequence[Transition]
    ) -> None:
        """The last `transitions` of a node's lifecycle were written. `record` is None once its Node is gone."""
        labels = record.labels if record is not None else MappingProxyType({})
        self._outputs.stepped(node, labels, life, transitions)

    def lags_s(self) -> dict[str, float]:
        """Receiver -> age of the oldest event that waits for it."""
        return self._outputs.lags()

    async def run(self) -> None:
        """Deliver for ever."""
        await self._outputs.run()
