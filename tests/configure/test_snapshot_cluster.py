"""The snapshot of a cluster and of its nodes, on a simulated API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from muster import yamlio
from muster.configure.snapshot.difference import changes
from muster.configure.snapshot.file import content_of, json_text, read_snapshot
from muster.configure.snapshot.model import ClusterSnapshot, Item, NodeEntry
from muster.configure.snapshot.read import list_all, take_cluster, take_node, take_nodes
from muster.errors import BadInputError, UnreachableError
from muster.kube.api import NODES, PODS, SECRETS, ForbiddenError, GoneError, ListPage, Object, PatchType, ResourceType
from muster.resources.fingerprint import Reading
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual
from tests.configure.snapshot_bed import (
    VERSION,
    add_agent,
    beat,
    fill,
    install_muster,
    node,
    pod,
    release,
    storage_class,
)

CLUSTER_POLICIES = ResourceType("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", False)


class Api(InProcessApi):
    """The simulated server with a version and a storage class, which it does not serve by itself.

    `refused` holds plurals that may not be listed and the code; `forgets` those of whom the place in a list is
    forgotten once.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.refused: dict[str, int] = {}
        self.forgets: set[str] = set()
        self.pages: list[tuple[str, int]] = []

    async def server_info(self) -> Object:
        return dict(VERSION)

    async def list_page(self, res: ResourceType, namespace: str = "", **options: Any) -> ListPage:
        if res.plural in self.refused:
            code = self.refused[res.plural]
            raise ForbiddenError(code, "Forbidden", f"you may not list {res.plural}")
        if res.plural in self.forgets and options.get("continue_token"):
            self.forgets.discard(res.plural)
            raise GoneError(410, "Expired", "the continue token is too old")
        self.pages.append((res.plural, int(options.get("limit", 0))))
        if res.plural == "storageclasses":
            return ListPage((msgspec.json.encode(storage_class("gp3")),), "1")
        return await super().list_page(res, namespace, **options)


def on_cluster(work: Callable[[Api, VirtualClock], Awaitable[None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        api = Api(Store(clock, seed=1))
        await fill(api)
        await work(api, clock)

    run_virtual(main)


def values(readings: tuple[Reading, ...]) -> dict[str, str]:
    return {r.name: r.value for r in readings}


def reasons(part: ClusterSnapshot | NodeEntry | Item) -> dict[str, str]:
    return {u.name: u.reason for u in part.unknown}


def counted(before: ClusterSnapshot, after: ClusterSnapshot) -> list[tuple[str, str]]:
    return [(c.subject, c.name) for c in changes(before, after) if c.counts()]


def test_everything_is_recorded() -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        spec = {"driver": {"enabled": True}, "dcgm": {"env": [{"name": "API_TOKEN", "value": "s3cret"}]}}
        policy = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": spec}
        await api.create(CLUSTER_POLICIES, policy)
        found = await take_cluster(api, clock.now())
        told = values(found.readings)
        assert (told["kubernetes.version"], told["kubernetes.platform"]) == ("v1.34.2", "linux/amd64")
        assert (told["cluster.service"], told["gpu-operator.version"]) == ("eks", "26.3.2")
        assert told["policy.clusterpolicies.nvidia.com"] == "installed"
        assert told["policy.nicclusterpolicies.mellanox.com"] == "not installed"
        assert [entry.node for entry in found.nodes] == ["gpu-1", "gpu-2"]
        about = values(found.nodes[0].reported)
        assert about["capacity.nvidia.com/gpu"] == "8"
        assert about["container-runtime.version"] == "containerd://2.1.4"
        assert found.nodes[0].readings == ()
        assert [item.name for item in found.releases] == ["gpu-operator"]
        assert [item.name for item in found.policies] == ["clusterpolicies.nvidia.com/p"]
        assert values(found.policies[0].readings)["spec.driver.enabled"] == "true"
        assert values(found.storage_classes[0].readings)["parameters.type"] == '"gp3"'
        assert "clusterpolicies.nvidia.com" in [item.name for item in found.crds]
        assert found.unknown == ()

    on_cluster(work)


def test_labels_are_kept_one_by_one() -> None:
    """Labels whose joined text would be the same stay two labels."""

    async def work(api: Api, clock: VirtualClock) -> None:
        found = await take_nodes(api, clock.now())
        assert {"a.b/c": "d", "a/b.c": "d"}.items() <= found.nodes[0].labels.items()
        before = await take_cluster(api, clock.now())
        await api.patch(NODES, "gpu-1", {"metadata": {"labels": {"a/b.c": "e"}}}, PatchType.MERGE)
        after = await take_cluster(api, clock.now())
        assert counted(before, after) == [("node gpu-1", "label:a/b.c")]

    on_cluster(work)


def test_all_tags_of_an_image_are_recorded() -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        found = await take_cluster(api, clock.now())
        (image,) = found.images
        assert image.name == "reg.example.com:5000/team/app"
        assert values(image.readings) == {
            f"tag.{tag}": f"sha256:{digest * 64}" for tag, digest in (("1.0", "a"), ("2.0", "b"))
        }

    on_cluster(work)


def test_the_newest_revision_counts_and_no_secret_is_written() -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        found = await take_cluster(api, clock.now())
        told = values(found.releases[0].readings)
        assert (told["chart_version"], told["revision"], told["status"]) == ("26.3.2", "2", "deployed")
        assert told["values.driver.version"] == '"580.95.05"'
        assert told["values.driver.licensing.token"] == "(hidden)"
        assert "t0p-secret" not in str(content_of(found))

    on_cluster(work)


def test_a_release_that_cannot_be_read_is_unknown_and_hides_no_other() -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        broken = release("odd", "default")
        broken["data"]["release"] = "bm90IGEgcmVsZWFzZQ=="
        await api.create(SECRETS, broken, "default")
        found = await take_cluster(api, clock.now())
        assert [item.name for item in found.releases] == ["gpu-operator"]
        assert "release default/odd" in reasons(found)

    on_cluster(work)


@pytest.mark.parametrize(
    ("plural", "part"),
    [
        ("secrets", "releases"),
        ("pods", "images"),
        ("customresourcedefinitions", "crds"),
        ("storageclasses", "storageClasses"),
        ("nodes", "nodes"),
    ],
)
def test_what_may_not_be_read_is_unknown_and_is_no_change(plural: str, part: str) -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        whole = await take_cluster(api, clock.now())
        api.refused[plural] = 403
        found = await take_cluster(api, clock.now())
        assert reasons(found)[part] == f"not allowed: you may not list {plural}"
        missing = [c for c in changes(whole, found) if c.counts()]
        assert missing
        assert all(c.not_compared for c in missing if c.name == "present")

    on_cluster(work)


def test_a_login_that_is_refused_is_an_error_and_no_empty_snapshot() -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        api.refused["secrets"] = 401
        with pytest.raises(ForbiddenError):
            await take_cluster(api, clock.now())

    on_cluster(work)


def test_an_untouched_cluster_shows_no_drift_while_jobs_come_and_go() -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        await install_muster(api)
        for name in ("gpu-1", "gpu-2"):
            await add_agent(api, name, clock.now())
        before = await take_cluster(api, clock.now(), agents=True)
        await api.create(PODS, pod("job", "user/job:7"), "default")
        await api.create(PODS, pod("bare", "user/tool:1"), "default")
        status = {
            "status": {"allocatable": {"nvidia.com/gpu": "7"}, "conditions": [{"type": "Ready", "status": "True"}]}
        }
        await api.patch(NODES, "gpu-1", status, PatchType.STRATEGIC, subresource="status")
        taint = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
        hold = {"key": "muster.dev/hold", "value": "fault", "effect": "NoSchedule"}
        await api.patch(NODES, "gpu-2", {"spec": {"taints": [taint, hold], "unschedulable": True}}, PatchType.MERGE)
        labels = {"nvidia.com/gfd.timestamp": "2", "muster.dev/state": "Certifying"}
        await api.patch(NODES, "gpu-2", {"metadata": {"labels": labels}}, PatchType.MERGE)
        await clock.sleep(30)
        for name in ("gpu-1", "gpu-2"):
            await add_agent(api, name, clock.now())
        after = await take_cluster(api, clock.now(), agents=True)
        assert counted(before, after) == []
        assert changes(before, after)

    on_cluster(work)


def test_what_was_changed_is_found_and_classed() -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        await install_muster(api)
        for name in ("gpu-1", "gpu-2"):
            await add_agent(api, name, clock.now())
        before = await take_cluster(api, clock.now(), agents=True)
        values = {"driver": {"version": "590.1.2", "licensing": {"token": "t0p-secret"}}, "list": [1]}
        secret = release("gpu-operator", "default", version="26.4.0", revision=3, values=values)
        await api.create(SECRETS, secret, "default")
        await api.create(SECRETS, release("foreign", "default"), "default")
        await api.create(NODES, node("gpu-3"))
        await api.delete(NODES, "gpu-2")
        await add_agent(api, "gpu-1", clock.now(), driver="590.1.2")
        taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
        await api.patch(NODES, "gpu-1", {"spec": {"taints": [taint]}}, PatchType.MERGE)
        after = await take_cluster(api, clock.now(), agents=True)
        found = {(c.subject, c.name): c.reading_class.value for c in changes(before, after) if c.counts()}
        assert found == {
            ("cluster", "gpu-operator.version"): "stack",
            ("node gpu-1", "driver.version"): "stack",
            ("node gpu-1", "taint:dedicated:NoSchedule"): "config",
            ("node gpu-2", "present"): "identity",
            ("node gpu-3", "present"): "identity",
            ("release default/foreign", "present"): "stack",
            ("release default/gpu-operator", "chart_version"): "stack",
            ("release default/gpu-operator", "values.driver.version"): "config",
        }

    on_cluster(work)


def test_nodes_without_an_agent_with_a_silent_one_and_of_an_earlier_node() -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        await install_muster(api)
        for name in ("gpu-3", "gpu-4", "gpu-5"):
            await api.create(NODES, node(name))
        await add_agent(api, "gpu-1", clock.now())
        await add_agent(api, "gpu-3", clock.now(), uid="another")
        await add_agent(api, "gpu-4", clock.now(), gpus=0)
        await add_agent(api, "gpu-5", clock.now())
        await clock.sleep(179)
        for name in ("gpu-3", "gpu-4", "gpu-5"):
            await beat(api, name, clock.now())
        await clock.sleep(2)
        found = {entry.node: entry for entry in (await take_nodes(api, clock.now())).nodes}
        assert "silent since" in reasons(found["gpu-1"])["readings"]
        assert "no agent has published" in reasons(found["gpu-2"])["readings"]
        assert "an earlier node" in reasons(found["gpu-3"])["readings"]
        assert reasons(found["gpu-4"])["gpu"] == "the Node object promises 8 GPU(s), its agent finds none"
        assert reasons(found["gpu-5"]) == {}
        assert all(not found[name].readings for name in ("gpu-1", "gpu-2", "gpu-3"))
        assert values(found["gpu-5"].readings)["driver.version"] == "580.95.05"

    on_cluster(work)


def test_a_cluster_without_muster_says_so_for_each_node() -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        found = await take_nodes(api, clock.now())
        assert [reasons(e)["readings"] for e in found.nodes] == ["Muster is not installed in this cluster"] * 2

    on_cluster(work)


def test_one_node_of_the_cluster() -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        await install_muster(api)
        await add_agent(api, "gpu-1", clock.now())
        entry = await take_node(api, "gpu-1", clock.now())
        assert values(entry.readings)["gpu.count"] == "8"
        with pytest.raises(BadInputError, match=r"^The cluster has no node 'gpu-11'; did you mean gpu-1\?$"):
            await take_node(api, "gpu-11", clock.now())
        with pytest.raises(UnreachableError, match="no agent has published"):
            await take_node(api, "gpu-2", clock.now())
        with pytest.raises(UnreachableError, match="silent since"):
            await take_node(api, "gpu-1", clock.now() + timedelta(hours=1))

    on_cluster(work)


def test_lists_are_paged_and_start_again_when_the_place_is_forgotten() -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        for number in range(30):
            await api.create(SECRETS, release(f"r{number:02d}", "default"), "default")
        api.forgets = {"secrets"}
        found = await take_cluster(api, clock.now())
        assert len(found.releases) == 31
        assert [limit for plural, limit in api.pages if plural == "secrets"] == [20, 20, 20]
        assert all(limit for _, limit in api.pages)
        api.forgets = {"secrets", "pods"}
        assert len(await list_all(api, PODS, lambda raw: raw, page=1)) == 2

    on_cluster(work)


def test_a_snapshot_reads_back_as_it_was(tmp_path: Any) -> None:
    async def work(api: Api, clock: VirtualClock) -> None:
        await install_muster(api)
        await add_agent(api, "gpu-1", clock.now())
        found = await take_cluster(api, clock.now(), agents=True)
        (tmp_path / "s.yaml").write_text(yamlio.dumps(content_of(found)))
        (tmp_path / "s.json").write_text(json_text(found))
        assert msgspec.json.decode(json_text(found)) == content_of(found)
        assert read_snapshot(tmp_path / "s.yaml") == read_snapshot(tmp_path / "s.json") == found

    on_cluster(work)
