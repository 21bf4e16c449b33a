"""The recorder keeps what the API forgets: deleted pods, history that was cut off."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from muster.kube.api import CRDS, NAMESPACES, NODE_HEALTHS, NODES, PODS, REPAIRS, KubeApi, PatchType
from muster.operate.ledger import NodeRecord, TimeClass, build
from muster.operate.recorder import Recorder
from muster.resources import crd
from muster.resources.base import ObjectMeta, to_object
from muster.resources.node_health import HISTORY_LIMIT, Cause, CauseKind, Lifecycle, State, Transition
from muster.resources.repair import Repair, RepairSpec, Rung
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual

MINUTE_US = 60_000_000


async def cluster(clock: VirtualClock) -> KubeApi:
    api = InProcessApi(Store(clock))
    for manifest in crd.manifests():
        await api.create(CRDS, dict(manifest))
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "training"}})
    await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    return api


async def set_history(api: KubeApi, history: tuple[Transition, ...]) -> None:
    life = Lifecycle(state=history[-1].state, since=history[-1].at, history=history)
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": "n1"}}
    await api.apply(NODE_HEALTHS, dict(body, spec={}), manager="test")
    body["status"] = {"lifecycle": to_object(life)}
    await api.apply(NODE_HEALTHS, body, manager="test", subresource="status")


def step(clock: VirtualClock, state: State) -> Transition:
    return Transition(state=state, at=clock.now(), cause=Cause(kind=CauseKind.CERTIFICATION))


async def start_pod(api: KubeApi, name: str) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "training"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
    }
    await api.create(PODS, pod, "training")
    await set_phase(api, name, "Running")


async def set_phase(api: KubeApi, name: str, phase: str) -> None:
    await api.patch(PODS, name, {"status": {"phase": phase}}, PatchType.MERGE, "training", subresource="status")


def recorded(story: Any) -> tuple[NodeRecord, VirtualClock]:
    async def main(clock: VirtualClock) -> tuple[NodeRecord, VirtualClock]:
        api = await cluster(clock)
        recorder = Recorder(api, clock)
        task = asyncio.create_task(recorder.run())
        await recorder.wait_synced()
        await story(api, clock)
        await clock.sleep(1)
        task.cancel()
        (record,) = recorder.records()
        return record, clock

    return run_virtual(main)


def test_work_counts_also_after_its_pod_is_gone() -> None:
    async def story(api: KubeApi, clock: VirtualClock) -> None:
        await set_history(api, (step(clock, State.IN_SERVICE),))
        await clock.sleep(600)
        await start_pod(api, "a")
        await clock.sleep(1200)
        await api.delete(PODS, "a", "training", grace_period_s=0)
        await clock.sleep(300)
        await start_pod(api, "b")
        await clock.sleep(600)
        await set_phase(api, "b", "Succeeded")
        await clock.sleep(299)

    record, clock = recorded(story)
    sums = build([record], clock.start, clock.now()).by_class()
    assert sums[TimeClass.BUSY] == 30 * MINUTE_US
    assert sums[TimeClass.IDLE] == 20 * MINUTE_US


def test_history_that_was_cut_off_is_kept() -> None:
    async def story(api: KubeApi, clock: VirtualClock) -> None:
        history: tuple[Transition, ...] = ()
        for number in range(HISTORY_LIMIT + 20):
            state = State.IN_SERVICE if number % 2 else State.UNCERTIFIED
            history = (*history, step(clock, state))[-HISTORY_LIMIT:]
            await set_history(api, history)
            await clock.sleep(60)

    record, _ = recorded(story)
    assert len(record.transitions) == HISTORY_LIMIT + 20
    assert len({t.at for t in record.transitions}) == HISTORY_LIMIT + 20


def test_two_steps_in_one_instant_are_both_kept() -> None:
    async def story(api: KubeApi, clock: VirtualClock) -> None:
        first = (step(clock, State.QUARANTINED),)
        await set_history(api, first)
        await clock.sleep(0)
        await set_history(api, (*first, step(clock, State.DRAINING)))

    record, _ = recorded(story)
    assert [t.state for t in record.transitions] == [State.QUARANTINED, State.DRAINING]


def test_repairs_are_kept_with_the_time_they_were_ordered() -> None:
    async def story(api: KubeApi, clock: VirtualClock) -> None:
        await set_history(api, (step(clock, State.REPAIRING),))
        await clock.sleep(120)
        spec = RepairSpec(node_name="n1", node_uid="u", episode="e", rung=Rung.REBOOT, provider="p")
        repair = to_object(Repair(metadata=ObjectMeta(name="r1"), spec=spec))
        await api.create(REPAIRS, {"apiVersion": REPAIRS.api_version, "kind": REPAIRS.kind, **repair})
        await api.delete(REPAIRS, "r1")

    record, clock = recorded(story)
    assert [(r.rung, r.at - clock.start) for r in record.rungs] == [("reboot", timedelta(seconds=120))]


def test_a_node_that_went_away_ends() -> None:
    async def story(api: KubeApi, clock: VirtualClock) -> None:
        await set_history(api, (step(clock, State.IN_SERVICE),))
        await clock.sleep(600)
        await api.delete(NODE_HEALTHS, "n1")
        await clock.sleep(600)

    record, clock = recorded(story)
    assert record.present.end == clock.start + timedelta(seconds=600)
