"""The controller process: one leads, another takes over, a stale one stops; the verb and its errors."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from muster.cli.controller import check_access, controller
from muster.cli.environment import read_clock
from muster.cli.group import run as run_verb
from muster.clock import Clock, ScaledClock, SystemClock
from muster.controller.process import ControllerProcess
from muster.errors import BadInputError
from muster.kube.api import LEASES, NODE_HEALTHS, ForbiddenError, KubeApi, PatchType
from muster.operate.carry_out import NotLeadingError
from muster.resources.base import CONTROLLER_LEASE, SYSTEM_NAMESPACE
from muster.sim.inprocess import InProcessApi
from muster.sim.server import ApiServer
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual
from tests.operate.cluster import Machine, TestCluster, cluster, running


class Idle:
    """Stands for the certification controller: the cluster of the test has its own certifier."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self.started = True

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()


def process(c: TestCluster, identity: str, lines: list[str]) -> ControllerProcess:
    return ControllerProcess(
        lambda: InProcessApi(c.store, user=identity), c.clock, identity, tell=lines.append, certifications=Idle
    )


def machines(count: int) -> list[Machine]:
    return [Machine(f"n{i:02}") for i in range(count)]


@pytest.mark.requirement("sla/management-api")
def test_one_leads_and_the_other_takes_over_when_it_is_gone() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(4), controller=False) as c:
            first: list[str] = []
            second: list[str] = []
            async with running(process(c, "a", first).run()) as tasks:
                await clock.sleep(5)
                async with running(process(c, "b", second).run()):
                    await clock.sleep(60)
                    assert "a leads" in first[0]
                    assert second == []
                    tasks[0].cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                    await c.until_settled()
                    assert "b leads" in second[0]
                    assert set((await c.states()).values()) == {"InService"}
                    tasks.clear()

    run_virtual(story)


def test_each_transition_is_one_line_with_node_states_and_cause() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(3), controller=False) as c:
            lines: list[str] = []
            async with running(process(c, "a", lines).run()):
                await c.until_settled()
            ours = [line for line in lines if " node n00:" in line]
            assert [line.split(": ")[1].split(" (")[0] for line in ours] == [
                "(new) -> Uncertified",
                "Uncertified -> Certifying",
                "Certifying -> InService",
            ]
            assert "new-node" in ours[0]
            assert all("\n" not in line for line in lines)

    run_virtual(story)


def test_a_controller_whose_lease_was_taken_starts_no_disruption() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(4), controller=False) as c:
            leading = True

            async def still_leading() -> bool:
                return leading

            works = c.controller(still_leading=still_leading).run()
            task = asyncio.ensure_future(works)
            await c.until_settled()
            leading = False
            hold = {"spec": {"hold": {"by": "ada", "reason": "x"}}}
            await c.api.patch(NODE_HEALTHS, "n01", hold, PatchType.MERGE)
            with pytest.raises(NotLeadingError):
                await task
            assert (await c.states())["n01"] == "InService"

    run_virtual(story)


def test_a_controller_that_was_suspended_past_its_lease_writes_nothing_it_believes() -> None:
    """What it knows of heartbeats is old when it wakes: agents seem silent to it that have never been."""

    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(4), controller=False) as c:
            leading = True

            async def still_leading() -> bool:
                return leading

            task = asyncio.ensure_future(c.controller(still_leading=still_leading).run())
            await c.until_settled()
            before = await c.life("n01")
            leading = False
            c.machines["n01"].silent = True
            with pytest.raises(NotLeadingError):
                await asyncio.wait_for(task, 600)
            assert await c.life("n01") == before

    run_virtual(story)


def test_a_stolen_lease_stops_the_old_leader() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(4), controller=False) as c:
            lines: list[str] = []
            async with running(process(c, "a", lines).run()):
                await c.until_settled()
                spec = {"holderIdentity": "thief", "leaseTransitions": 99, "leaseDurationSeconds": 3600}
                await c.api.patch(LEASES, CONTROLLER_LEASE, {"spec": spec}, PatchType.MERGE, SYSTEM_NAMESPACE)
                await clock.sleep(60)
                told = len(lines)
                hold = {"spec": {"hold": {"by": "ada", "reason": "x"}}}
                await c.api.patch(NODE_HEALTHS, "n01", hold, PatchType.MERGE)
                await clock.sleep(600)
                assert (await c.states())["n01"] == "InService"
                assert len(lines) == told

    run_virtual(story)


def test_the_clock_of_the_environment_is_honoured_or_refused_in_one_sentence() -> None:
    assert isinstance(read_clock(""), SystemClock)
    text = "2026-01-05T08:00:00+00:00,1700000000.0,60.0"
    assert read_clock(text) == ScaledClock.decode(text)
    for bad in ("noon", "2026-01-05T08:00:00+00:00,1700000000.0,nan", "2026-01-05T08:00:00+00:00,inf,60.0"):
        with pytest.raises(BadInputError, match="MUSTER_CLOCK is not a clock"):
            read_clock(bad)


def test_a_cluster_without_the_resource_definitions_is_refused_at_once() -> None:
    async def story(clock: VirtualClock) -> None:
        api = InProcessApi(Store(clock, seed=1), user="test")
        with pytest.raises(BadInputError, match=r"does not know nodehealths\.muster\.dev; install"):
            await check_access(api, "https://here")
        c = TestCluster(clock, machines(1))
        await c.install()
        await check_access(c.api, "https://here")

    run_virtual(story)


def test_credentials_that_the_server_refuses_are_refused_at_once() -> None:
    class Locked(InProcessApi):
        async def list_page(self, *_: Any, **__: Any) -> Any:
            raise ForbiddenError(401, "Unauthorized", "Unauthorized")

    async def story(clock: VirtualClock) -> None:
        with pytest.raises(BadInputError, match=r"does not let the controller list nodes \(Unauthorized\)"):
            await check_access(Locked(Store(clock, seed=1), user="test"), "https://here")

    run_virtual(story)


def test_bad_input_of_the_verb_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    missing = tmp_path_factory.mktemp("none") / "kubeconfig"
    monkeypatch.delenv("MUSTER_CLOCK", raising=False)
    for args in (
        ["controller", "run", "--kubeconfig", str(missing)],
        ["controller", "run", "--identity", ""],
        ["controller", "run", "--no-such-flag"],
        ["controller", "walk"],
    ):
        assert run_verb(args) == 2, args
        told = capsys.readouterr().err
        assert told.count("\n") == 1, told
        assert "Traceback" not in told


def test_the_verb_explains_itself() -> None:
    told = CliRunner().invoke(controller, ["run", "--help"])
    assert told.exit_code == 0
    assert "--kubeconfig" in told.output
    assert "--identity" in told.output


@pytest.mark.full
def test_the_verb_runs_against_a_server_and_stops_when_told(tmp_path: Path) -> None:
    async def story() -> tuple[int | None, str]:
        clock = SystemClock()
        store = Store(clock, seed=1)
        c = TestCluster(clock, machines(2), store=store)
        async with ApiServer(store) as server:
            await c.install()
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(server.kubeconfig("admin"))
            command = [
                "-m",
                "muster.cli.main",
                "controller",
                "run",
                "--kubeconfig",
                str(kubeconfig),
                "--identity",
                "t",
            ]
            child = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE)
            try:
                async with asyncio.timeout(60):
                    while set((await c.states()).values()) != {"Uncertified"}:
                        assert child.returncode is None
                        await clock.sleep(0.1)
                    while "taints" not in (await c.node("n00"))["spec"]:
                        await clock.sleep(0.1)
            finally:
                if child.returncode is None:
                    child.terminate()
                _, told = await child.communicate()
            lease = await c.api.get(LEASES, CONTROLLER_LEASE, SYSTEM_NAMESPACE)
            assert not lease["spec"].get("holderIdentity")
            return child.returncode, told.decode()

    code, told = asyncio.run(story())
    assert code == 0, told
    assert "node n00: (new) -> Uncertified (new-node:" in told
    assert "controller t leads" in told
    assert "Traceback" not in told
