"""HttpApi against a scripted server on the loop-back interface: what is sent, and what each answer becomes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from muster.errors import BadInputError, UnreachableError
from muster.kube import wire
from muster.kube.api import (
    LEASES,
    NODES,
    PODS,
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ConnectionLostError,
    EventType,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    PatchType,
    ServerError,
    TooManyRequestsError,
)
from muster.kube.config import load_target
from muster.kube.http import HttpApi

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def kubeconfig(folder: Path, server: str, **user: str) -> Path:
    file = folder / "config"
    content = {
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": user or {"token": "s3cret"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
    }
    file.write_text(json.dumps(content))
    return file


def with_server(folder: Path, handler: Handler, use: Callable[[HttpApi], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        file = kubeconfig(folder, f"http://{host}:{port}")
        try:
            async with HttpApi.from_kubeconfig(file, **{"rate_per_s": 1000.0, **options}) as api:
                return await use(api)
        finally:
            await runner.cleanup()

    return asyncio.run(main())


def answering(answer: Any, seen: list[Any], status: int = 200, headers: dict[str, str] | None = None) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        seen.append((request.method, request.path_qs, json.loads(body) if body else None, dict(request.headers)))
        return web.json_response(answer, status=status, headers=headers)

    return handler


def test_every_call_asks_what_it_should(tmp_path: Path) -> None:
    seen: list[Any] = []
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x", "namespace": "ns"}}

    async def use(api: HttpApi) -> None:
        await api.get(NODES, "a/b")
        await api.create(LEASES, lease, manager="m")
        await api.replace(LEASES, lease, subresource="status")
        await api.patch(NODES, "n", [{"op": "test"}], PatchType.JSON, manager="m")
        await api.apply(LEASES, lease, manager="m", force=False)
        await api.delete(PODS, "p", "ns", grace_period_s=0, uid="u", resource_version="7")
        await api.evict("p", "ns", uid="u")

    with_server(tmp_path, answering({}, seen), use)
    leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    assert [entry[:3] for entry in seen] == [
        ("GET", "/api/v1/nodes/a%2Fb", None),
        ("POST", f"{leases}?fieldManager=m", lease),
        ("PUT", f"{leases}/x/status", lease),
        ("PATCH", "/api/v1/nodes/n?fieldManager=m", [{"op": "test"}]),
        ("PATCH", f"{leases}/x?fieldManager=m&force=false", lease),
        (
            "DELETE",
            "/api/v1/namespaces/ns/pods/p",
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "gracePeriodSeconds": 0,
                "preconditions": {"uid": "u", "resourceVersion": "7"},
            },
        ),
        (
            "POST",
            "/api/v1/namespaces/ns/pods/p/eviction",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "p", "namespace": "ns"},
                "deleteOptions": {"preconditions": {"uid": "u"}},
            },
        ),
    ]
    assert seen[0][3]["Authorization"] == "Bearer s3cret"
    assert seen[3][3]["Content-Type"] == "application/json-patch+json"
    assert seen[4][3]["Content-Type"] == "application/apply-patch+yaml"


def test_a_list_hands_on_the_json_of_each_object(tmp_path: Path) -> None:
    seen: list[Any] = []
    answer = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [{"a": 1}, {"b": [2]}]}

    async def use(api: HttpApi) -> Any:
        return await api.list_page(PODS, label_selector="a=b,c", limit=2, continue_token="t")

    page = with_server(tmp_path, answering(answer, seen), use)
    assert [json.loads(item) for item in page.items] == answer["items"]
    assert (page.resource_version, page.continue_token) == ("9", "more")
    assert seen[0][1] == "/api/v1/pods?labelSelector=a%3Db%2Cc&limit=2&continue=t"


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", InvalidError),
        (401, "Unauthorized", ForbiddenError),
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", NotFoundError),
        (409, "AlreadyExists", AlreadyExistsError),
        (409, "Conflict", ConflictError),
        (410, "Expired", GoneError),
        (415, "UnsupportedMediaType", ApiError),
        (422, "Invalid", InvalidError),
        (429, "TooManyRequests", TooManyRequestsError),
        (500, "InternalError", ServerError),
        (504, "Timeout", ServerError),
    ],
)
def test_a_status_becomes_its_typed_error(tmp_path: Path, code: int, reason: str, expected: type[ApiError]) -> None:
    status = {"kind": "Status", "code": code, "reason": reason, "message": f"it says {reason}"}

    async def use(api: HttpApi) -> None:
        await api.get(NODES, "n")

    with pytest.raises(ApiError, match=f"it says {reason}") as caught:
        with_server(tmp_path, answering(status, [], code, {"Retry-After": "3"}), use)
    assert type(caught.value) is expected
    assert (caught.value.code, caught.value.reason, caught.value.retry_after_s) == (code, reason, 3.0)


def test_an_error_that_is_no_status_is_quoted_and_bounded(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=502, text="<html>\n  bad   gateway " + "x" * 100_000)

    async def use(api: HttpApi) -> None:
        await api.get(NODES, "n")

    with pytest.raises(ServerError, match=r"^<html> bad gateway") as caught:
        with_server(tmp_path, handler, use)
    assert len(str(caught.value)) <= 2000


def streaming(chunks: list[bytes], then: Callable[[], Awaitable[None]] | None = None) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then()
        return response

    return handler


async def all_events(api: HttpApi) -> list[Any]:
    return [event async for event in api.watch(NODES, "5")]


def line(kind: str, obj: Any) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def test_watch_events_survive_any_cut_and_end_with_the_stream(tmp_path: Path) -> None:
    text = line("ADDED", {"a": "ü\\n"}) + b"\n" + line("BOOKMARK", {}) + line("DELETED", {"b": 1}) + b'{"type":"ADD'
    chunks = [text[start : start + 7] for start in range(0, len(text), 7)]
    events = with_server(tmp_path, streaming(chunks), all_events)
    assert [event.type for event in events] == [EventType.ADDED, EventType.BOOKMARK, EventType.DELETED]
    assert json.loads(events[0].raw) == {"a": "ü\\n"}


def test_watch_asks_for_bookmarks_and_a_limit(tmp_path: Path) -> None:
    """And for bytes as they are: a real server compresses some watches event by event, which httpx cannot read."""
    seen: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.extend((request.path_qs, request.headers["Accept-Encoding"]))
        return web.Response()

    async def use(api: HttpApi) -> list[Any]:
        return [event async for event in api.watch(PODS, "5", field_selector="spec.nodeName=n", timeout_s=12.4)]

    assert with_server(tmp_path, handler, use) == []
    assert seen == [
        "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=5&fieldSelector=spec.nodeName%3Dn"
        "&timeoutSeconds=12",
        "identity",
    ]


def test_watch_of_a_version_that_is_too_old_is_gone_in_both_forms(tmp_path: Path) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    with pytest.raises(GoneError, match="too old"):
        with_server(tmp_path, streaming([line("ERROR", gone)]), all_events)
    with pytest.raises(GoneError, match="too old"):
        with_server(tmp_path, answering(gone, [], 410), all_events)


@pytest.mark.parametrize("chunk", [b"not json\n", b'{"type":"NEWS","object":{}}\n', b'{"type":"ADDED"}\n'])
def test_watch_garbage_is_a_lost_connection(tmp_path: Path, chunk: bytes) -> None:
    with pytest.raises(ConnectionLostError, match="not readable"):
        with_server(tmp_path, streaming([chunk]), all_events)


def test_a_silent_watch_is_a_lost_connection(tmp_path: Path) -> None:
    forever = asyncio.Event

    async def hang() -> None:
        await forever().wait()

    with pytest.raises(ConnectionLostError, match="No answer from the API server"):
        with_server(tmp_path, streaming([line("ADDED", {})], hang), all_events, watch_silence_s=0.05)


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_LINE_BYTES", 100_000)
    with pytest.raises(ConnectionLostError, match="more than 100000 bytes"):
        with_server(tmp_path, streaming([b"x" * 50_000] * 10), all_events)


@pytest.mark.parametrize(
    ("act", "requests"),
    [
        (lambda api: api.get(NODES, "n"), 2),
        (lambda api: api.patch(NODES, "n", {"spec": {}}, PatchType.MERGE), 2),
        (lambda api: api.apply(NODES, {"metadata": {"name": "n"}}, manager="m"), 2),
        (lambda api: api.patch(NODES, "n", [], PatchType.JSON), 1),
        (lambda api: api.patch(NODES, "n", {"metadata": {"resourceVersion": "5"}}, PatchType.MERGE), 1),
        (lambda api: api.create(NODES, {"metadata": {"name": "n"}}), 1),
        (lambda api: api.replace(NODES, {"metadata": {"name": "n"}}), 1),
        (lambda api: api.delete(NODES, "n"), 1),
    ],
)
def test_what_has_one_effect_is_sent_again_when_the_connection_breaks(
    tmp_path: Path, act: Callable[[HttpApi], Awaitable[Any]], requests: int
) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        await request.read()
        seen.append(request.method)
        if len(seen) > 1:
            return web.json_response({"metadata": {"name": "n"}})
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def use(api: HttpApi) -> None:
        if requests == 1:
            with pytest.raises(ConnectionLostError):
                await act(api)
        else:
            assert await act(api) == {"metadata": {"name": "n"}}

    with_server(tmp_path, handler, use)
    assert len(seen) == requests


def test_the_request_rate_is_bounded(tmp_path: Path) -> None:
    async def use(api: HttpApi) -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await asyncio.gather(*(api.get(NODES, "n") for _ in range(110)))
        return loop.time() - started

    assert with_server(tmp_path, answering({}, []), use, rate_per_s=50.0, burst=100) >= 0.2


def test_a_separate_client_is_another_client_of_the_same_server(tmp_path: Path) -> None:
    async def use(api: HttpApi) -> bool:
        async with api.separate() as other:
            await other.get(NODES, "n")
            return other.server == api.server and other is not api

    assert with_server(tmp_path, answering({}, []), use) is True


def test_a_server_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    async def main() -> None:
        # Port 9 on this machine: nothing listens there.
        async with HttpApi.from_kubeconfig(kubeconfig(tmp_path, "http://127.0.0.1:9")) as api:
            await api.server_version()

    with pytest.raises(UnreachableError, match=r"^No answer from the API server http://127\.0\.0\.1:9 \(.+\); check"):
        asyncio.run(main())


def test_a_credential_plugin_that_fails_is_one_sentence(tmp_path: Path) -> None:
    plugin: Any = {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}
    file = kubeconfig(tmp_path, "http://127.0.0.1:9", exec=plugin)

    async def main() -> None:
        async with HttpApi.from_kubeconfig(file) as api:
            await api.server_version()

    with pytest.raises(UnreachableError, match=r"^Cannot log in to http://127\.0\.0\.1:9"):
        asyncio.run(main())


def write(file: Path, content: Any) -> Path:
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


CLUSTER = {"name": "c", "cluster": {"server": "https://one:6443"}}
CONTEXT = {"name": "x", "context": {"cluster": "c", "user": "u"}}
USER = {"name": "u", "user": {"token": "t"}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [", "not valid YAML"),
        ("just text", "holds no mapping"),
        ({}, "sets no current context"),
        ({"current-context": "x"}, "has no context 'x'; it has: none"),
        ({"current-context": "x", "contexts": [CONTEXT]}, "names the cluster 'c' but does not define it"),
        ({"current-context": "x", "contexts": [CONTEXT], "clusters": [CLUSTER]}, "names the user 'u'"),
        ({"clusters": {"a": 1}}, "'clusters' must be a list"),
        ({"clusters": [{"cluster": {}}]}, "'clusters' must be a list"),
        (
            {
                "current-context": "x",
                "contexts": [CONTEXT],
                "clusters": [{"name": "c", "cluster": {"server": 5}}],
                "users": [USER],
            },
            "cannot be used",
        ),
        (
            {
                "current-context": "x",
                "contexts": [CONTEXT],
                "clusters": [{"name": "c", "cluster": {"server": "one:6443"}}],
                "users": [USER],
            },
            "no usable server address",
        ),
        (
            {
                "current-context": "x",
                "contexts": [CONTEXT],
                "clusters": [CLUSTER],
                "users": [{"name": "u", "user": {"as": "root"}}],
            },
            "impersonation",
        ),
    ],
)
def test_a_broken_kubeconfig_is_one_sentence(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(BadInputError, match=words) as caught:
        load_target(write(tmp_path / "config", content))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_missing_kubeconfig_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInputError, match="Cannot read"):
        load_target(tmp_path / "none")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(BadInputError, match="give --kubeconfig FILE or set KUBECONFIG"):
        load_target()


def test_a_broken_certificate_is_one_sentence(tmp_path: Path) -> None:
    cluster = {"server": "https://one:6443", "certificate-authority": "ca.crt"}
    write(tmp_path / "ca.crt", "no certificate")
    content = {
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [CONTEXT],
        "users": [USER],
    }
    with pytest.raises(BadInputError, match=r"^The credentials in .* cannot be used"):
        HttpApi.from_kubeconfig(write(tmp_path / "config", content))


def test_several_kubeconfigs_merge_and_the_first_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    first = write(
        tmp_path / "first", {"current-context": "x", "clusters": [CLUSTER], "contexts": [CONTEXT], "users": []}
    )
    other = {"name": "c", "cluster": {"server": "https://two:6443"}}
    cert_user = {"name": "u", "user": {"client-certificate": "me.crt", "client-key": "/abs/me.key"}}
    second = write(tmp_path / "sub" / "second", {"current-context": "y", "clusters": [other], "users": [cert_user]})
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'gone'}:{first}:{second}")
    target = load_target()
    assert target.server == "https://one:6443"
    assert target.single.user is not None
    assert target.single.user.client_cert == str(tmp_path / "sub" / "me.crt")
    assert target.single.user.client_key == "/abs/me.key"
