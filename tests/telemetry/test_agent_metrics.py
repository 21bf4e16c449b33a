"""Every metric of the agent is moved by the code that it tells about; its readiness follows what the server says."""

from __future__ import annotations

from typing import Any

from muster.agent.agent import Agent
from muster.kube.api import ForbiddenError, Object, ResourceType
from muster.kube.metered import MeteredApi
from muster.sim.virtual import VirtualClock, run_virtual
from muster.telemetry.metrics import AgentMetrics
from muster.telemetry.observer import AgentFigures
from tests.agent.node import NODE, Bench, xid
from tests.operate.cluster import running
from tests.telemetry.scrape import scrape, value


class Measured:
    """An agent with its metrics on the bench."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.metrics = AgentMetrics("1.0", bench.clock, self._figures)
        self.agent = Agent(
            MeteredApi(bench.server, self.metrics),
            NODE,
            bench.log,
            bench.machine,
            bench.clock,
            state=bench.state,
            version="1.0",
            observer=self.metrics,
        )

    def _figures(self) -> AgentFigures | None:
        return self.agent.figures()

    def __call__(self, name: str, **labels: str) -> float:
        return value(scrape(self.metrics), name, **labels)


def test_log_faults_monitors_and_publications_are_counted() -> None:
    async def story(clock: VirtualClock) -> None:
        bench = await Bench.make(clock)
        m = Measured(bench)
        assert m.agent.not_ready() == "nothing has been published yet"
        assert m("muster_agent_last_publish_timestamp_seconds") == 0
        async with running(m.agent.run()):
            await clock.sleep(1)
            assert m.agent.not_ready() == ""
            assert m("muster_agent_publish_total", result="published") == 1
            assert clock.now().timestamp() - m("muster_agent_last_publish_timestamp_seconds") <= 1
            bench.log.lost = 3
            bench.log.write("something harmless", xid(79), "something else")
            await clock.sleep(10)
            assert m("muster_agent_log_records_total") == 3
            assert m("muster_agent_log_lost_total") == 3
            assert m("muster_agent_open_faults", severity="fatal") == 1
            assert m("muster_agent_open_faults", severity="warning") == 0
            assert m("muster_agent_monitor_up", monitor="inventory") == 1
            assert m("muster_agent_monitor_up", monitor="kernel-log") == 0
            bench.machine.error = OSError("the file system is gone")
            await clock.sleep(60)
            assert m("muster_agent_monitor_up", monitor="inventory") == 0
            assert m("muster_api_requests_total", verb="apply", resource="nodehealths/status", code="200") >= 2
            assert m("muster_api_requests_total", verb="patch", resource="leases", code="200") >= 1
            assert m("muster_build_info", version="1.0") == 1

    run_virtual(story)


def test_an_outage_counts_as_unreachable_and_leaves_the_agent_ready() -> None:
    async def story(clock: VirtualClock) -> None:
        bench = await Bench.make(clock)
        bench.server.down = True
        m = Measured(bench)
        async with running(m.agent.run()):
            await clock.sleep(30)
            assert m("muster_agent_publish_total", result="unreachable") >= 2
            assert m("muster_agent_publish_total", result="published") == 0
            assert m("muster_api_requests_total", verb="apply", resource="nodehealths/status", code="0") >= 2
            assert m.agent.not_ready() == ""
            bench.server.down = False
            await clock.sleep(120)
            assert m("muster_agent_publish_total", result="published") >= 1

    run_virtual(story)


def test_an_agent_that_is_refused_is_not_ready_until_it_is_accepted() -> None:
    async def story(clock: VirtualClock) -> None:
        bench = await Bench.make(clock)
        refusing = True
        accepted = bench.server.apply

        async def apply(res: ResourceType, obj: Object, **options: Any) -> Object:
            if refusing:
                raise ForbiddenError(403, "Forbidden", "no")
            return await accepted(res, obj, **options)

        bench.server.apply = apply  # type: ignore[method-assign]
        m = Measured(bench)
        async with running(m.agent.run()):
            await clock.sleep(10)
            assert "refuses" in m.agent.not_ready()
            assert m("muster_agent_publish_total", result="refused") >= 1
            assert m("muster_api_requests_total", verb="apply", resource="nodehealths/status", code="403") >= 1
            refusing = False
            await clock.sleep(120)
            assert m.agent.not_ready() == ""

    run_virtual(story)
