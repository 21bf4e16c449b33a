"""Both deployables as processes: probes and metrics, log lines, and stopping whatever state the API server is in."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from muster.clock import SystemClock
from muster.kube.api import LEASES, NODES
from muster.resources.base import CONTROLLER_LEASE, SYSTEM_NAMESPACE
from muster.sim.server import ApiServer
from muster.sim.store import Store
from tests.controlplane.link import Link
from tests.operate.cluster import Machine, TestCluster
from tests.telemetry.scrape import Key, parsed, total, value
from tests.telemetry.test_endpoint import Address, exchange, get

pytestmark = pytest.mark.full

STOP_LIMIT_S = 25.0
"""A kubelet kills after 30 s."""
LISTENS = re.compile(r"/metrics on (\S+?)[\"\s]")
BOOT = "0f1e2d3c-0000-4000-8000-123456789abc"


class Child:
    """`muster VERB run` with its log, line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = asyncio.ensure_future(self._read())
        self._news = asyncio.Event()

    @classmethod
    async def start(cls, verb: str, *arguments: str) -> Child:
        environment = {k: v for k, v in os.environ.items() if k not in ("MUSTER_CLOCK", "KUBECONFIG")}
        command = ["-m", "muster.cli.main", verb, "run", *arguments]
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, *command, env=environment, stderr=asyncio.subprocess.PIPE
            )
        )

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode())
            self._news.set()
        self._news.set()

    async def told(self, words: str) -> str:
        """Wait for a line with `words`."""
        async with asyncio.timeout(60):
            while True:
                self._news.clear()
                for line in self.lines:
                    if words in line:
                        return line
                assert not self._reading.done(), self.text
                await self._news.wait()

    async def listens(self) -> Address:
        found = LISTENS.search(await self.told("/metrics on "))
        assert found
        return Address.parse(found[1])

    async def until(self, path: str, wanted: Callable[[int, bytes], bool]) -> bytes:
        at = await self.listens()
        async with asyncio.timeout(60):
            while True:
                code, _, body = await exchange(at, get(path))
                if wanted(code, body):
                    return body
                assert self.process.returncode is None, self.text
                await asyncio.sleep(0.1)

    async def scraped(self, wanted: Callable[[dict[Key, float]], bool]) -> dict[Key, float]:
        return parsed(await self.until("/metrics", lambda _, body: wanted(parsed(body))))

    async def stop(self) -> int:
        """SIGTERM, as a kubelet does it. Returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.wait_for(self.process.wait(), STOP_LIMIT_S)
        finally:
            await self.end()
        return code

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reading

    @property
    def text(self) -> str:
        return "".join(self.lines)


class World:
    """A simulated API server with a link in the way, and a kubeconfig through it."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        self.folder = folder
        self.store = Store(SystemClock(), seed=1)
        self.cluster = TestCluster(SystemClock(), [Machine(f"n{i:02}") for i in range(nodes)], store=self.store)
        self.kubeconfig = folder / "kubeconfig"
        self.children: list[Child] = []

    def run(self, story: Callable[[World, Link], object]) -> None:
        async def main() -> None:
            await self.cluster.install()
            async with ApiServer(self.store) as server:
                port = int(server.url.rpartition(":")[2].strip("/"))
                with Link(port) as link:
                    self.kubeconfig.write_text(link.through(server.kubeconfig("admin")))
                    result = story(self, link)
                    assert asyncio.iscoroutine(result)
                    try:
                        await result
                    finally:
                        for child in self.children:
                            await child.end()

        asyncio.run(main())

    async def controller(self, *arguments: str) -> Child:
        given = ("--kubeconfig", str(self.kubeconfig), "--identity", "t", "--listen", "127.0.0.1:0")
        return await self._start("controller", *given, *arguments)

    async def _start(self, verb: str, *arguments: str) -> Child:
        child = await Child.start(verb, *arguments)
        self.children.append(child)
        return child

    async def agent(self, node: str, *arguments: str) -> Child:
        root = self.folder / "root"
        boot = root / "proc/sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True, exist_ok=True)
        boot.write_text(BOOT)
        log = self.folder / "kmsg"
        log.write_text("3,1,1000,-;NVRM: Xid (PCI:0000:1a:00): 79, pid=1, name=x, GPU has fallen off the bus.\n")
        given = ["--node", node, "--kubeconfig", str(self.kubeconfig), "--kernel-log", str(log)]
        given += ["--state-dir", str(self.folder / "state"), "--host-root", str(root), "--listen", "127.0.0.1:0"]
        return await self._start("agent", *given, *arguments)

    async def holder(self) -> str:
        lease = await self.cluster.api.get(LEASES, CONTROLLER_LEASE, SYSTEM_NAMESPACE)
        return str(lease["spec"].get("holderIdentity") or "")


def test_a_busy_leader_gives_its_lease_back(tmp_path: Path) -> None:
    async def story(w: World, link: Link) -> None:
        child = await w.controller("--requests-per-second", "20", "--burst", "30")
        found = await child.scraped(lambda found: total(found, "muster_transitions_total") >= 1)
        assert value(found, "muster_leader") == 1
        await child.until("/readyz", lambda code, body: (code, body) == (200, b"ready\n"))
        assert await w.holder() == "t"
        # 40 nodes at 20 requests a second: it is in the middle of its work.
        assert await child.stop() == 0, child.text
        assert await w.holder() == ""
        assert "controller t stopped" in child.lines[-1]
        assert "Traceback" not in child.text
        counted = sum("(new) -> Uncertified" in line for line in child.lines)
        assert 1 <= counted < 40

    World(tmp_path, 40).run(story)


@pytest.mark.parametrize("harm", ["freeze", "cut"])
def test_a_leader_without_its_server_stops_in_time(tmp_path: Path, harm: str) -> None:
    async def story(w: World, link: Link) -> None:
        child = await w.controller()
        await child.told("n01: (new) -> Uncertified")
        (link.freeze if harm == "freeze" else link.cut)()
        assert await child.stop() == 0, child.text
        assert "Traceback" not in child.text

    World(tmp_path).run(story)


def test_a_server_that_is_away_at_the_start_is_waited_for_and_told_once(tmp_path: Path) -> None:
    async def story(w: World, link: Link) -> None:
        link.cut()
        child = await w.controller()
        line = await child.told("It is tried again until it works.")
        assert re.match(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ WARNING muster\.controller: No answer from the API server", line
        )
        body = await child.until("/readyz", lambda code, _: code == 503)
        assert body == b"not ready: the API server has not answered yet\n"
        await child.until("/healthz", lambda code, _: code == 200)
        seen = link.accepted
        async with asyncio.timeout(30):
            while link.accepted < seen + 3:  # noqa: ASYNC110 - a thread counts
                await asyncio.sleep(0.1)
        link.heal()
        await child.told("controller t leads")
        await child.until("/readyz", lambda code, _: code == 200)
        assert child.text.count("No answer from the API server") == 1
        assert await child.stop() == 0, child.text

    World(tmp_path).run(story)


def test_a_controller_that_waits_for_its_server_stops_when_told(tmp_path: Path) -> None:
    async def story(w: World, link: Link) -> None:
        link.freeze()
        child = await w.controller()
        await child.listens()
        assert await child.stop() == 0, child.text
        assert "Traceback" not in child.text

    World(tmp_path).run(story)


def test_json_lines_are_all_that_is_written(tmp_path: Path) -> None:
    async def story(w: World, link: Link) -> None:
        child = await w.controller("--log-format", "json", "--verbose")
        await child.told("n01: (new) -> Uncertified")
        assert await child.stop() == 0
        lines = [json.loads(line) for line in child.lines]
        assert all(set(line) == {"time", "level", "logger", "message"} for line in lines)
        ours = [line for line in lines if line["message"].startswith("node n01: (new) -> Uncertified (new-node:")]
        assert [(line["level"], line["logger"]) for line in ours] == [("INFO", "muster.controller")]

    World(tmp_path).run(story)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_port_in_use_ends_it_with_one_sentence(tmp_path: Path, log_format: str) -> None:
    async def story(w: World, link: Link) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as taken:
            where = f"127.0.0.1:{taken.getsockname()[1]}"
            for child in (
                await w.controller("--listen", where, "--log-format", log_format),
                await w.agent("n00", "--listen", where, "--log-format", log_format),
            ):
                assert await asyncio.wait_for(child.process.wait(), 60) == 2
                await child.end()
                assert len(child.lines) == 1
                line = child.lines[0]
                message = json.loads(line)["message"] if log_format == "json" else line.removeprefix("muster: ")
                assert message.strip() == f"Cannot listen on {where} (address already in use); give another --listen."

    World(tmp_path).run(story)


def test_two_controllers_are_both_ready_and_one_leads(tmp_path: Path) -> None:
    async def story(w: World, link: Link) -> None:
        first = await w.controller()
        await first.told("controller t leads")
        second = await w.controller("--identity", "u")
        await second.until("/readyz", lambda code, _: code == 200)
        found = await second.scraped(
            lambda f: value(f, "muster_api_requests_total", verb="get", resource="leases", code="200") > 0
        )
        assert value(found, "muster_leader") == 0
        assert total(found, "muster_nodes") == 0
        assert await first.stop() == 0
        await second.told("controller u leads")
        await second.scraped(lambda f: value(f, "muster_nodes", state="Uncertified") == 2)
        assert await second.stop() == 0

    World(tmp_path).run(story)


def test_an_agent_serves_publishes_and_stops(tmp_path: Path) -> None:
    async def story(w: World, link: Link) -> None:
        child = await w.agent("n00")
        await child.until("/readyz", lambda code, _: code == 200)
        found = await child.scraped(lambda f: value(f, "muster_agent_open_faults", severity="fatal") == 1)
        assert value(found, "muster_agent_log_records_total") == 1
        assert value(found, "muster_agent_publish_total", result="published") >= 1
        assert value(found, "process_resident_memory_bytes") > 0
        assert not any(name == "muster_leader" for name, _ in found)
        link.freeze()
        assert await child.stop() == 0, child.text
        assert "Traceback" not in child.text
        assert await w.cluster.api.get(NODES, "n00")

    World(tmp_path).run(story)


def test_an_agent_on_a_fresh_node_waits_for_its_server(tmp_path: Path) -> None:
    async def story(w: World, link: Link) -> None:
        link.cut()
        child = await w.agent("n00")
        await child.until("/healthz", lambda code, _: code == 200)
        await child.told("No answer from the API server")
        link.heal()
        await child.until("/readyz", lambda code, _: code == 200)
        assert await child.stop() == 0

    World(tmp_path).run(story)
