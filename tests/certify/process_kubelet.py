"""A kubelet stand-in for a real API server: the worker of each worker pod runs as a process on an own address."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from muster.clock import SystemClock
from muster.kube.api import (
    NODES,
    PODS,
    SECRETS,
    ConflictError,
    KubeApi,
    NotFoundError,
    Object,
    PatchType,
)
from muster.kube.cache import WatchCache
from muster.resources.base import GPU_PRODUCT_LABEL, GPU_RESOURCE, SYSTEM_NAMESPACE, WORKERS_LABEL
from muster.sim.nodes import rfc3339
from muster.workloads.archive import build_pyz

PORT = 7470


class ProcessKubelet:
    """The nodes `names`, and what runs on them. `folder` holds the programs and the tokens.

    The pods' own command line is what is started, with the paths of the container replaced by those of this machine.
    """

    def __init__(self, api: KubeApi, names: Sequence[str], folder: Path) -> None:
        self.api = api
        self.names = tuple(names)
        self.folder = folder
        self.archive = build_pyz(folder / "muster-workloads.pyz")
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        """By node."""
        self.started: list[str] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pods: WatchCache[Object] = WatchCache(
            api,
            PODS,
            json.loads,
            clock=SystemClock(),
            namespace=SYSTEM_NAMESPACE,
            label_selector=WORKERS_LABEL,
            on_change=self._changed,
        )

    async def register(self) -> None:
        """Make the nodes."""
        for name in self.names:
            labels = {GPU_PRODUCT_LABEL: "TEST", "kubernetes.io/hostname": name, "pool": self.names[0]}
            await self.api.create(
                NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            )
            resources = {GPU_RESOURCE: "1", "cpu": "8", "memory": "16Gi", "pods": "50", "ephemeral-storage": "100Gi"}
            status = {
                "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}],
                "capacity": resources,
                "allocatable": resources,
                "nodeInfo": {"bootID": "boot-1"},
            }
            await self.api.patch(NODES, name, {"status": status}, PatchType.STRATEGIC, subresource="status")
            # A node without a kubelet's lease is given up after a while; taints would keep the scheduler away.
            await self.api.patch(NODES, name, {"spec": {"taints": []}}, PatchType.MERGE)

    async def run(self) -> None:
        """Serve until cancelled; then every process is gone."""
        try:
            await self._pods.run()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            for process in self.processes.values():
                await _kill(process)

    def alive(self) -> list[str]:
        """Nodes whose worker runs."""
        return sorted(n for n, p in self.processes.items() if p.returncode is None)

    async def kill(self, node: str) -> None:
        """The worker on the node dies."""
        await _kill(self.processes[node])

    def _changed(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or pod["spec"].get("nodeName") not in self.names:
            return
        uid = pod["metadata"]["uid"]
        if uid not in self._tasks:
            self._tasks[uid] = asyncio.ensure_future(self._live(pod))
        if pod["metadata"].get("deletionTimestamp") and f"stop {uid}" not in self._tasks:
            self._tasks[f"stop {uid}"] = asyncio.ensure_future(self._stop(pod))

    async def _live(self, pod: Object) -> None:
        node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
        address = f"127.{os.getpid() % 200 + 20}.{len(self.started) + 1}.1"
        self.started.append(node)
        process = await asyncio.create_subprocess_exec(
            *await self._command(pod, address),
            cwd=self.folder,
            start_new_session=True,
            stdout=(self.folder / f"{uid}.log").open("wb"),
            stderr=asyncio.subprocess.STDOUT,
        )
        self.processes[node] = process
        await self._until_listening(address, process)
        await self._status(
            pod,
            {
                "phase": "Running",
                "podIP": address,
                "podIPs": [{"ip": address}],
                "startTime": rfc3339(SystemClock().now()),
                "containerStatuses": [_container({"running": {}}, ready=True)],
            },
        )
        code = await process.wait()
        ended = {"exitCode": code & 255 or 137, "reason": "Error"}
        await self._status(
            pod, {"phase": "Failed", "containerStatuses": [_container({"terminated": ended}, ready=False)]}
        )

    async def _command(self, pod: Object, address: str) -> list[str]:
        container = pod["spec"]["containers"][0]
        (volume,) = (v for v in pod["spec"]["volumes"] if "secret" in v)
        found = await self.api.get(SECRETS, volume["secret"]["secretName"], SYSTEM_NAMESPACE)
        token = self.folder / f"token-{pod['metadata']['uid']}"
        token.touch(mode=0o600)
        token.write_bytes(base64.b64decode(found["data"]["token"]))
        words = {
            "python3": sys.executable,
            "/programs/muster-workloads.pyz": str(self.archive),
            f"--listen=[$(MUSTER_POD_IP)]:{PORT}": f"--listen=[{address}]:{PORT}",
            "--token-file=/token/token": f"--token-file={token}",
            "--node=$(MUSTER_NODE)": f"--node={pod['spec']['nodeName']}",
        }
        command = container["command"]
        assert words.keys() <= set(command), command
        return [*(words.get(word, word) for word in command), "--device=cpu"]

    async def _until_listening(self, address: str, process: asyncio.subprocess.Process) -> None:
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection(address, PORT)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            writer.close()
            return

    async def _stop(self, pod: Object) -> None:
        node = pod["spec"]["nodeName"]
        if node in self.processes:
            await _kill(self.processes[node])
        try:
            await self.api.delete(
                PODS, pod["metadata"]["name"], SYSTEM_NAMESPACE, grace_period_s=0, uid=pod["metadata"]["uid"]
            )
        except (NotFoundError, ConflictError):
            return

    async def _status(self, pod: Object, status: Object) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        try:
            await self.api.patch(
                PODS, pod["metadata"]["name"], patch, PatchType.STRATEGIC, SYSTEM_NAMESPACE, subresource="status"
            )
        except (NotFoundError, ConflictError):
            return


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _container(state: Object, *, ready: bool) -> Object:
    return {"name": "worker", "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "state": state}
