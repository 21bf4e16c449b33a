"""`muster controller run --history` as a process, with its threads: what it wrote is what `muster goodput` reads."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.clock import SystemClock
from muster.sim.server import ApiServer
from muster.sim.store import Store
from tests.operate.cluster import Machine, TestCluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(180)]


def test_a_controller_keeps_the_history_that_goodput_reads(tmp_path: Path) -> None:
    asyncio.run(_story(tmp_path, f"sqlite://{tmp_path}/history.db"))


@pytest.mark.real_postgresql
def test_the_same_in_postgresql(tmp_path: Path, postgresql: Any) -> None:
    asyncio.run(_story(tmp_path, postgresql.create("verb")))


async def _story(tmp_path: Path, url: str) -> None:
    clock = SystemClock()
    store = Store(clock, seed=1)
    c = TestCluster(clock, [Machine("n00"), Machine("n01")], store=store)
    async with ApiServer(store) as server:
        await c.install()
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig("admin"))
        run = ["controller", "run", "--kubeconfig", str(kubeconfig), "--identity", "t", "--history", url]
        child = await _muster(*run, "--history-retention", "30")
        try:
            async with asyncio.timeout(120):
                while (found := await _goodput(url)) is None or found["classes"]["held"]["us"] == 0:
                    assert child.returncode is None
                    await clock.sleep(1.0)
        finally:
            if child.returncode is None:
                child.terminate()
            _, told = await child.communicate()
    assert child.returncode == 0, told.decode()
    assert f"the history is kept in {url.partition('?')[0][:10]}" in told.decode()
    assert "Traceback" not in told.decode()
    assert found["nodes"] == 2
    assert found["total"]["us"] == sum(part["us"] for part in found["classes"].values())


async def _goodput(url: str) -> Any:
    """None until there is a history with a node in it."""
    child = await _muster("goodput", "--since", "10m", "-o", "json", history=url)
    out, told = await child.communicate()
    assert b"Traceback" not in told
    if child.returncode != 0:
        assert b"no history" in told or b"There is no file" in told, told
        return None
    values = json.loads(out)
    return values if values["nodes"] == 2 else None


async def _muster(*arguments: str, history: str = "") -> asyncio.subprocess.Process:
    environment = {**os.environ, "MUSTER_HISTORY_URL": history} if history else None
    pipe = asyncio.subprocess.PIPE
    command = ("-m", "muster.cli.main", *arguments)
    return await asyncio.create_subprocess_exec(sys.executable, *command, stdout=pipe, stderr=pipe, env=environment)
