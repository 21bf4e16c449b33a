"""Agents as processes: kept running, ended with their machine, and an end to trying."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from muster.clock import ScaledClock
from muster.kube.api import CRDS, NODE_HEALTHS, NODES, NotFoundError
from muster.resources.base import SYSTEM_NAMESPACE
from muster.resources.crd import manifests
from muster.sim.agent_processes import AgentDiesError, AgentProcesses
from muster.sim.inprocess import InProcessApi
from muster.sim.machine_files import MachineFiles
from muster.sim.nodes import ensure_namespace
from muster.sim.server import ApiServer
from muster.sim.store import Store
from muster.sim.virtual import DEFAULT_START
from muster.sim.world import World

pytestmark = pytest.mark.full

NODE = "gpu-001"
LIMIT_S = 60.0
POLL_S = 0.05


def processes(folder: Path, kubeconfig: Path) -> AgentProcesses:
    world = World(seed=3, nodes=1, domains=1, started=DEFAULT_START, driver="580.65.06")
    clock = ScaledClock(DEFAULT_START, time.time(), 10.0)
    return AgentProcesses(MachineFiles(world, folder), lambda _: kubeconfig, clock, interval_s=30.0, heartbeat_s=30.0)


async def pid_of(agents: AgentProcesses, other_than: int = 0) -> int:
    deadline = time.monotonic() + LIMIT_S
    while agents.pids.get(NODE, other_than) == other_than:
        assert time.monotonic() < deadline, "no agent was started"
        await asyncio.sleep(POLL_S)
    return agents.pids[NODE]


async def published(api: InProcessApi) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            health = await api.get(NODE_HEALTHS, NODE)
            if health.get("status", {}).get("observed"):
                return
        except NotFoundError:
            pass
        assert time.monotonic() < deadline, "the agent published nothing"
        await asyncio.sleep(POLL_S)


def test_an_agent_publishes_is_started_again_when_it_dies_and_ends_with_its_machine(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store(ScaledClock(DEFAULT_START, time.time(), 10.0), 1)
        api = InProcessApi(store)
        for manifest in manifests():
            await api.create(CRDS, dict(manifest))
        await ensure_namespace(api, SYSTEM_NAMESPACE)
        await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        async with ApiServer(store) as server:
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(server.kubeconfig())
            agents = processes(tmp_path / "machines", kubeconfig)
            life = asyncio.ensure_future(agents.live(NODE))
            first = await pid_of(agents)
            await published(api)
            os.kill(first, signal.SIGKILL)
            second = await pid_of(agents, other_than=first)
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
            assert agents.pids == {}
            with pytest.raises(ProcessLookupError):
                os.kill(second, 0)

    asyncio.run(main())


def test_an_agent_that_cannot_start_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    agents = processes(tmp_path / "machines", tmp_path / "no-kubeconfig")
    with pytest.raises(AgentDiesError, match=r"gpu-001 does not stay up \(exit code 2\).*no-kubeconfig"):
        asyncio.run(agents.live(NODE))
