"""Every metric of the controller is moved by the code that it tells about."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from muster.certify.controller import CertificationController
from muster.clock import Clock
from muster.controller.baseline_controller import Compare
from muster.controller.baseline_report import Comparison
from muster.controller.process import ControllerProcess, MakeHistory
from muster.errors import BadInputError, UnreachableError
from muster.kube.api import (
    BASELINES,
    LEASES,
    MAINTENANCES,
    NODE_HEALTHS,
    ConflictError,
    ConnectionLostError,
    KubeApi,
    Object,
    PatchType,
    ResourceType,
    ServerError,
    TooManyRequestsError,
)
from muster.kube.metered import MeteredApi
from muster.operate.history.address import parse
from muster.operate.history.keep import HistoryKeeper
from muster.operate.history.store import HistoryStore, open_store
from muster.operate.outputs.config import OutputsConfig, SinkConfig, SinkKind
from muster.resources.base import API_VERSION, CONTROLLER_LEASE, SYSTEM_NAMESPACE
from muster.resources.baseline import Assertion, AssertionResult, BaselineSpec, Drift, DriftClass
from muster.resources.node_health import CauseKind
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual
from muster.telemetry.metrics import ControllerMetrics
from muster.telemetry.observer import NEW, ControllerObserver, FleetFigures
from tests.certify.bed import Bed, Faults, names, running
from tests.operate.cluster import AUTOMATED, Machine, TestCluster, cluster
from tests.operate.cluster import running as running_tasks
from tests.operate.worlds import fault
from tests.telemetry.scrape import scrape, total, value


class Idle:
    """Stands for the certification controller: the cluster of the test has its own certifier."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        pass

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()


class Measured:
    """A controller process with its metrics."""

    def __init__(
        self,
        c: TestCluster,
        identity: str = "a",
        compare: Callable[[KubeApi], Compare] | None = None,
        outputs: OutputsConfig | None = None,
        history: MakeHistory | None = None,
    ) -> None:
        self.lines: list[str] = []
        self.metrics = ControllerMetrics("1.2.3", self._figures)
        self.process = ControllerProcess(
            lambda: InProcessApi(c.store, user=identity),
            c.clock,
            identity,
            compare=compare,
            outputs=outputs,
            history=history,
            tell=self.lines.append,
            certifications=Idle,
            observer=self.metrics,
        )

    def _figures(self) -> FleetFigures | None:
        return self.process.figures()

    def scrape(self) -> dict[Any, float]:
        return scrape(self.metrics)

    async def until_held(self, clock: VirtualClock) -> dict[Any, float]:
        """Look often: a node goes through its states within seconds."""
        for _ in range(10_000):
            found = self.scrape()
            if value(found, "muster_nodes_held"):
                return found
            await clock.sleep(0.1)
        raise AssertionError("no node was held")


def test_the_fleet_is_counted_as_it_is() -> None:
    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}", domain=f"d{i % 2}") for i in range(10)]
        async with cluster(clock, fleet, controller=False) as c:
            m = Measured(c)
            async with running_tasks(m.process.run()):
                await c.until_settled()
                found = m.scrape()
                assert value(found, "muster_nodes", state="InService") == 10
                assert value(found, "muster_nodes", state="Draining") == 0
                assert total(found, "muster_nodes") == 10
                assert value(found, "muster_nodes_held") == 0
                assert value(found, "muster_budget_disrupted", group="all") == 0
                assert value(found, "muster_budget_allowed", group="all") == 1
                assert value(found, "muster_certifications", phase="Succeeded") >= 1

                fleet[3].faults = (fault(seen=clock.now()),)
                found = await m.until_held(clock)
                assert value(found, "muster_nodes", state="InService") == 9
                assert value(found, "muster_nodes_held") == 1
                assert value(found, "muster_budget_disrupted", group="all") == 1
                assert value(found, "muster_open_faults", severity="fatal") == 1
                await c.until_settled()

                found = m.scrape()
                assert value(found, "muster_nodes_held") == 0
                assert value(found, "muster_open_faults", severity="fatal") == 0
                assert value(found, "muster_repairs_total", rung="reboot", outcome="proved") == 1
                assert value(found, "muster_leader") == 1
                assert value(found, "muster_build_info", version="1.2.3") == 1

    run_virtual(story)


def test_transitions_are_those_that_the_history_holds() -> None:
    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}", domain=f"d{i}") for i in range(4)]
        async with cluster(clock, fleet, controller=False) as c:
            m = Measured(c)
            async with running_tasks(m.process.run()):
                await c.until_settled()
                fleet[1].faults = (fault(seen=clock.now()),)
                await m.until_held(clock)
                await c.until_settled()
                found = m.scrape()
                steps: Counter[tuple[str, str, str]] = Counter()
                for name in c.machines:
                    life = await c.life(name)
                    assert life is not None
                    state = NEW
                    for entry in life.history:
                        steps[state, entry.state.value, entry.cause.kind.value] += 1
                        state = entry.state.value
                for (before, after, cause), count in steps.items():
                    labels = {"from_": before, "to": after, "cause": cause}
                    assert value(found, "muster_transitions_total", **labels) == count
                assert total(found, "muster_transitions_total") == steps.total()
                assert steps[NEW, "Uncertified", CauseKind.NEW_NODE.value] == 4

    run_virtual(story)


def test_decisions_waits_and_requests_are_timed() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine("n00"), Machine("n01")], controller=False) as c:
            m = Measured(c)
            async with running_tasks(m.process.run()):
                await c.until_settled()
            found = m.scrape()
            assert value(found, "muster_decisions_total", result="done") >= 6
            assert value(found, "muster_decision_seconds_count") == total(found, "muster_decisions_total")
            assert value(found, "muster_queue_wait_seconds_count") >= total(found, "muster_decisions_total")
            # A virtual loop does not pass time while it works: what is counted is exact.
            assert value(found, "muster_queue_wait_seconds_sum") < 60
            for verb, resource in (
                ("list", "nodehealths"),
                ("apply", "nodehealths/status"),
                ("patch", "nodes"),
                ("patch", "nodes/status"),
                ("create", "certifications"),
                ("update", "leases"),
                ("get", "leases"),
            ):
                assert value(found, "muster_api_requests_total", verb=verb, resource=resource, code="200") >= 1, verb
            assert value(found, "muster_api_request_seconds_count", verb="list") >= 7

    run_virtual(story)


def test_baselines_are_counted_by_result_and_finding() -> None:
    drift = Drift(drift_class=DriftClass.VERSION, component="nfd", path="version", expected="1", found="2")
    unknown = Assertion(name="nfd/Deployment/nfd/master", result=AssertionResult.UNKNOWN)

    async def compare(_: BaselineSpec) -> Comparison:
        return Comparison("sha256:1", (unknown,), (drift, drift))

    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine("n00")], controller=False) as c:
            body = {"apiVersion": API_VERSION, "kind": "Baseline", "metadata": {"name": "b"}, "spec": {"recipe": "x"}}
            await c.api.create(BASELINES, body)
            m = Measured(c, compare=lambda _: compare)
            async with running_tasks(m.process.run()):
                await clock.sleep(30)
                found = m.scrape()
            assert {r: value(found, "muster_baselines", result=r) for r in ("passed", "failed", "unknown")} == {
                "passed": 0,
                "failed": 1,
                "unknown": 0,
            }
            findings = {
                r: value(found, "muster_baseline_findings", result=r) for r in ("failed", "unknown", "drifted")
            }
            assert findings == {"failed": 0, "unknown": 1, "drifted": 2}

    run_virtual(story)


def test_a_leader_that_lost_its_lease_tells_nothing_of_the_fleet_any_more() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine("n00"), Machine("n01")], controller=False) as c:
            m = Measured(c)
            async with running_tasks(m.process.run()):
                await c.until_settled()
                assert value(m.scrape(), "muster_leader") == 1
                spec = {"holderIdentity": "thief", "leaseTransitions": 99, "leaseDurationSeconds": 3600}
                await c.api.patch(LEASES, CONTROLLER_LEASE, {"spec": spec}, PatchType.MERGE, SYSTEM_NAMESPACE)
                await clock.sleep(60)
                after = m.scrape()
                assert value(after, "muster_leader") == 0
                assert not {"muster_nodes", "muster_nodes_held", "muster_queue_depth"} & {name for name, _ in after}

    run_virtual(story)


class Stubborn(InProcessApi):
    """Answers the applies of NodeHealths with `errors`, one after another, and then as usual."""

    def __init__(self, store: Store, errors: list[Exception]) -> None:
        super().__init__(store, user="muster")
        self.errors = errors

    async def apply(self, res: ResourceType, obj: Object, **options: Any) -> Object:
        if res is NODE_HEALTHS and self.errors:
            raise self.errors.pop(0)
        return await super().apply(res, obj, **options)


def test_every_result_of_a_decision_has_its_own_count() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine("n00"), Machine("n01")], controller=False) as c:
            errors: list[Exception] = [
                ConflictError(409, "Conflict", "changed meanwhile"),
                TooManyRequestsError(429, "TooManyRequests", "later", 1.0),
                ServerError(500, "InternalError", "no"),
                ConnectionLostError("no answer"),
                BadInputError("The policy cannot be used."),
            ]
            metrics = ControllerMetrics("1", lambda: None)
            api = MeteredApi(Stubborn(c.store, errors), metrics)
            async with running_tasks(c.controller(api, observer=metrics).run()):
                await c.until_settled()
            found = scrape(metrics)
            counted = {r: value(found, "muster_decisions_total", result=r) for r in ("conflict", "busy", "failed")}
            assert counted == {"conflict": 1, "busy": 1, "failed": 2}
            assert value(found, "muster_decisions_total", result="refused") == 1
            codes = {c: value(found, "muster_api_requests_total", verb="apply", resource="nodehealths/status", code=c)
                     for c in ("409", "429", "500", "0")}  # fmt: skip
            assert set(codes.values()) == {1}

    run_virtual(story)


def test_a_standby_tells_nothing_of_the_fleet_and_is_ready() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine("n00"), Machine("n01")], controller=False) as c:
            first, second = Measured(c, "a"), Measured(c, "b")
            async with running_tasks(first.process.run()):
                await clock.sleep(5)
                async with running_tasks(second.process.run()):
                    await c.until_settled()
                    assert value(first.scrape(), "muster_leader") == 1
                    assert first.process.not_ready() == ""
                    standby = second.scrape()
                    assert value(standby, "muster_leader") == 0
                    assert total(standby, "muster_nodes") == 0
                    assert value(standby, "muster_api_requests_total", verb="get", resource="leases", code="200") > 3
                    assert second.process.not_ready() == ""

    run_virtual(story)


def test_a_leader_is_not_ready_before_it_has_read_the_cluster() -> None:
    opened = asyncio.Event()

    class Slow(InProcessApi):
        async def list_page(self, *arguments: Any, **options: Any) -> Any:
            await opened.wait()
            return await super().list_page(*arguments, **options)

    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine("n00")], controller=False) as c:
            process = ControllerProcess(lambda: Slow(c.store), clock, "a", tell=c.lines.append, certifications=Idle)
            async with running_tasks(process.run()):
                await clock.sleep(10)
                assert "still reading" in process.not_ready()
                assert process.figures() is None
                opened.set()
                await clock.sleep(10)
                assert process.not_ready() == ""
                figures = process.figures()
                assert figures is not None
                assert sum(figures.nodes.values()) == 1

    run_virtual(story)


def test_ends_of_watches_are_counted_by_reason() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine("n00")], controller=False) as c:
            m = Measured(c)
            async with running_tasks(m.process.run()):
                await clock.sleep(3600)
                found = m.scrape()
                assert value(found, "muster_watch_restarts_total", resource="nodes", reason="timeout") >= 5
                assert value(found, "muster_watch_restarts_total", resource="leases", reason="timeout") >= 5

    run_virtual(story)


def test_rounds_of_certifications_are_counted() -> None:
    async def story(clock: VirtualClock) -> None:
        b = Bed(clock, names(4), Faults())
        await b.install()
        metrics = ControllerMetrics("1", lambda: None)
        api = MeteredApi(InProcessApi(b.store, user="muster"), metrics)
        async with running(b.kubelets(), CertificationController(api, clock, observer=metrics).run()):
            await b.certify("c", names(4), "bringup")
            ended = await b.ended("c")
            rounds = value(scrape(metrics), "muster_certification_rounds_total")
            assert rounds == len({run.round for run in ended.status.runs})
            assert rounds >= 1

    run_virtual(story)


def test_a_budget_of_a_group_has_its_own_line() -> None:
    import msgspec

    async def story(clock: VirtualClock) -> None:
        spec = msgspec.structs.replace(AUTOMATED.spec, node_selector={"topology.muster.dev/domain": "d0"})
        policy = msgspec.structs.replace(AUTOMATED, spec=spec)
        fleet = [Machine(f"n{i:02}", domain=f"d{i % 2}") for i in range(8)]
        async with cluster(clock, fleet, policy, controller=False) as c:
            m = Measured(c)
            async with running_tasks(m.process.run()):
                await c.until_settled()
                found = m.scrape()
                group = "topology.muster.dev/domain=d0"
                assert value(found, "muster_budget_allowed", group=group) >= 1
                assert value(found, "muster_budget_allowed", group="all") >= 1

    run_virtual(story)


def test_the_queue_tells_how_much_waits() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine(f"n{i:02}") for i in range(20)], controller=False) as c:
            controller = c.controller()
            metrics = ControllerMetrics("1", controller.figures)
            deepest = 0.0

            async def watch() -> None:
                nonlocal deepest
                while True:
                    deepest = max(deepest, value(scrape(metrics), "muster_queue_depth"))
                    await asyncio.sleep(0)

            async with running_tasks(controller.run(), watch()):
                await asyncio.sleep(0)
                for _ in range(400):
                    await asyncio.sleep(0)
            # 20 nodes become due at once and 8 workers take one each.
            assert deepest >= 12

    run_virtual(story)


def test_what_nodes_wait_for_is_counted() -> None:
    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}", domain=f"d{i % 2}") for i in range(4)]
        async with cluster(clock, fleet, controller=False) as c:
            m = Measured(c)
            async with running_tasks(m.process.run()):
                await c.until_settled()
                assert value(m.scrape(), "muster_nodes_blocked", kind="person") == 0
                body = {"spec": {"hold": {"by": "alice", "reason": "cable"}}}
                await c.api.patch(NODE_HEALTHS, "n00", body, PatchType.MERGE)
                await clock.sleep(30)
                assert value(m.scrape(), "muster_nodes_blocked", kind="person") == 1

    run_virtual(story)


def test_a_finding_that_many_nodes_share_is_counted() -> None:
    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}", domain="d0") for i in range(6)]
        async with cluster(clock, fleet, controller=False) as c:
            m = Measured(c)
            async with running_tasks(m.process.run()):
                await c.until_settled()
                assert value(m.scrape(), "muster_correlations") == 0
                for machine in fleet:
                    machine.faults = (fault(seen=clock.now()),)
                await clock.sleep(120)
                assert value(m.scrape(), "muster_correlations") >= 1

    run_virtual(story)


def test_work_that_came_to_a_new_node_before_its_hold_is_counted() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine(f"n{i:02}") for i in range(3)], controller=False) as c:
            m = Measured(c)
            await c.add_pod("slipped", "n01")
            async with running_tasks(m.process.run()):
                await clock.sleep(120)
                assert value(m.scrape(), "muster_work_before_hold_total") == 1

    run_virtual(story)


def test_maintenance_is_counted_and_its_overrun_once_a_node() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, [Machine(f"n{i:02}") for i in range(3)], controller=False) as c:
            m = Measured(c)
            async with running_tasks(m.process.run()):
                await c.until_settled()
                opens, closes = (clock.now() + timedelta(seconds=s) for s in (60, 600))
                spec = {
                    "reason": "firmware",
                    "nodes": ["n00"],
                    "opensAt": opens.isoformat(),
                    "closesAt": closes.isoformat(),
                }
                body = {"apiVersion": API_VERSION, "kind": "Maintenance", "metadata": {"name": "fw"}, "spec": spec}
                await c.api.create(MAINTENANCES, body)
                await clock.sleep(30)
                assert value(m.scrape(), "muster_maintenances", phase="Announced") == 1
                await clock.sleep(1200)
                found = m.scrape()
                assert value(found, "muster_maintenances", phase="Overrun") == 1
                assert value(found, "muster_maintenance_overruns_total") == 1

    run_virtual(story)


def test_actions_and_deliveries_are_counted() -> None:
    async def story(clock: VirtualClock) -> None:
        sink = SinkConfig(name="ops", kind=SinkKind.WEBHOOK, url="http://127.0.0.1:9/x", timeout_s=1)
        async with cluster(clock, [Machine("n00"), Machine("n01")], controller=False) as c:
            m = Measured(c, outputs=OutputsConfig(sinks=(sink,)))
            async with running_tasks(m.process.run()):
                await c.until_settled()
                found = m.scrape()
                assert value(found, "muster_actions_total", action="hold", result="done") >= 2
                assert value(found, "muster_actions_total", action="release", result="done") >= 2
                # Nobody is there: the steps wait, and are offered again and again.
                assert value(found, "muster_output_events_total", sink="ops", result="again") >= 1
                assert value(found, "muster_output_lag_seconds", sink="ops") > 0

    run_virtual(story)


def test_rows_of_the_history_written_and_lost_and_since_when(tmp_path: Path) -> None:
    address = parse(f"sqlite://{tmp_path}/history.db")
    away = False

    def opened() -> HistoryStore:
        if away:
            raise UnreachableError("the disk is full")
        return open_store(address, create=True)

    def make(api: KubeApi, clock: Clock, observer: ControllerObserver) -> HistoryKeeper:
        return HistoryKeeper(api, clock, opened, observer=observer, most_pending=2, inline=True)

    async def story(clock: VirtualClock) -> None:
        nonlocal away
        machines = [Machine(f"n{i:02}") for i in range(4)]
        async with cluster(clock, machines, controller=False) as c:
            m = Measured(c, history=make)
            assert ("muster_history_lag_seconds", ()) not in m.scrape()
            away = True
            async with running_tasks(m.process.run()):
                await c.until_settled()
                away = False
                await clock.sleep(300)
                found = m.scrape()
                assert value(found, "muster_history_rows_total", result="written") >= 1
                assert value(found, "muster_history_rows_total", result="lost") >= 1
                assert 0 < value(found, "muster_history_lag_seconds") < 300

    run_virtual(story)
