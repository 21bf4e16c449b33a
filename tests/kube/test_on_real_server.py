"""Muster's own client on a real API server: every call, every refusal, and what a bad network or a restart does."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.clock import ScaledClock, SystemClock
from muster.errors import UnreachableError
from muster.kube.api import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    AlreadyExistsError,
    ConflictError,
    ConnectionLostError,
    EventType,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    Object,
    PatchType,
    ResourceType,
    ServerError,
    TooManyRequestsError,
)
from muster.kube.cache import WatchCache
from muster.kube.config import load_target
from muster.kube.election import Election
from muster.kube.events import EventRecorder, Regarding, node_reference
from muster.kube.http import HttpApi
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.credentials import ADMIN, NOBODY
from tests.controlplane.link import Link

SERVICE_ACCOUNTS = ResourceType("", "v1", "serviceaccounts", "ServiceAccount", True)
LIMIT_S = 60.0
_numbers = itertools.count(1)


def unique(word: str) -> str:
    return f"{word}-{os.getpid()}-{next(_numbers)}"


@asynccontextmanager
async def client(
    plane: ControlPlane, *, link: Link | None = None, user: str = ADMIN, token: str = "", **options: Any
) -> AsyncIterator[HttpApi]:
    """A client of the control plane, through a link if there is one."""
    path = plane.folder / f"{unique('kubeconfig')}.yaml"
    text = plane.kubeconfig(user, token)
    path.write_text(text if link is None else link.through(text))
    async with HttpApi.from_kubeconfig(path, **options) as api:
        yield api


@pytest.fixture
def link(control_plane: ControlPlane) -> Any:
    with Link(int(control_plane.url.rpartition(":")[2])) as found:
        yield found


async def namespace(api: HttpApi) -> str:
    name = unique("kube")
    await api.create(NAMESPACES, {"metadata": {"name": name}})
    return name


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def node(name: str) -> Object:
    labels = {"muster.dev/test": "true"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


async def until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not so after {limit_s} s"
        await asyncio.sleep(0.02)


# Every call


def test_objects_are_written_and_read_in_every_way(control_plane: ControlPlane) -> None:
    async def main() -> None:
        async with client(control_plane) as api:
            assert (await api.server_version()).startswith("v")
            home = await namespace(api)
            created = await api.create(CONFIG_MAPS, config_map("a", x="1"), home, manager="first")
            assert created["metadata"]["managedFields"][0]["manager"] == "first"
            changed = await api.patch(CONFIG_MAPS, "a", {"data": {"y": "2"}}, PatchType.MERGE, home, manager="second")
            assert changed["data"] == {"x": "1", "y": "2"}
            strategic = await api.patch(CONFIG_MAPS, "a", {"data": {"x": None}}, PatchType.STRATEGIC, home)
            assert strategic["data"] == {"y": "2"}
            steps = [{"op": "test", "path": "/data/y", "value": "2"}, {"op": "remove", "path": "/data/y"}]
            assert "data" not in await api.patch(CONFIG_MAPS, "a", steps, PatchType.JSON, home)
            applied = await api.apply(
                CONFIG_MAPS, {**config_map("b", z="3"), "metadata": {"name": "b", "namespace": home}}, manager="third"
            )
            assert applied["metadata"]["managedFields"][0]["operation"] == "Apply"
            replaced = await api.replace(CONFIG_MAPS, {**applied, "data": {"z": "4"}}, manager="fourth")
            assert (await api.get(CONFIG_MAPS, "b", home))["data"] == replaced["data"] == {"z": "4"}
            await api.delete(CONFIG_MAPS, "a", home, uid=created["metadata"]["uid"])
            names = [json.loads(raw)["metadata"]["name"] for raw in (await api.list_page(CONFIG_MAPS, home)).items]
            assert [name for name in names if name != "kube-root-ca.crt"] == ["b"]

    asyncio.run(main())


def test_the_status_of_a_node_is_written_by_itself(control_plane: ControlPlane) -> None:
    async def main() -> None:
        async with client(control_plane) as api:
            name = unique("node")
            await api.create(NODES, node(name))
            condition = {
                "type": "MusterHealthy",
                "status": "False",
                "reason": "Held",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            patch = {"status": {"conditions": [condition]}, "spec": {"unschedulable": True}}
            written = await api.patch(NODES, name, patch, PatchType.STRATEGIC, subresource="status")
            assert [c["type"] for c in written["status"]["conditions"]] == ["MusterHealthy"]
            assert "unschedulable" not in written["spec"]
            applied = await api.apply(
                NODES,
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name},
                    "status": {"conditions": [{**condition, "status": "True"}]},
                },
                manager="muster-test",
                subresource="status",
            )
            assert [c["status"] for c in applied["status"]["conditions"]] == ["True"]
            await api.delete(NODES, name)

    asyncio.run(main())


def test_lists_are_paged_from_one_snapshot(control_plane: ControlPlane) -> None:
    async def main() -> None:
        async with client(control_plane) as api:
            home = await namespace(api)
            wanted = [f"m{number:02}" for number in range(7)]
            for name in wanted:
                await api.create(
                    CONFIG_MAPS, {**config_map(name), "metadata": {"name": name, "labels": {"mine": ""}}}, home
                )
            found: list[str] = []
            page = await api.list_page(CONFIG_MAPS, home, label_selector="mine", limit=3)
            version = page.resource_version
            await api.create(
                CONFIG_MAPS, {**config_map("m99"), "metadata": {"name": "m99", "labels": {"mine": ""}}}, home
            )
            while True:
                found += [json.loads(raw)["metadata"]["name"] for raw in page.items]
                assert page.resource_version == version
                if not page.continue_token:
                    break
                page = await api.list_page(
                    CONFIG_MAPS, home, label_selector="mine", limit=3, continue_token=page.continue_token
                )
            assert found == wanted

    asyncio.run(main())


def test_a_watch_begins_after_its_version_and_ends_at_its_limit(control_plane: ControlPlane) -> None:
    async def main() -> None:
        async with client(control_plane) as api:
            home = await namespace(api)
            await api.create(CONFIG_MAPS, config_map("before"), home)
            version = (await api.list_page(CONFIG_MAPS, home)).resource_version
            await api.create(CONFIG_MAPS, config_map("a"), home)
            await api.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, PatchType.MERGE, home)
            await api.delete(CONFIG_MAPS, "a", home)
            seen = [
                (event.type, json.loads(event.raw)["metadata"]["name"])
                async for event in api.watch(
                    CONFIG_MAPS, version, home, field_selector="metadata.name=a", timeout_s=2
                )
            ]
            assert seen == [(EventType.ADDED, "a"), (EventType.MODIFIED, "a"), (EventType.DELETED, "a")]

    asyncio.run(main())


def test_a_watch_from_nowhere_tells_what_is_and_what_comes(control_plane: ControlPlane) -> None:
    """With bookmarks and without a version the server would compress the events, each by itself."""

    async def main() -> None:
        async with client(control_plane) as api:
            home = await namespace(api)
            await api.create(CONFIG_MAPS, config_map("a"), home)
            seen: list[tuple[EventType, str]] = []
            events = api.watch(CONFIG_MAPS, "", home, field_selector="metadata.name!=kube-root-ca.crt", timeout_s=20)
            async with aclosing(events):  # type: ignore[type-var]  # a watch is an async generator
                async for event in events:
                    seen.append((event.type, json.loads(event.raw)["metadata"].get("name", "")))
                    if [kind for kind, _ in seen] == [EventType.ADDED, EventType.BOOKMARK]:
                        await api.create(CONFIG_MAPS, config_map("b"), home)
                        await api.delete(CONFIG_MAPS, "b", home)
                    if event.type is EventType.DELETED:
                        break
            assert seen[:2] == [(EventType.ADDED, "a"), (EventType.BOOKMARK, "")]
            later = [entry for entry in seen[2:] if entry[0] is not EventType.BOOKMARK]
            assert later == [(EventType.ADDED, "b"), (EventType.DELETED, "b")]

    asyncio.run(main())


# Every refusal


def test_every_refusal_has_its_type(control_plane: ControlPlane) -> None:
    async def main() -> None:
        async with client(control_plane) as api:
            home = await namespace(api)
            first = await api.create(CONFIG_MAPS, config_map("a"), home)
            with pytest.raises(AlreadyExistsError):
                await api.create(CONFIG_MAPS, config_map("a"), home)
            with pytest.raises(NotFoundError):
                await api.get(CONFIG_MAPS, "none", home)
            with pytest.raises(NotFoundError):
                await api.list_page(ResourceType("muster.dev", "v9", "nothings", "Nothing", False))
            await api.replace(CONFIG_MAPS, {**first, "data": {"x": "1"}})
            with pytest.raises(ConflictError):
                await api.replace(CONFIG_MAPS, {**first, "data": {"x": "2"}})
            with pytest.raises(ConflictError):
                await api.delete(CONFIG_MAPS, "a", home, uid="another")
            mine = {**config_map("a", x="3"), "metadata": {"name": "a", "namespace": home}}
            with pytest.raises(ConflictError) as conflict:
                await api.apply(CONFIG_MAPS, mine, manager="other", force=False)
            assert ".data.x" in str(conflict.value)
            with pytest.raises(InvalidError) as invalid:
                await api.create(CONFIG_MAPS, config_map("Not A Name"), home)
            assert invalid.value.code == 422
            with pytest.raises(InvalidError) as bad:
                await api.list_page(CONFIG_MAPS, home, label_selector="a=b=c")
            assert bad.value.code == 400
            with pytest.raises(ServerError):
                await anext(aiter(api.watch(CONFIG_MAPS, "no-version", home)))
        async with client(control_plane, user=NOBODY) as nobody:
            with pytest.raises(ForbiddenError) as forbidden:
                await nobody.list_page(NODES)
            assert forbidden.value.code == 403
        async with client(control_plane, token="made-up") as stranger:
            with pytest.raises(ForbiddenError) as unauthorized:
                await stranger.list_page(NODES)
            assert unauthorized.value.code == 401

    asyncio.run(main())


def test_a_budget_holds_an_eviction_back(control_plane: ControlPlane) -> None:
    async def main() -> None:
        async with client(control_plane) as api:
            home = await namespace(api)
            with suppress(AlreadyExistsError):
                await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, home)
            pod = {
                "metadata": {"name": "p", "labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }
            uid = (await api.create(PODS, pod, home))["metadata"]["uid"]
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await api.patch(PODS, "p", {"status": status}, PatchType.STRATEGIC, home, subresource="status")
            spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"a": "b"}}}
            await api.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": spec}, home)
            with pytest.raises(TooManyRequestsError):
                await api.evict("p", home, uid=uid)
            await api.delete(POD_DISRUPTION_BUDGETS, "b", home)
            with pytest.raises(ConflictError):
                await api.evict("p", home, uid="another")
            await api.evict("p", home, uid=uid, grace_period_s=0)
            with pytest.raises(NotFoundError):
                await api.get(PODS, "p", home)

    asyncio.run(main())


# Who asks


def test_a_pod_logs_in_with_its_service_account_and_its_token_may_change(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = control_plane.url.removeprefix("https://").rpartition(":")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)

    async def main() -> None:
        async with client(control_plane) as admin:
            home = await namespace(admin)
            await admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": "agent"}}, home)
            token = ResourceType("", "v1", "serviceaccounts/agent/token", "TokenRequest", True)
            path = f"api/v1/namespaces/{home}/{token.plural}"
            answer = json.loads(await admin._request("POST", path, {}, {"spec": {"expirationSeconds": 600}}))
        (tmp_path / "token").write_text("expired")
        (tmp_path / "namespace").write_text(home)
        (tmp_path / "ca.crt").write_text(control_plane.credentials.ca_pem)
        async with HttpApi(load_target(service_account=tmp_path)) as pod:
            with pytest.raises(ForbiddenError) as refused:
                await pod.list_page(NODES)
            assert refused.value.code == 401
            (tmp_path / "token").write_text(answer["status"]["token"])
            with pytest.raises(ForbiddenError) as forbidden:
                await pod.list_page(NODES)
            assert forbidden.value.code == 403
            assert f"system:serviceaccount:{home}:agent" in str(forbidden.value)

    asyncio.run(main())


def test_a_server_that_is_gone_and_one_of_another_authority(control_plane: ControlPlane, tmp_path: Path) -> None:
    from muster.sim.certificates import issue

    with Link(1) as nowhere:
        gone = nowhere.port
    text = yamlio.loads(control_plane.kubeconfig(), "kubeconfig")
    cluster = text["clusters"][0]["cluster"]

    async def main() -> None:
        import base64

        file = tmp_path / "kubeconfig"
        file.write_text(
            yamlio.dumps(
                {
                    **text,
                    "clusters": [
                        {
                            "name": text["clusters"][0]["name"],
                            "cluster": {**cluster, "server": f"https://127.0.0.1:{gone}"},
                        }
                    ],
                }
            )
        )
        async with HttpApi.from_kubeconfig(file) as api:
            with pytest.raises(ConnectionLostError):
                await api.server_version()
        other = base64.b64encode(issue("127.0.0.1").ca_pem.encode()).decode()
        file.write_text(
            yamlio.dumps(
                {
                    **text,
                    "clusters": [
                        {
                            "name": text["clusters"][0]["name"],
                            "cluster": {**cluster, "certificate-authority-data": other},
                        }
                    ],
                }
            )
        )
        async with HttpApi.from_kubeconfig(file) as api:
            with pytest.raises(UnreachableError) as caught:
                await api.server_version()
            assert "certificate" in str(caught.value).lower()

    asyncio.run(main())


# A bad network, a restart, a forgotten history


class Follower:
    """A cache of one namespace's config maps with what it told."""

    def __init__(self, api: HttpApi, home: str) -> None:
        self.told: list[str] = []
        self.cache: WatchCache[dict[str, str]] = WatchCache(
            api,
            CONFIG_MAPS,
            lambda raw: dict(json.loads(raw).get("data") or {}),
            clock=SystemClock(),
            namespace=home,
            label_selector="!ignored",
            field_selector="metadata.name!=kube-root-ca.crt",
            on_change=self.told.append,
        )

    def shows(self, **wanted: dict[str, str]) -> bool:
        key = next(iter(self.cache.items()), "").partition("/")[0]
        return dict(self.cache.items()) == {f"{key}/{name}": data for name, data in wanted.items()}


@asynccontextmanager
async def following(api: HttpApi, home: str) -> AsyncIterator[Follower]:
    follower = Follower(api, home)
    running = asyncio.ensure_future(follower.cache.run())
    try:
        await asyncio.wait_for(follower.cache.wait_synced(), LIMIT_S)
        yield follower
    finally:
        running.cancel()
        await asyncio.wait({running})


def test_the_cache_follows_through_a_cut_and_a_frozen_link(control_plane: ControlPlane, link: Link) -> None:
    async def main() -> None:
        limits: dict[str, Any] = {"request_timeout_s": 2.0, "watch_silence_s": 2.0}
        async with client(control_plane) as direct, client(control_plane, link=link, **limits) as api:
            home = await namespace(direct)
            await direct.create(CONFIG_MAPS, config_map("a", x="1"), home)
            async with following(api, home) as follower:
                assert follower.shows(a={"x": "1"})
                link.cut()
                await direct.create(CONFIG_MAPS, config_map("b"), home)
                await direct.delete(CONFIG_MAPS, "a", home)
                link.heal()
                await until(lambda: follower.shows(b={}))
                link.freeze()
                await direct.patch(CONFIG_MAPS, "b", {"data": {"y": "2"}}, PatchType.MERGE, home)
                frozen_at, connections = time.monotonic(), link.accepted
                await until(lambda: time.monotonic() > frozen_at + 5)
                assert follower.shows(b={})
                assert follower.cache.synced
                link.cut()
                link.heal()
                await until(lambda: follower.shows(b={"y": "2"}))
                assert link.accepted > connections

    asyncio.run(main())


def test_the_cache_survives_a_restart_and_a_compaction(control_plane: ControlPlane) -> None:
    """A restarted server no longer knows the versions before its start: it answers 410, and the cache lists again."""

    async def main() -> None:
        async with client(control_plane) as api:
            home = await namespace(api)
            for name in ("a", "b", "c"):
                await api.create(CONFIG_MAPS, config_map(name), home)
            old = (await api.list_page(CONFIG_MAPS, home)).resource_version
            page = await api.list_page(CONFIG_MAPS, home, limit=1)
            async with following(api, home) as follower:
                assert follower.shows(a={}, b={}, c={})
                await api.delete(CONFIG_MAPS, "a", home)
                await until(lambda: follower.shows(b={}, c={}))
                await asyncio.to_thread(control_plane.compact)
                await asyncio.to_thread(control_plane.stop_api_server, kill=True)
                with pytest.raises(ConnectionLostError):
                    await api.get(CONFIG_MAPS, "b", home)
                # In this thread: the program ends with the thread that starts it.
                control_plane.start_api_server()
                await api.delete(CONFIG_MAPS, "b", home)
                await api.patch(CONFIG_MAPS, "c", {"data": {"z": "3"}}, PatchType.MERGE, home)
                await until(lambda: follower.shows(c={"z": "3"}))
                assert [name.partition("/")[2] for name in follower.told[-2:]] in (["b", "c"], ["c", "b"])
            with pytest.raises(GoneError):
                await anext(aiter(api.watch(CONFIG_MAPS, old, home)))
            with pytest.raises(GoneError):
                await api.list_page(CONFIG_MAPS, home, limit=1, continue_token=page.continue_token)
            with pytest.raises(GoneError):
                await api.list_page(CONFIG_MAPS, home, limit=1, resource_version=old)

    asyncio.run(main())


# Election


class Candidate:
    """Records when it led, on the monotonic clock."""

    def __init__(self, name: str, home: str) -> None:
        self.name = name
        self.home = home
        self.terms: list[tuple[int, float, float]] = []
        self.token: int | None = None

    async def lead(self, token: int) -> None:
        began = time.monotonic()
        self.token = token
        try:
            await asyncio.Event().wait()
        finally:
            self.token = None
            self.terms.append((token, began, time.monotonic()))

    async def run(self, api: HttpApi) -> None:
        election = Election(
            api,
            "lease",
            self.name,
            clock=SystemClock(),
            duration_s=3,
            renew_s=2,
            retry_s=0.25,
            namespace=self.home,
        )
        await election.run(self.lead)


def test_two_candidates_never_lead_at_once(control_plane: ControlPlane, link: Link) -> None:
    """Through a leader cut off, one that ends, a lease taken by somebody else, and a restart of the API server."""

    async def main() -> None:
        async with (
            client(control_plane) as direct,
            client(control_plane, link=link, request_timeout_s=2.0) as linked,
            client(control_plane) as other,
        ):
            home = await namespace(direct)
            first, second = Candidate("first", home), Candidate("second", home)
            running = [asyncio.ensure_future(first.run(linked))]
            await until(lambda: first.token == 1)
            running.append(asyncio.ensure_future(second.run(other)))
            # The leader hears nothing any more, and stops before the other can begin.
            link.freeze()
            await until(lambda: second.token == 2)
            assert first.token is None
            link.cut()
            link.heal()
            # The new leader ends in good order: the lease is free at once.
            running[1].cancel()
            await asyncio.wait({running[1]})
            await until(lambda: first.token == 3)
            # Somebody takes the lease away.
            lease = await direct.get(LEASES, "lease", home)
            spec = {**lease["spec"], "holderIdentity": "thief", "leaseTransitions": 7}
            with suppress(ConflictError):
                await direct.patch(LEASES, "lease", {"spec": spec}, PatchType.MERGE, home)
            await until(lambda: first.token is None)
            await until(lambda: first.token == 8)
            # The API server goes; nobody leads without it.
            await asyncio.to_thread(control_plane.stop_api_server, kill=True)
            await until(lambda: first.token is None)
            control_plane.start_api_server()
            running[1] = asyncio.ensure_future(second.run(other))
            await until(lambda: first.token == 9 or second.token == 9)
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            terms = sorted(first.terms + second.terms, key=lambda term: term[1])
            assert [token for token, _, _ in terms] == [1, 2, 3, 8, 9]
            for (_, _, ended), (_, began, _) in itertools.pairwise(terms):
                assert ended <= began
            lease = await direct.get(LEASES, "lease", home)
            assert lease["spec"]["holderIdentity"] == ""

    asyncio.run(main())


# Events


def test_events_are_accepted_and_counted(control_plane: ControlPlane) -> None:
    async def main() -> None:
        clock = ScaledClock(datetime.now(UTC), time.time(), 30.0)
        async with client(control_plane) as api:
            home, name = await namespace(api), unique("node")
            recorder = EventRecorder(api, clock=clock, controller="muster.dev/controller", instance="pod-1")
            running = asyncio.ensure_future(recorder.run())
            recorder.record(node_reference(name), "Held", "Hold", "xid 79")
            recorder.record(Regarding("v1", "Pod", "p", home), "Evicted", "Drain", "x" * 2000)
            for _ in range(4):
                recorder.record(node_reference(name), "Held", "Hold", "xid 79")

            async def found(where: str, regarding: str) -> list[Object]:
                page = await api.list_page(EVENTS, where, field_selector=f"regarding.name={regarding}")
                return [json.loads(raw) for raw in page.items]

            async def counted(wanted: int) -> None:
                deadline = time.monotonic() + LIMIT_S
                while [(event.get("series") or {}).get("count") for event in await found("default", name)] != [
                    wanted
                ]:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.05)

            await counted(5)
            recorder.record(node_reference(name), "Held", "Hold", "xid 79")
            await counted(6)
            (told,) = await found(home, "p")
            assert told["reason"] == "Evicted"
            assert told["note"] == "x" * 1024
            assert recorder.dropped == 0
            running.cancel()

    asyncio.run(main())
