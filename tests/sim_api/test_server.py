"""The API server over HTTP."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import pytest

from muster import yamlio
from muster.clock import SystemClock
from muster.errors import BadInputError
from muster.kube.api import NODES, PODS
from muster.sim.api_access import ADMIN_GROUP, Denial
from muster.sim.api_faults import Fault, Request, too_many_requests
from muster.sim.api_paths import Target, accepted, parse_path
from muster.sim.api_protobuf import MEDIA_TYPE, decode
from muster.sim.api_status import StatusError
from muster.sim.api_watch import Watch, WatchOptions
from muster.sim.server import ApiServer
from muster.sim.store import Store

from .samples import MERGE, WIDGETS, add_budget, add_node, add_pod, make_ready, node, widget, widget_crd

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Client:
    def __init__(self, server: ApiServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def raw(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, aiohttp.ClientResponse]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("Authorization", f"Bearer {self.server.token()}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            named.setdefault("Content-Type", "application/json")
        async with self.session.request(method, self.server.url + path, data=body, headers=named) as response:
            text = await response.read()
            parsed = json.loads(text) if response.content_type == "application/json" else text
            return response.status, parsed, response

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        status, parsed, _ = await self.raw(method, path, body, **headers)
        return status, parsed


Scene = Callable[[Store, Client], Coroutine[Any, Any, None]]


def play(scene: Scene) -> None:
    async def main() -> None:
        store = Store(SystemClock(), seed=1)
        store.create(store.registry_kind("apiextensions.k8s.io", "v1", "customresourcedefinitions"), widget_crd())
        async with ApiServer(store, tls=False) as server, aiohttp.ClientSession() as session:
            await scene(store, Client(server, session))

    asyncio.run(main())


def test_crud() -> None:
    async def scene(store: Store, client: Client) -> None:
        assert (await client("POST", "/api/v1/nodes", node(z="0")))[0] == 201
        assert (await client("POST", "/api/v1/nodes", node(z="0")))[0] == 409
        status, obj = await client("GET", "/api/v1/nodes/n1")
        assert (status, obj["metadata"]["name"]) == (200, "n1")
        patch = {"metadata": {"labels": {"a": "1"}}}
        path = "/api/v1/nodes/n1?fieldManager=me"
        status, obj = await client("PATCH", path, patch, Content_Type=MERGE)
        assert obj["metadata"]["labels"] == {"a": "1", "z": "0"}
        assert "me" in [entry["manager"] for entry in obj["metadata"]["managedFields"]]
        obj["metadata"]["labels"] = {"b": "2"}
        status, obj = await client("PUT", "/api/v1/nodes/n1", obj)
        assert (status, obj["metadata"]["labels"]) == (200, {"b": "2"})
        status, items = await client("GET", "/api/v1/nodes?labelSelector=b%3D2")
        assert [item["metadata"]["name"] for item in items["items"]] == ["n1"]
        assert items["kind"] == "NodeList"
        status, answer = await client("DELETE", "/api/v1/nodes/n1")
        assert (status, answer["status"], answer["details"]["name"]) == (200, "Success", "n1")
        status, answer = await client("GET", "/api/v1/nodes/n1")
        assert (status, answer["kind"], answer["reason"], answer["code"]) == (404, "Status", "NotFound", 404)

    play(scene)


def test_apply_creates_with_201_and_conflicts_with_causes() -> None:
    async def scene(store: Store, client: Client) -> None:
        path = "/apis/test.example.com/v1/namespaces/default/widgets/w1?fieldManager="
        headers = {"Content_Type": "application/apply-patch+yaml"}
        assert (await client("PATCH", path + "one", widget(size=3), **headers))[0] == 201
        assert (await client("PATCH", path + "one", widget(size=3), **headers))[0] == 200
        status, answer = await client("PATCH", path + "two", widget(size=4), **headers)
        assert status == 409
        assert answer["details"]["causes"][0]["field"] == ".spec.size"
        assert (await client("PATCH", path + "two&force=true", widget(size=4), **headers))[0] == 200
        assert (await client("PATCH", path[: path.index("?")], widget(), **headers))[0] == 422
        body = yamlio.dumps(widget(size=5)).encode()
        assert (await client("PATCH", path + "two", body, **headers))[1]["spec"]["size"] == 5

    play(scene)


def test_paging_and_tables() -> None:
    async def scene(store: Store, client: Client) -> None:
        for number in range(3):
            add_node(store, f"n{number}")
        _, first = await client("GET", "/api/v1/nodes?limit=2")
        assert first["metadata"]["remainingItemCount"] == 1
        _, second = await client("GET", f"/api/v1/nodes?limit=2&continue={first['metadata']['continue']}")
        assert [item["metadata"]["name"] for item in second["items"]] == ["n2"]
        _, table = await client("GET", "/api/v1/nodes", Accept=TABLE)
        assert table["kind"] == "Table"
        assert table["rows"][0]["cells"][:2] == ["n0", "Unknown"]
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        _, table = await client("GET", "/api/v1/nodes/n1?includeObject=Object", Accept=TABLE)
        assert table["rows"][0]["object"]["kind"] == "Node"

    play(scene)


async def read_lines(response: aiohttp.ClientResponse, count: int) -> list[Any]:
    return [json.loads(await response.content.readline()) for _ in range(count)]


def test_watch_streams_and_ends() -> None:
    async def scene(store: Store, client: Client) -> None:
        add_node(store, "n1")
        url = client.server.url + "/api/v1/nodes?watch=1&allowWatchBookmarks=true&resourceVersion="
        headers = {"Authorization": f"Bearer {client.server.token()}"}
        async with client.session.get(f"{url}{store.version}", headers=headers) as response:
            add_node(store, "n2")
            store.delete(store.kind(NODES), "n1")
            events = await read_lines(response, 3)
            # The control plane writes a new node once more by itself.
            assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [
                ("ADDED", "n2"),
                ("MODIFIED", "n2"),
                ("DELETED", "n1"),
            ]
            store.compact()
            store.patch(store.kind(NODES), "n2", {"metadata": {"labels": {"a": "1"}}}, MERGE)
            assert (await read_lines(response, 1))[0]["type"] == "MODIFIED"
        async with client.session.get(f"{url}1", headers=headers) as response:
            (event,) = await read_lines(response, 1)
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        async with client.session.get(f"{url}0", headers={**headers, "Accept": TABLE}) as response:
            (event,) = await read_lines(response, 1)
            assert (event["type"], event["object"]["kind"]) == ("ADDED", "Table")

    play(scene)


def test_users_and_denials() -> None:
    async def scene(store: Store, client: Client) -> None:
        assert (await client("GET", "/api/v1/nodes", Authorization="Bearer wrong"))[0] == 401
        assert (await client("GET", "/healthz", Authorization=""))[0] == 200
        token = client.server.access.add_user("agent", (ADMIN_GROUP,))
        headers = {"Authorization": f"Bearer {token}"}
        assert (await client("GET", "/api/v1/nodes", **headers))[0] == 200
        client.server.access.denials.append(Denial("agent", "get", "nodes"))
        add_node(store)
        status, answer = await client("GET", "/api/v1/nodes/n1", **headers)
        assert status == 403
        assert answer["message"] == (
            'nodes "n1" is forbidden: User "agent" cannot get resource "nodes" in API group "" at the cluster scope'
        )
        assert (await client("GET", "/api/v1/nodes/n1"))[0] == 200
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "nodes"}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert (await client("POST", path, review, **headers))[1]["status"]["allowed"] is False
        assert (await client("POST", path, review))[1]["status"]["allowed"] is True

    play(scene)


def test_eviction_and_binding() -> None:
    async def scene(store: Store, client: Client) -> None:
        add_pod(store, "p1", "", app="a")
        base = "/api/v1/namespaces/default/pods/p1"
        bindings = "/api/v1/namespaces/default/bindings"
        assert (await client("POST", bindings, {"target": {"name": "n1"}}))[0] == 400
        assert (await client("POST", bindings, {"metadata": {"name": "p1"}, "target": {"name": "n1"}}))[0] == 201
        assert (await client("POST", base + "/binding", {"target": {"name": "n1"}}))[0] == 409
        make_ready(store, "p1")
        add_budget(store, {"minAvailable": 1})
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p1"}}
        status, answer = await client("POST", base + "/eviction", eviction)
        assert status == 429
        assert answer["details"]["causes"][0]["reason"] == "DisruptionBudget"
        store.delete(store.registry_kind("policy", "v1", "poddisruptionbudgets"), "pdb", "default")
        assert (await client("POST", base + "/eviction?dryRun=All", eviction))[0] == 201
        assert "deletionTimestamp" not in store.get(store.kind(PODS), "p1", "default").obj["metadata"]
        assert (await client("POST", base + "/eviction", eviction))[0] == 201
        assert "deletionTimestamp" in store.get(store.kind(PODS), "p1", "default").obj["metadata"]

    play(scene)


def test_discovery_and_openapi() -> None:
    async def scene(store: Store, client: Client) -> None:
        _, core, response = await client.raw("GET", "/api", Accept=DISCOVERY)
        assert response.headers["Content-Type"] == DISCOVERY
        resources = {r["resource"]: r for r in core["items"][0]["versions"][0]["resources"]}
        assert {s["subresource"] for s in resources["pods"]["subresources"]} >= {"status", "eviction", "binding"}
        _, legacy = await client("GET", "/api/v1")
        assert "nodes/status" in [resource["name"] for resource in legacy["resources"]]
        _, groups = await client("GET", "/apis")
        assert "test.example.com" in [group["name"] for group in groups["groups"]]
        _, listed = await client("GET", "/apis/test.example.com/v1")
        assert listed["resources"][0]["shortNames"] == ["wd"]
        _, index = await client("GET", "/openapi/v3")
        path = index["paths"]["apis/test.example.com/v1"]["serverRelativeURL"]
        _, doc = await client("GET", path)
        schema = doc["components"]["schemas"]["com.example.test.v1.Widget"]
        assert schema["properties"]["spec"]["properties"]["size"]["type"] == "integer"
        assert (await client("GET", "/openapi/v2", Accept="application/com.github.proto"))[0] == 406
        assert (await client("GET", "/version"))[1]["major"] == "1"

    play(scene)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/apis/apps/v2", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/namespaces/default/pods/p/log", 501),
        ("GET", "/apis/apps/v1/namespaces/default/deployments/d/scale", 501),
        ("PUT", "/api/v1/nodes", 405),
        ("POST", "/api/v1/nodes/n1", 405),
        ("GET", "/api/v1/nodes?limit=many", 400),
        ("GET", "/api/v1/nodes?fieldSelector=spec.x%3D1", 400),
        ("GET", "/api/v1/nodes?labelSelector=%3D", 400),
        ("GET", "/api/v1/nodes?watch=1&resourceVersion=x", 500),
        ("DELETE", "/api/v1/nodes/missing", 404),
    ],
)
def test_refusals_are_statuses(method: str, path: str, code: int) -> None:
    async def scene(store: Store, client: Client) -> None:
        status, answer = await client(method, path, None)
        assert status == code
        assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", code)
        assert answer["message"]

    play(scene)


@pytest.mark.parametrize("path", ["/apis/unknown.io/v1/things", "/apis/unknown.io", "/nowhere"])
def test_what_is_outside_everything_served_is_no_status(path: str) -> None:
    async def scene(store: Store, client: Client) -> None:
        status, body, _ = await client.raw("GET", path)
        assert (status, body) == (404, b"404 page not found\n")

    play(scene)


def test_hostile_bodies() -> None:
    async def scene(store: Store, client: Client) -> None:
        for body, content_type, code in (
            (b"{", "application/json", 400),
            (b"[" * 100_000, "application/json", 400),
            (b"a: &a [1]\nb: *a", "application/yaml", 400),
            (b"\xff\xfe", "application/json", 400),
            (b"k8s\x00\xff\xff", MEDIA_TYPE, 400),
            (b"nope", MEDIA_TYPE, 400),
            (b"x" * (4 * 1024 * 1024), "application/json", 413),
            (b"{}", "application/cbor", 415),
            (b"[1]", "application/json", 400),
        ):
            assert (await client("POST", "/api/v1/nodes", body, Content_Type=content_type))[0] == code
        status, answer = await client("PATCH", "/api/v1/nodes/n1", b"{}", Content_Type="text/plain")
        assert (status, answer["reason"]) == (415, "UnsupportedMediaType")
        assert (await client("GET", "/api/v1/nodes", Accept="application/cbor"))[0] == 406

    play(scene)


def test_warnings_and_strictness() -> None:
    async def scene(store: Store, client: Client) -> None:
        path = "/apis/test.example.com/v1/namespaces/default/widgets"
        body = widget(bogus='x\n"')
        _, _, response = await client.raw("POST", path + "?dryRun=All", body)
        assert response.headers["Warning"] == '299 - "unknown field \\"spec.bogus\\""'
        status, answer = await client("POST", path + "?fieldValidation=Strict", body)
        assert (status, "strict decoding error" in answer["message"]) == (400, True)
        assert (await client("POST", path + "?dryRun=Some", body))[0] == 422
        assert store.list(store.kind(WIDGETS)).items == ()

    play(scene)


def test_faults_over_http() -> None:
    async def scene(store: Store, client: Client) -> None:
        def hook(request: Request) -> Fault | None:
            if request.verb == "create":
                return Fault(lost=True, after_write=True)
            return Fault(error=too_many_requests(4)) if request.verb == "get" else None

        store.faults = hook
        with pytest.raises(aiohttp.ClientError):
            await client("POST", "/api/v1/nodes", node())
        assert store.find(store.kind(NODES), ("", "n1")) is not None
        status, _, response = await client.raw("GET", "/api/v1/nodes/n1")
        assert (status, response.headers["Retry-After"]) == (429, "4")

    play(scene)


def test_a_dropped_watch_breaks_off() -> None:
    async def scene(store: Store, client: Client) -> None:
        headers = {"Authorization": f"Bearer {client.server.token()}"}
        async with client.session.get(client.server.url + "/api/v1/nodes?watch=1", headers=headers) as response:
            add_node(store)
            await read_lines(response, 2)
            store.drop_watches()
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.content.readline()

    play(scene)


def test_leaving_the_server_ends_its_watches_and_nobody_elses() -> None:
    async def main() -> None:
        store = Store(SystemClock())
        inside = Watch(store, store.kind(NODES), "", WatchOptions(timeout_s=30))
        async with aiohttp.ClientSession() as session:
            async with ApiServer(store, tls=False) as server:
                headers = {"Authorization": f"Bearer {server.token()}"}
                response = await session.get(server.url + "/api/v1/nodes?watch=1", headers=headers)
                add_node(store)
                await read_lines(response, 2)
            with pytest.raises(aiohttp.ClientError):
                await response.content.readline()
        assert (await anext(inside.events())).number == store.version - 1

    asyncio.run(main())


def test_tls_with_its_own_authority() -> None:
    async def main() -> None:
        store = Store(SystemClock())
        async with ApiServer(store) as server:
            config = yamlio.loads(server.kubeconfig("someone"), "kubeconfig")
            assert config["clusters"][0]["cluster"]["server"] == server.url
            assert config["users"][0]["user"]["token"] == server.token("someone")
            context = ssl.create_default_context(cadata=server.ca_pem)
            headers = {"Authorization": f"Bearer {server.token()}"}
            async with aiohttp.ClientSession() as session:
                async with session.get(server.url + "/api/v1/nodes", headers=headers, ssl=context) as response:
                    assert response.status == 200
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await session.get(server.url + "/version")
            port = int(server.url.rpartition(":")[2])
            with pytest.raises(BadInputError, match="choose another port"):
                await ApiServer(store, port).__aenter__()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/nodes", Target("", "v1", "nodes")),
        ("/api/v1/nodes/n1/status", Target("", "v1", "nodes", "", "n1", "status")),
        ("/api/v1/namespaces", Target("", "v1", "namespaces")),
        ("/api/v1/namespaces/a", Target("", "v1", "namespaces", "", "a")),
        ("/api/v1/namespaces/a/finalize", Target("", "v1", "namespaces", "", "a", "finalize")),
        ("/api/v1/namespaces/a/pods", Target("", "v1", "pods", "a")),
        ("/apis/g.io/v1/namespaces/a/things/t/status", Target("g.io", "v1", "things", "a", "t", "status")),
    ],
)
def test_paths(path: str, target: Target) -> None:
    assert parse_path(path) == target


def test_accept_headers() -> None:
    assert accepted("").as_ == ""
    assert accepted("application/vnd.kubernetes.protobuf,application/json").as_ == ""
    assert accepted(TABLE).as_ == "Table"
    assert accepted("application/json;as=Table;v=v9;g=meta.k8s.io,application/json").as_ == ""
    with pytest.raises(StatusError):
        accepted("text/html")


def field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2, len(payload)]) + payload


def envelope(kind: bytes, message: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, b"v1") + field(2, kind)) + field(2, message)


def test_protobuf_bodies() -> None:
    options = bytes([1 << 3, 30]) + field(2, field(1, b"uid-1")) + field(5, b"All")
    assert decode(envelope(b"Eviction", field(1, field(1, b"p1") + field(3, b"default")) + field(2, options))) == {
        "apiVersion": "v1",
        "kind": "Eviction",
        "metadata": {"name": "p1", "namespace": "default"},
        "deleteOptions": {"gracePeriodSeconds": 30, "preconditions": {"uid": "uid-1"}, "dryRun": ["All"]},
    }
    entry = field(1, b"key") + field(2, b"\x00\xff")
    assert decode(envelope(b"Secret", field(2, entry)))["data"] == {"key": "AP8="}
    with pytest.raises(StatusError) as caught:
        decode(envelope(b"Widget", b""))
    assert caught.value.code == 415
