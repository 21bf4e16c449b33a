"""The small client of a pod: what it sends, how it logs in, and what becomes of connections that break."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from muster.clock import SystemClock
from muster.errors import BadInputError, UnreachableError
from muster.kube.api import LEASES, NODES, ConnectionLostError, ForbiddenError, NotFoundError, PatchType
from muster.kube.pod_api import PodApi
from muster.kube.service_account import ServiceAccount, account_of_pod
from muster.resources.base import SYSTEM_NAMESPACE
from muster.sim.inprocess import InProcessApi
from muster.sim.nodes import ensure_namespace
from muster.sim.server import ApiServer
from muster.sim.store import Store

Served = tuple[list[bytes], int]


def account(folder: Path, host: str, port: int, authority: str, token: str = "t0ken") -> ServiceAccount:
    (folder / "token").write_text(token + "\n")
    (folder / "ca.crt").write_text(authority)
    return ServiceAccount(host, port, folder)


def on_simulated_server(folder: Path, use: Callable[[PodApi, ApiServer, Store], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        store = Store(SystemClock())
        await ensure_namespace(InProcessApi(store), SYSTEM_NAMESPACE)
        async with ApiServer(store) as server:
            host, _, port = server.url.removeprefix("https://").rpartition(":")
            mine = account(folder, host, int(port), server.ca_pem, server.token("admin"))
            async with PodApi(mine) as api:
                return await use(api, server, store)

    return asyncio.run(main())


def test_it_does_what_an_agent_asks_for(tmp_path: Path) -> None:
    async def use(api: PodApi, server: ApiServer, store: Store) -> None:
        await api.create(NODES, {"metadata": {"name": "n-1"}})
        node = await api.get(NODES, "n-1")
        assert node["metadata"]["uid"]
        lease = {"metadata": {"name": "agent-n-1"}, "spec": {"holderIdentity": "n-1"}}
        await api.create(LEASES, lease, SYSTEM_NAMESPACE, manager="muster-agent")
        patched = await api.patch(
            LEASES, "agent-n-1", {"spec": {"holderIdentity": "other"}}, PatchType.MERGE, SYSTEM_NAMESPACE, manager="m"
        )
        assert patched["spec"]["holderIdentity"] == "other"
        applied = await api.apply(
            NODES,
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-1", "labels": {"a": "b"}}},
            manager="m",
        )
        assert applied["metadata"]["labels"]["a"] == "b"
        with pytest.raises(NotFoundError):
            await api.get(NODES, "absent")
        assert len((await api.list_page(NODES)).items) == 1

    on_simulated_server(tmp_path, use)


def test_a_token_that_the_kubelet_replaced_is_used_at_once(tmp_path: Path) -> None:
    async def use(api: PodApi, server: ApiServer, store: Store) -> None:
        good = (tmp_path / "token").read_text()
        await api.list_page(NODES)
        (tmp_path / "token").write_text("of yesterday")
        with pytest.raises(ForbiddenError):
            await api.list_page(NODES)
        (tmp_path / "token").write_text(good)
        await api.list_page(NODES)
        (tmp_path / "token").unlink()
        with pytest.raises(UnreachableError, match="service account of this pod"):
            await api.list_page(NODES)

    on_simulated_server(tmp_path, use)


def test_a_server_of_another_authority_is_refused(tmp_path: Path) -> None:
    async def use(api: PodApi, server: ApiServer, store: Store) -> None:
        other = ApiServer(Store(SystemClock()))
        async with other:
            (tmp_path / "ca.crt").write_text(other.ca_pem)
            host, _, port = server.url.removeprefix("https://").rpartition(":")
            async with PodApi(ServiceAccount(host, int(port), tmp_path)) as distrustful:
                with pytest.raises(ConnectionLostError, match="certificate"):
                    await distrustful.list_page(NODES)

    on_simulated_server(tmp_path, use)


class Plain:
    """A server without TLS that answers each connection by a script: bytes to send, None to hang up."""

    def __init__(self, scripts: list[list[bytes | None]]) -> None:
        self.scripts = scripts
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self.scripts.pop(0)
        try:
            for answer in script:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        await reader.readexactly(int(line.split(b":")[1]))
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def against(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    scripts: list[list[bytes | None]],
    use: Callable[[PodApi], Awaitable[Any]],
    timeout_s: float = 5.0,
) -> Plain:
    monkeypatch.setattr(ServiceAccount, "tls", lambda _: None)
    plain = Plain(scripts)

    async def main() -> None:
        server = await asyncio.start_server(plain.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with PodApi(account(folder, "127.0.0.1", port, ""), request_timeout_s=timeout_s) as api:
            await use(api)
        server.close()

    asyncio.run(main())
    return plain


def answer(body: bytes = b"{}", head: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_a_connection_is_kept_for_the_next_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(api: PodApi) -> None:
        for _ in range(3):
            await api.get(NODES, "n1")

    plain = against(tmp_path, monkeypatch, [[answer()] * 3], use)
    assert len(plain.requests) == 3
    assert b"Authorization: Bearer t0ken\r\n" in plain.requests[0]
    assert plain.requests[0].startswith(b"GET /api/v1/nodes/n1 HTTP/1.1\r\n")


def test_what_has_one_effect_is_sent_again_and_what_creates_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(api: PodApi) -> None:
        await api.get(NODES, "n1")
        await api.get(NODES, "n1")
        with pytest.raises(ConnectionLostError):
            await api.create(NODES, {"metadata": {"name": "n1"}})

    plain = against(tmp_path, monkeypatch, [[answer(), None], [answer(), None], [answer()]], use)
    assert [request.split(b" ", 1)[0] for request in plain.requests] == [b"GET", b"GET", b"GET", b"POST"]


@pytest.mark.parametrize(
    "broken",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        answer(b"no json"),
    ],
)
def test_an_answer_that_is_none_is_a_lost_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bytes
) -> None:
    async def use(api: PodApi) -> None:
        with pytest.raises(ConnectionLostError):
            await api.create(NODES, {"metadata": {"name": "n1"}})

    assert len(against(tmp_path, monkeypatch, [[broken]], use).requests) == 1


def test_an_endless_answer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.kube.connection.MAX_BODY_BYTES", 1000)

    async def use(api: PodApi) -> None:
        with pytest.raises(ConnectionLostError, match="more than 1000 bytes"):
            await api.create(NODES, {})

    against(tmp_path, monkeypatch, [[answer(b"x" * 1001)]], use)


def test_a_server_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(api: PodApi) -> None:
        with pytest.raises(ConnectionLostError, match="TimeoutError"):
            await api.create(NODES, {})

    against(tmp_path, monkeypatch, [[b"HTTP/1.1 200 OK\r\n", b""]], use, timeout_s=0.2)


def test_nobody_listening_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServiceAccount, "tls", lambda _: None)

    async def main() -> None:
        async with PodApi(account(tmp_path, "127.0.0.1", 1, "")) as api:
            with pytest.raises(ConnectionLostError, match="check that it runs and is reachable"):
                await api.get(NODES, "n1")

    asyncio.run(main())


def test_when_a_pod_has_an_account(tmp_path: Path) -> None:
    inside = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert account_of_pod(tmp_path, inside) is None
    (tmp_path / "token").write_text("x")
    found = account_of_pod(tmp_path, inside)
    assert found is not None
    assert found.server == "https://[fd00::1]:6443"
    assert account_of_pod(tmp_path, {}) is None
    assert account_of_pod(tmp_path, {**inside, "KUBECONFIG": "file"}) is None
    assert account_of_pod(tmp_path, {**inside, "HTTPS_PROXY": "http://proxy"}) is None
    with pytest.raises(BadInputError, match="no port"):
        account_of_pod(tmp_path, {**inside, "KUBERNETES_SERVICE_PORT": "x"})
    with pytest.raises(BadInputError, match=r"ca\.crt"):
        PodApi(found)
