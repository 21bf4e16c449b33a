"""A process of its own: the watch cache of Nodes over HTTP, as the controller has it.

    python watch_path.py KUBECONFIG NODES EVENTS

Prints one JSON object: resident memory with all nodes in the cache, and events for each second of CPU.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path

from muster.clock import SystemClock
from muster.kube.api import NODES
from muster.kube.cache import WatchCache
from muster.kube.http import HttpApi
from muster.operate import views


def resident_mib() -> float:
    return int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0]) / 1024


async def follow(kubeconfig: str, nodes: int, events: int) -> None:
    bare = resident_mib()
    async with HttpApi.from_kubeconfig(kubeconfig, rate_per_s=10_000, burst=10_000) as api:
        cache = WatchCache(api, NODES, views.node_record, clock=SystemClock())
        running = asyncio.create_task(cache.run())
        await cache.wait_synced()
        assert len(cache.items()) == nodes
        full = resident_mib()
        last = str(int(cache.resource_version) + events)
        cpu, wall = time.process_time(), time.monotonic()
        while cache.resource_version != last:  # noqa: ASYNC110 - what another process sends is counted
            await asyncio.sleep(0.01)
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    told = {"bare_mib": bare, "full_mib": full, "events_per_cpu_s": events / cpu, "events_per_s": events / wall}
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(follow(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
