"""The controller process: one election, and behind it controllers of nodes, tests, repairs and maintenance."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from muster.certify import catalogue
from muster.certify.controller import CertificationController, MakeRunner
from muster.certify.runners.test_pod import DEFAULT_IMAGE
from muster.clock import Clock, ScaledClock
from muster.controller.baseline_controller import BaselineController, Compare
from muster.controller.outlets import Outlets
from muster.kube.api import LEASES, KubeApi, NotFoundError
from muster.kube.election import Election
from muster.kube.metered import MeteredApi
from muster.operate.carry_out import NotLeadingError
from muster.operate.history.keep import HistoryKeeper
from muster.operate.maintenance.controller import MaintenanceController
from muster.operate.node_controller import NodeController
from muster.operate.outputs.config import OutputsConfig
from muster.operate.providers.assembly import Surroundings
from muster.operate.providers.provider import Provider
from muster.operate.repair_controller import RepairController
from muster.operate.together import run_together
from muster.resources.base import CONTROLLER_LEASE, SYSTEM_NAMESPACE
from muster.telemetry.observer import ControllerObserver, FleetFigures

log = logging.getLogger(__name__)

MakeProviders = Callable[[Surroundings], Sequence[Provider]]
"""Makes the providers that carry out repairs. Raises BadInputError."""

MakeHistory = Callable[[KubeApi, Clock, ControllerObserver], HistoryKeeper]

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
        certifications: Callable[[KubeApi, Clock], Controller] | None = None,
        lease_s: float = LEASE_S,
        test_image: str = DEFAULT_IMAGE,
        make_runner: MakeRunner | None = None,
        observer: ControllerObserver | None = None,
        compare: Callable[[KubeApi], Compare] | None = None,
        providers: MakeProviders | None = None,
        outputs: OutputsConfig | None = None,
        history: MakeHistory | None = None,
    ) -> None:
        """`api_factory` makes a client; it is called twice, so that a busy controller cannot delay the election.

        `identity` must be unique among the processes. `tell` receives one line for each transition of a node,
        `observer` what metrics are made of. Tests are carried out by what `make_runner` gives, without it as pods of
        `test_image`.
        Baselines are watched where `compare` says how the cluster is compared with one. `providers` makes those that
        carry out repairs; `outputs` says where events and the audit log go; `history` makes what keeps a history.
        """
        self._observer = observer or ControllerObserver()
        self._api: KubeApi = MeteredApi(api_factory(), self._observer)
        self._election_api: KubeApi = MeteredApi(api_factory(), self._observer)
        self._clock = clock
        self._identity = identity
        self._tell = tell
        self._test_image = test_image
        self._make_runner = make_runner
        self._certifications = certifications or self._certification_controller
        self._compare = compare
        self._providers = providers
        self._outputs = outputs or OutputsConfig()
        self._history = history
        self._keeper: HistoryKeeper | None = None
        self._outlets: Outlets | None = None
        self._maintenances: MaintenanceController | None = None
        self._nodes: NodeController | None = None
        self._baselines: BaselineController | None = None
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

    def figures(self) -> FleetFigures | None:
        """The fleet in counts; None while another process leads, or the picture is not complete."""
        if self._nodes is None:
            return None
        figures = self._nodes.figures()
        if figures is None:
            return None
        if self._outlets is not None:
            figures = replace(figures, output_lags_s=self._outlets.lags_s())
        if self._keeper is not None:
            figures = replace(figures, history_lag_s=self._keeper.lag_s())
        if self._maintenances is not None:
            figures = replace(figures, maintenances=self._maintenances.figures())
        if self._baselines is None:
            return figures
        baselines, findings = self._baselines.figures()
        return replace(figures, baselines=baselines, baseline_findings=findings)

    def not_ready(self) -> str:
        """Why this process is of no use yet; empty when it leads with a complete picture, or waits for the lease."""
        if self._nodes is not None and not self._nodes.synced:
            return "this process leads and is still reading the state of the cluster"
        return ""

    async def _lead(self, token: int) -> None:
        async def still_leading() -> bool:
            return await self._holds(token)

        self._tell(f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ} controller {self._identity} leads (term {token})")
        outlets = Outlets(self._api, self._clock, self._outputs, still_leading, self._observer)
        around = Surroundings(api=self._api, clock=self._clock, still_leading=still_leading)
        providers = self._providers(around) if self._providers is not None else None
        nodes = NodeController(
            self._api,
            self._clock,
            identity=self._identity,
            still_leading=still_leading,
            tell=self._tell,
            observer=self._observer,
            claims=True,
            # Without providers of its own this process cannot tell which others there are.
            providers=tuple(provider.name for provider in providers) if providers is not None else None,
            profiles=catalogue.proofs(),
            tests=catalogue.runnable(),
            on_transitions=outlets.stepped,
            on_action=outlets.acted,
        )
        certifications = self._certifications(self._api, self._clock)
        maintenances = MaintenanceController(
            self._api,
            self._clock,
            identity=self._identity,
            still_leading=still_leading,
            observer=self._observer,
            on_action=outlets.acted,
        )
        works = [nodes.run(), certifications.run(), maintenances.run(), outlets.run()]
        if providers is not None:
            repairs = RepairController(
                self._api,
                self._clock,
                providers,
                identity=self._identity,
                still_leading=still_leading,
                observer=self._observer,
                tell=self._tell,
                on_action=outlets.acted,
            )
            works.append(repairs.run())
        if self._compare is not None:
            self._baselines = BaselineController(
                self._api,
                self._clock,
                self._compare(self._api),
                identity=self._identity,
                still_leading=still_leading,
                tell=self._tell,
            )
            works.append(self._baselines.run())
        if self._history is not None:
            self._keeper = self._history(self._api, self._clock, self._observer)
            works.append(self._keeper.run())
        self._nodes, self._outlets, self._maintenances = nodes, outlets, maintenances
        self._observer.leads(True)
        try:
            await run_together(*works)
        except NotLeadingError as error:
            # The election finds out by itself within seconds and cancels this; until then nothing is written.
            log.warning("%s", error)
            await asyncio.get_running_loop().create_future()
        finally:
            self._nodes = self._baselines = self._outlets = self._maintenances = self._keeper = None
            self._observer.leads(False)

    def _certification_controller(self, api: KubeApi, clock: Clock) -> Controller:
        return CertificationController(
            api, clock, image=self._test_image, observer=self._observer, make_runner=self._make_runner
        )

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
