"""A large fleet: what the controller needs for it, and how fast its watch cache takes news.

    python benchmarks/fleet.py            # 10,000 nodes for a minute; watch path with 20,000 nodes
    python benchmarks/fleet.py --quick    # 2,000 nodes for ten seconds; watch path with 20,000 nodes

Simulated nodes: NodeHealths, Nodes, Leases and three pods each, on the simulated API server, which is a process of
its own; the controller is the real process over HTTPS. The load is that of NVSentinel's production figures, 0.03
events per node and second, and a heartbeat of each agent a minute; the last of 100 events is a fatal fault.
`decision`: from the change of a NodeHealth by the agent to the lifecycle that holds the node, as the server sees it.

Watch path: prepared events of Nodes over HTTP (no TLS) through client, cache and projection, for each second of CPU.
The reference, in the same run: `json.loads` of the same lines and nothing else. Published: kopf 1,600 events/s,
kubernetes_asyncio 1,100.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from fleets.objects import node_of, world_of

GOAL_MIB, GOAL_CORES, GOAL_DECISION_S = 600.0, 1.0, 1.0
GOAL_EVENTS, GOAL_WATCH_MIB = 25_000, 150.0
FOLDER = Path(__file__).resolve().parent / "fleets"
PAGE = 500
READY_S = 300.0
TICKS = os.sysconf("SC_CLK_TCK")


# The controller under load


async def controller(nodes: int, seconds: float) -> str:
    """Run server and controller; returns the line with the figures."""
    with tempfile.TemporaryDirectory(prefix="muster-fleet-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        pipe = asyncio.subprocess.PIPE
        server = await asyncio.create_subprocess_exec(
            sys.executable,
            str(FOLDER / "served.py"),
            str(nodes),
            str(kubeconfig),
            stdin=pipe,
            stdout=pipe,
            limit=2**24,
        )
        process = None
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            if not await server.stdout.readline():
                raise SystemExit("the simulated API server did not start")
            arguments = ["controller", "run", "--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0"]
            began = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "muster.cli.main", *arguments, "--test-runner", "pods", stderr=pipe
            )
            address = await address_of(process)
            assert process.stderr is not None
            rest = asyncio.ensure_future(drain(process.stderr))
            await until_idle(address)
            await until_quiet(process.pid)
            ready_s, start_mib = time.monotonic() - began, memory_of(process.pid)[0]
            cpu, wall = cpu_of(process.pid), time.monotonic()
            server.stdin.write(f"{seconds}\n".encode())
            told = json.loads(await server.stdout.readline())
            cores = (cpu_of(process.pid) - cpu) / (time.monotonic() - wall)
            mib, peak = memory_of(process.pid)
            rest.cancel()
        finally:
            for started in (process, server):
                if started is not None and started.returncode is None:
                    started.kill()
                    await started.wait()
    return line_of(nodes, told, cores, mib, peak, f"synced after {ready_s:.0f} s with {start_mib:.0f} MiB")


def line_of(nodes: int, told: dict[str, Any], cores: float, mib: float, peak: float, start: str) -> str:
    took = told["took_s"]
    p50, p99 = (took[min(len(took) - 1, int(len(took) * q))] if took else float("inf") for q in (0.5, 0.99))
    met = mib <= GOAL_MIB and cores <= GOAL_CORES and p99 <= GOAL_DECISION_S and not told["undecided"]
    return (
        f"fleet, {nodes} simulated nodes, {told['events_per_s']:.0f} events/s ({told['writes_per_s']:.0f} writes/s): "
        f"controller {mib:.0f} MiB (peak {peak:.0f}, goal {GOAL_MIB:.0f}), {cores:.2f} of a core (goal "
        f"{GOAL_CORES:.0f}), decision p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms of {len(took)} "
        f"(goal {GOAL_DECISION_S * 1000:.0f} ms), {told['undecided']} undecided, "
        f"{'met' if met else 'missed'}; {start}; "
        f"NVSentinel published: 221-235 GB for 100,000 nodes"
    )


async def address_of(process: asyncio.subprocess.Process) -> str:
    """Where the controller listens, from its log."""
    assert process.stderr is not None
    async for line in process.stderr:
        if found := re.search(rb"/metrics on (\S+)", line):
            return found[1].decode()
    raise SystemExit("the controller ended before it listened")


async def drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


async def until_idle(address: str) -> None:
    """Wait until the controller has looked at all nodes."""

    def depth() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            found = re.search(r"^muster_queue_depth (\S+)$", answer.read().decode(), re.MULTILINE)
        return found[1] if found else ""

    deadline = time.monotonic() + READY_S
    while (seen := await asyncio.to_thread(depth)) == "" or float(seen) > 0:
        if time.monotonic() > deadline:
            raise SystemExit(f"the controller is not ready after {READY_S:.0f} s (queue: {seen or 'not synced'})")
        await asyncio.sleep(1.0)


async def until_quiet(pid: int) -> None:
    """Wait until the first plan of the fleet is done too, a minute at most."""
    for _ in range(30):
        used = cpu_of(pid)
        await asyncio.sleep(2.0)
        if cpu_of(pid) - used < 0.2:
            return


def cpu_of(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_of(pid: int) -> tuple[float, float]:
    """Resident MiB now, and at most."""
    status = Path(f"/proc/{pid}/status").read_text()
    now, peak = (int(re.findall(rf"{name}:\s+(\d+)", status)[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now, peak


# The watch path


class Prepared:
    """Lists and one watch of Nodes, all of it prepared: what a server costs is no part of the figure."""

    def __init__(self, nodes: int, events: int) -> None:
        machines = world_of(nodes).nodes.values()
        self.objects = [self._versioned(node_of(truth), number) for number, truth in enumerate(machines, 1)]
        self._version = nodes
        self.lines = [self._event(number, nodes + number + 1) for number in range(events)]

    def _versioned(self, node: dict[str, Any], version: int) -> dict[str, Any]:
        metadata = {
            **node["metadata"],
            "uid": f"00000000-0000-4000-8000-{version:012d}",
            "resourceVersion": str(version),
        }
        return {**node, "metadata": metadata}

    def _event(self, number: int, version: int) -> bytes:
        """A kubelet's report; one in ten changes something that the controller looks at."""
        node = self.objects[number % len(self.objects)]
        metadata = {**node["metadata"], "resourceVersion": str(version)}
        if number % 10 == 0:
            metadata["labels"] = {**metadata["labels"], "changed": str(number)}
        return msgspec.json.encode({"type": "MODIFIED", "object": {**node, "metadata": metadata}}) + b"\n"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                target = request.split(b" ", 2)[1].decode()
                if "watch=true" in target:
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
                    )
                    for start in range(0, len(self.lines), 8):
                        chunk = b"".join(self.lines[start : start + 8])
                        writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                        await writer.drain()
                    await reader.read(1)  # until the client has had enough
                    return
                start = int(found[1]) if (found := re.search(r"continue=(\d+)", target)) else 0
                end = start + PAGE
                metadata = {"resourceVersion": str(self._version)}
                if end < len(self.objects):
                    metadata["continue"] = str(end)
                body = msgspec.json.encode({"metadata": metadata, "items": self.objects[start:end]})
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is done
        finally:
            writer.close()


async def watch_path(nodes: int, events: int) -> str:
    """Returns the line with the figures."""
    prepared = Prepared(nodes, events)
    server = await asyncio.start_server(prepared.answer, "127.0.0.1", 0, limit=2**20)
    port = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="muster-watch-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        config = {
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "x", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        }
        kubeconfig.write_text(json.dumps(config))
        arguments = [str(kubeconfig), str(nodes), str(events)]
        client = await asyncio.create_subprocess_exec(
            sys.executable, str(FOLDER / "watch_path.py"), *arguments, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await client.communicate()
    server.close()
    told = json.loads(out)
    cpu = time.process_time()
    for line in prepared.lines:
        json.loads(line)
    reference = events / (time.process_time() - cpu)
    rate, mib = told["events_per_cpu_s"], told["full_mib"]
    met = rate >= GOAL_EVENTS and mib <= GOAL_WATCH_MIB
    return (
        f"watch path: {rate:,.0f} events for each CPU second (goal {GOAL_EVENTS:,}; json.loads alone "
        f"{reference:,.0f}, ratio {rate / reference:.2f}; {told['events_per_s']:,.0f}/s of wall clock); "
        f"{nodes} nodes: "
        f"process of {mib:.0f} MiB, {told['bare_mib']:.0f} without them (goal {GOAL_WATCH_MIB:.0f}), "
        f"{'met' if met else 'missed'}; published: kopf 1,600, kubernetes_asyncio 1,100 events/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What a large fleet costs.")
    parser.add_argument("--quick", action="store_true", help="fewer nodes, shorter")
    parser.add_argument("--nodes", type=int, help="nodes under load")
    parser.add_argument("--only", choices=["load", "watch"], help="only one of the two")
    options = parser.parse_args()
    nodes = options.nodes or (2000 if options.quick else 10_000)
    if options.only != "load":
        print(asyncio.run(watch_path(20_000, 20_000 if options.quick else 60_000)), flush=True)
    if options.only != "watch":
        print(asyncio.run(controller(nodes, 10.0 if options.quick else 60.0)))


if __name__ == "__main__":
    main()
