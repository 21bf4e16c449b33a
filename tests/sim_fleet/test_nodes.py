"""What kubelets write: a Lease that went with an earlier Node of the name is made anew."""

from __future__ import annotations

from muster.kube.api import LEASES
from muster.sim.inprocess import InProcessApi
from muster.sim.nodes import NODE_LEASE_NAMESPACE, NodeWriter
from muster.sim.store import Store
from muster.sim.virtual import DEFAULT_START, VirtualClock, run_virtual
from muster.sim.world import World

NODE = "gpu-001"


def test_a_lease_that_is_gone_is_made_anew_and_belongs_to_the_node() -> None:
    async def main(clock: VirtualClock) -> None:
        api = InProcessApi(Store(clock, seed=1))
        world = World(seed=3, nodes=1, domains=1, started=DEFAULT_START, driver="580.65.06")
        writer = NodeWriter(api, clock, world)
        await writer.register()
        await api.delete(LEASES, NODE, NODE_LEASE_NAMESPACE)
        await clock.sleep(600)
        await writer.renew(NODE)
        lease = await api.get(LEASES, NODE, NODE_LEASE_NAMESPACE)
        assert lease["spec"]["renewTime"] == clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assert [o["uid"] for o in lease["metadata"]["ownerReferences"]] == [writer.uids[NODE]]

    run_virtual(main)
