"""What happens in a cluster is in the database afterwards, whatever became of processes, API server or disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.errors import BadInputError, UnreachableError
from muster.kube.api import NODE_HEALTHS, NODES, PODS, REPAIRS, KubeApi, PatchType
from muster.operate.history.address import parse
from muster.operate.history.facts import Facts, moment, records_of
from muster.operate.history.keep import BLIND_S, FLUSH_S, HistoryKeeper
from muster.operate.history.store import HistoryStore, open_store
from muster.operate.ledger import TimeClass, build, microseconds
from muster.operate.model import BlockerKind
from muster.resources.base import ObjectMeta, to_object
from muster.resources.node_health import Blocker, Cause, CauseKind, Lifecycle, State, Transition
from muster.resources.repair import Repair, RepairSpec, Rung
from muster.sim.virtual import VirtualClock, run_virtual
from muster.telemetry.observer import ControllerObserver
from tests.operate.cluster import running
from tests.operate.test_goodput_recorder import cluster, set_phase, start_pod

MINUTE_S = 60.0
MINUTE_US = 60_000_000


class Counted(ControllerObserver):
    def __init__(self) -> None:
        self.rows = {"written": 0, "lost": 0}

    def history(self, result: str, rows: int) -> None:
        self.rows[result] += rows


class Disk:
    """Opens the database; `away` makes every use of it fail."""

    def __init__(self, path: Path) -> None:
        self.address = parse(f"sqlite://{path}/history.db")
        self.away = False

    def open(self) -> HistoryStore:
        if self.away:
            raise UnreachableError("The history cannot be used: no space left.")
        store = open_store(self.address, create=True)
        real = store.write

        def write(rows: Any) -> None:
            if self.away:
                raise UnreachableError("The history cannot be used: no space left.")
            real(rows)

        store.write = write  # type: ignore[method-assign]
        return store

    def facts(self) -> Facts:
        store = open_store(self.address, create=False)
        try:
            return store.read(0, 2**60)
        finally:
            store.close()


async def become(api: KubeApi, clock: VirtualClock, *states: State, blockers: tuple[Blocker, ...] = ()) -> None:
    """The NodeHealth of n1 says that the node goes through `states`, a minute each."""
    for state in states:
        found = None
        for health in (await api.list_page(NODE_HEALTHS)).items:
            found = msgspec.json.decode(health)["status"].get("lifecycle") or {}
        steps = list((found or {}).get("history") or ())
        entry = Transition(
            state=state, at=clock.now(), episode="e1", cause=Cause(kind=CauseKind.FAULT, name="xid/79")
        )
        life = Lifecycle(state=state, since=clock.now(), history=(entry,), blockers=blockers)
        body = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": "n1"}}
        if found is None:
            await api.apply(NODE_HEALTHS, dict(body, spec={}), manager="test")
        told = to_object(life)
        told["history"] = [*steps, *told["history"]]
        await api.apply(NODE_HEALTHS, dict(body, status={"lifecycle": told}), manager="test", subresource="status")
        await clock.sleep(MINUTE_S)


def played(story: Callable[[VirtualClock, KubeApi], Any]) -> None:
    async def whole(clock: VirtualClock) -> None:
        await story(clock, await cluster(clock))

    run_virtual(whole)


def keeper(api: KubeApi, clock: VirtualClock, disk: Disk, **more: Any) -> HistoryKeeper:
    return HistoryKeeper(api, clock, disk.open, inline=True, **more)


def minutes(facts: Facts, clock: VirtualClock) -> dict[TimeClass, int]:
    ledger = build(records_of(facts), moment(0), clock.now())
    assert sum(ledger.by_class().values()) == ledger.total_us
    return {name: length // MINUTE_US for name, length in ledger.by_class().items() if length >= MINUTE_US}


@pytest.mark.requirement("companion/BMAAS07")
def test_a_stay_out_of_service_is_told(tmp_path: Path) -> None:
    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk, counted = Disk(tmp_path), Counted()
        await api.patch(NODES, "n1", {"metadata": {"labels": {"topology.muster.dev/pool": "gold"}}}, PatchType.MERGE)
        kept = keeper(api, clock, disk, observer=counted)
        async with running(kept.run()):
            await become(api, clock, State.IN_SERVICE)
            await start_pod(api, "train-0")
            await clock.sleep(9 * MINUTE_S)
            waiting = Blocker(kind=BlockerKind.BUDGET, message="the budget is spent", since=clock.now())
            await become(api, clock, State.QUARANTINED, blockers=(waiting,))
            await api.delete(PODS, "train-0", "training", grace_period_s=0)
            spec = RepairSpec(node_name="n1", node_uid="u", episode="e1", rung=Rung.REBOOT, provider="p")
            made = to_object(Repair(metadata=ObjectMeta(name="r1"), spec=spec))
            await api.create(REPAIRS, {"apiVersion": "muster.dev/v1alpha1", "kind": "Repair", **made})
            await become(api, clock, State.REPAIRING, State.IN_SERVICE)
            await clock.sleep(2 * MINUTE_S)
            assert kept.lag_s() is not None
            assert (kept.lag_s() or 0.0) <= FLUSH_S
        facts = disk.facts()
        found = minutes(facts, clock)
        assert found.pop(TimeClass.IDLE) in (3, 4)
        assert found == {TimeClass.BUSY: 9, TimeClass.QUARANTINED: 1, TimeClass.REPAIRING: 1}
        assert {n.pool for n in facts.nodes} == {"gold"}
        assert [w.job for w in facts.work] == ["training/train-0"]
        assert [(d.kind, d.to_us is not None) for d in facts.delays] == [("budget", True)]
        assert [(r.rung, r.node) for r in facts.repairs] == [("reboot", "n1")]
        assert counted.rows["written"] >= 8
        assert counted.rows["lost"] == 0

    played(story)


def test_steps_of_one_moment_keep_their_order(tmp_path: Path) -> None:
    """A decision may take a node through two states at once; the last of them is where it is."""

    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk = Disk(tmp_path)
        states = (State.REPAIRING, State.DRAINING, State.QUARANTINED, State.UNCERTIFIED, State.CERTIFYING)
        async with running(keeper(api, clock, disk).run()):
            entries = tuple(
                Transition(state=s, at=clock.now(), episode="e1", cause=Cause(kind=CauseKind.FAULT)) for s in states
            )
            body = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": "n1"}}
            await api.apply(NODE_HEALTHS, dict(body, spec={}), manager="test")
            life = Lifecycle(state=states[-1], since=clock.now(), history=entries)
            status = {"lifecycle": to_object(life)}
            await api.apply(NODE_HEALTHS, dict(body, status=status), manager="test", subresource="status")
            await clock.sleep(5 * MINUTE_S)
        (record,) = records_of(disk.facts())
        assert tuple(t.state for t in record.transitions) == states
        assert minutes(disk.facts(), clock) == {TimeClass.CERTIFYING: 5}

    played(story)


def test_what_happened_while_no_process_ran_is_not_known(tmp_path: Path) -> None:
    """The pod is gone when the next process looks: when it ended nobody saw."""

    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk = Disk(tmp_path)
        async with running(keeper(api, clock, disk).run()):
            await become(api, clock, State.IN_SERVICE)
            await start_pod(api, "train-0")
            await clock.sleep(10 * MINUTE_S)
        await clock.sleep(30 * MINUTE_S)
        await api.delete(PODS, "train-0", "training", grace_period_s=0)
        async with running(keeper(api, clock, disk).run()):
            await clock.sleep(5 * MINUTE_S)
        found = minutes(disk.facts(), clock)
        assert found[TimeClass.BUSY] in (9, 10)
        assert found[TimeClass.UNKNOWN] in (30, 31)
        assert found[TimeClass.IDLE] in (5, 6)

    played(story)


def test_a_pod_that_outlives_the_process_is_one_interval(tmp_path: Path) -> None:
    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk = Disk(tmp_path)
        for _ in range(3):
            async with running(keeper(api, clock, disk).run()):
                if not (await api.list_page(PODS)).items:
                    await become(api, clock, State.IN_SERVICE)
                    await start_pod(api, "train-0")
                await clock.sleep(10 * MINUTE_S)
            await clock.sleep(10 * MINUTE_S)
        (work,) = disk.facts().work
        assert work.to_us is None
        assert minutes(disk.facts(), clock)[TimeClass.BUSY] == 60

    played(story)


def test_a_database_that_is_away_stops_nothing_and_loses_nothing(tmp_path: Path) -> None:
    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk = Disk(tmp_path)
        async with running(keeper(api, clock, disk).run()):
            await become(api, clock, State.IN_SERVICE)
            disk.away = True
            await start_pod(api, "train-0")
            await clock.sleep(30 * MINUTE_S)
            await set_phase(api, "train-0", "Succeeded")
            await api.delete(PODS, "train-0", "training", grace_period_s=0)
            await clock.sleep(30 * MINUTE_S)
            disk.away = False
            await clock.sleep(5 * MINUTE_S)
        found = minutes(disk.facts(), clock)
        assert found.keys() == {TimeClass.BUSY, TimeClass.IDLE}
        assert found[TimeClass.BUSY] == 30
        assert found[TimeClass.IDLE] in (35, 36)

    played(story)


def test_more_than_can_be_kept_is_said_and_is_not_known(tmp_path: Path) -> None:
    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk, counted = Disk(tmp_path), Counted()
        async with running(keeper(api, clock, disk, observer=counted, most_pending=8).run()):
            await become(api, clock, State.IN_SERVICE)
            disk.away = True
            for number in range(20):
                await start_pod(api, f"train-{number}")
                await clock.sleep(MINUTE_S)
                await api.delete(PODS, f"train-{number}", "training", grace_period_s=0)
            await start_pod(api, "last")
            disk.away = False
            await clock.sleep(10 * MINUTE_S)
        found = minutes(disk.facts(), clock)
        assert counted.rows["lost"] > 0
        assert found[TimeClass.UNKNOWN] > 0
        assert found.get(TimeClass.IDLE, 0) <= 1, "time that nobody knows must not look idle"
        assert found[TimeClass.BUSY] >= 9, "what runs when it is back is known again"

    played(story)


class Cut:
    """An API server that cannot be reached for a while."""

    def __init__(self, api: KubeApi) -> None:
        self._api, self.cut = api, False

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._api, name)
        if name == "watch":
            return lambda *a, **k: self._watch(real, *a, **k)
        if name != "list_page":
            return real

        async def asked(*arguments: Any, **more: Any) -> Any:
            if self.cut:
                raise UnreachableError("cut off")
            return await real(*arguments, **more)

        return asked

    async def _watch(self, real: Any, *arguments: Any, **more: Any) -> Any:
        async for event in real(*arguments, **more):
            if self.cut:
                raise UnreachableError("cut off")
            yield event


def test_a_pod_that_ends_while_the_api_server_is_away_is_not_busy_for_long(tmp_path: Path) -> None:
    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk = Disk(tmp_path)
        cut = Cut(api)
        async with running(keeper(cut, clock, disk).run()):  # type: ignore[arg-type]
            await become(api, clock, State.IN_SERVICE)
            await start_pod(api, "train-0")
            await clock.sleep(10 * MINUTE_S)
            cut.cut = True
            await clock.sleep(20 * MINUTE_S)
            await api.delete(PODS, "train-0", "training", grace_period_s=0)
            await clock.sleep(20 * MINUTE_S)
            cut.cut = False
            await clock.sleep(20 * MINUTE_S)
        found = minutes(disk.facts(), clock)
        assert found[TimeClass.BUSY] <= 11
        assert 38 <= found[TimeClass.UNKNOWN] <= 42 + BLIND_S / 60
        assert found[TimeClass.IDLE] >= 17

    played(story)


def test_a_refused_database_is_tried_again_and_ends_nothing(tmp_path: Path) -> None:
    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk = Disk(tmp_path)
        opened: list[int] = []

        def refuse() -> HistoryStore:
            opened.append(1)
            if len(opened) < 4:
                raise BadInputError("The history was written by a newer Muster.")
            if len(opened) == 4:
                raise RuntimeError("a bug")
            return disk.open()

        async with running(HistoryKeeper(api, clock, refuse, inline=True).run()):
            await become(api, clock, State.IN_SERVICE)
            await clock.sleep(30 * MINUTE_S)
        assert len(opened) >= 5
        assert disk.facts().steps

    played(story)


@pytest.mark.requirement("v2.4/OSB03", "v2.4/OMA05")
def test_what_is_old_is_deleted_once_a_day(tmp_path: Path) -> None:
    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk = Disk(tmp_path)
        async with running(keeper(api, clock, disk, retention_days=2).run()):
            await become(api, clock, State.IN_SERVICE)
            await start_pod(api, "old")
            await set_phase(api, "old", "Succeeded")
            await api.delete(PODS, "old", "training", grace_period_s=0)
            await clock.sleep(timedelta(days=4).total_seconds())
        facts = disk.facts()
        assert facts.work == ()
        assert [s.state for s in facts.steps] == ["InService"]
        assert facts.kept_from_us is not None
        age = microseconds(clock.now()) - facts.kept_from_us
        assert timedelta(days=2) <= timedelta(microseconds=age) <= timedelta(days=3, minutes=1)

    played(story)


def test_a_node_that_nobody_can_read_for_a_while_is_not_gone(tmp_path: Path) -> None:
    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk = Disk(tmp_path)
        kept = keeper(api, clock, disk)
        project = kept.healths._project
        async with running(kept.run()):
            await become(api, clock, State.IN_SERVICE)
            await clock.sleep(MINUTE_S)

            def refuse(raw: bytes) -> Any:
                raise ValueError("a field of a newer version")

            kept.healths._project = refuse
            await become(api, clock, State.QUARANTINED)
            assert kept.healths.rejected
            kept.healths._project = project
            await become(api, clock, State.IN_SERVICE)
        async with running(keeper(api, clock, disk).run()):
            await clock.sleep(MINUTE_S)
        (node,) = disk.facts().nodes
        assert node.to_us is None
        assert [s.state for s in disk.facts().steps] == ["InService", "Quarantined", "InService"]

    played(story)


def test_a_bug_in_taking_in_ends_nothing_and_the_time_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk = Disk(tmp_path)
        kept = keeper(api, clock, disk)
        async with running(kept.run()):
            await become(api, clock, State.IN_SERVICE)
            with monkeypatch.context() as broken:
                broken.setattr(kept._collector, "pod", lambda *_: 1 / 0)
                await start_pod(api, "train-0")
                await clock.sleep(5 * MINUTE_S)
            await clock.sleep(5 * MINUTE_S)
        found = minutes(disk.facts(), clock)
        assert found[TimeClass.BUSY] >= 3, "it is told again"
        assert found.get(TimeClass.IDLE, 0) <= 1

    played(story)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.requirement("v2.4/OCA05")
def test_two_leaders_for_a_moment_change_no_sum(tmp_path: Path, order: int) -> None:
    async def story(clock: VirtualClock, api: KubeApi) -> None:
        disk = Disk(tmp_path)
        first, second = keeper(api, clock, disk), keeper(api, clock, disk)
        async with running(first.run()):
            await become(api, clock, State.IN_SERVICE)
            await start_pod(api, "train-0")
            await clock.sleep(10 * MINUTE_S)
            task = asyncio.ensure_future(second.run())
            await clock.sleep(5 * MINUTE_S * (1 if order > 0 else 0.1))
        await clock.sleep(5 * MINUTE_S)
        await api.delete(PODS, "train-0", "training", grace_period_s=0)
        await clock.sleep(5 * MINUTE_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        found = minutes(disk.facts(), clock)
        assert TimeClass.UNKNOWN not in found
        assert found[TimeClass.IDLE] == 1 + 5

    played(story)
