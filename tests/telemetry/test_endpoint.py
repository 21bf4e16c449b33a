"""The endpoint: what it answers and refuses, and that nobody can keep it busy. On a real loop and real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.telemetry import endpoint as endpoint_module
from muster.telemetry import health as health_module
from muster.telemetry.endpoint import CONNECTION_LIMIT, Address, Endpoint
from muster.telemetry.health import LAG_LIMIT_S, Health
from muster.telemetry.metrics import ControllerMetrics
from tests.telemetry.scrape import parsed, value

LARGE = b"# x\n" * 8_000_000


async def exchange(at: Address, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send `request`, read until the server closes."""
    reader, writer = await asyncio.open_connection(at.host or "127.0.0.1", at.port)
    try:
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split(" ")[1]), dict(line.split(": ", 1) for line in lines), body


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def serving(
    story: Callable[[Endpoint], Awaitable[None]],
    *,
    ready: Callable[[], str] = str,
    exposition: Callable[[], bytes] = bytes,
    address: str = "127.0.0.1:0",
) -> Endpoint:
    endpoint = Endpoint(Address.parse(address), Health(ready), exposition)

    async def main() -> None:
        async with endpoint.serving():
            await story(endpoint)

    asyncio.run(main())
    return endpoint


def test_a_healthy_process_answers_all_three_paths() -> None:
    metrics = ControllerMetrics("9.9", lambda: None)

    async def story(e: Endpoint) -> None:
        assert (await exchange(e.address, get("/healthz")))[::2] == (200, b"alive\n")
        assert (await exchange(e.address, get("/readyz?verbose")))[::2] == (200, b"ready\n")
        code, headers, body = await exchange(e.address, get("/metrics"))
        assert (code, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert int(headers["Content-Length"]) == len(body)
        assert value(parsed(body), "muster_build_info", version="9.9") == 1

    serving(story, exposition=metrics.exposition)


def test_readiness_says_why_not_and_recovers() -> None:
    reasons = ["the lease is far away", ""]

    async def story(e: Endpoint) -> None:
        assert (await exchange(e.address, get("/readyz")))[::2] == (503, b"not ready: the lease is far away\n")
        assert (await exchange(e.address, get("/readyz")))[::2] == (200, b"ready\n")

    serving(story, ready=lambda: reasons.pop(0))


def test_a_late_loop_is_not_alive_and_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "TICK_S", 0.001)
    metrics = ControllerMetrics("1", lambda: None)

    async def main() -> None:
        health = Health(str, metrics.lag)
        assert health.not_alive() == ""
        measuring = asyncio.ensure_future(health.run())
        loop = asyncio.get_running_loop()
        real, skipped = loop.time, 0.0
        monkeypatch.setattr(loop, "time", lambda: real() + skipped)
        await asyncio.sleep(0)
        skipped = 2 * LAG_LIMIT_S
        for _ in range(100):
            await asyncio.sleep(0)
            if health.lag_s > LAG_LIMIT_S:
                break
        assert "late, which is more than 5 s" in health.not_alive()
        assert value(parsed(metrics.exposition()), "muster_event_loop_lag_seconds") > LAG_LIMIT_S
        for _ in range(100_000):
            await asyncio.sleep(0)
            if health.lag_s <= LAG_LIMIT_S:
                break
        assert health.not_alive() == ""
        measuring.cancel()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (get("/"), 404),
        (get("/metrics/"), 404),
        (get("/<script>secret"), 404),
        (get("/healthz", "POST"), 405),
        (get("/healthz", "DELETE"), 405),
        (b"secret\r\n\r\n", 400),
        (b"\x16\x03\x01\x02secret\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nCookie: " + b"secret" * 2000 + b"\r\n\r\n", 431),
    ],
)
def test_anything_else_is_refused_without_repeating_it(request_: bytes, code: int) -> None:
    async def story(e: Endpoint) -> None:
        found, headers, body = await exchange(e.address, request_)
        assert found == code
        assert b"secret" not in body
        assert "secret" not in str(headers)
        assert (headers.get("Allow") == "GET, HEAD") == (code == 405)
        assert (await exchange(e.address, get("/healthz")))[0] == 200

    serving(story)


def test_head_has_the_headers_and_no_body() -> None:
    async def story(e: Endpoint) -> None:
        assert (await exchange(e.address, get("/healthz", "HEAD")))[::2] == (200, b"")

    serving(story)


def test_metrics_that_break_do_not_look_like_a_dead_process(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> bytes:
        raise KeyError("a bug")

    async def story(e: Endpoint) -> None:
        code, _, body = await exchange(e.address, get("/metrics"))
        assert code == 500
        assert b"bug" not in body
        assert (await exchange(e.address, get("/healthz")))[0] == 200

    serving(story, exposition=broken)
    assert "cannot be collected" in caplog.text


def test_who_sends_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "EXCHANGE_LIMIT_S", 0.05)

    async def story(e: Endpoint) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", e.address.port)
        writer.write(b"GET /healthz HTT")
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()

    serving(story)


def test_idle_connections_do_not_add_up() -> None:
    async def story(e: Endpoint) -> None:
        held = [await asyncio.open_connection("127.0.0.1", e.address.port) for _ in range(CONNECTION_LIMIT)]
        held[-1][1].write(b"G")
        # A probe is answered all the same; it takes the place of the oldest.
        assert (await asyncio.wait_for(exchange(e.address, get("/healthz")), 3))[0] == 200
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(held[0][0].read(), 3) == b""
        held[-1][1].write(get("/healthz")[1:])
        assert b"alive" in await asyncio.wait_for(held[-1][0].read(), 10)
        for _, open_ in held:
            open_.close()

    serving(story)


def test_who_asks_and_reads_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit into the buffers of the machine must not be kept for as long as the other side likes."""
    monkeypatch.setattr(endpoint_module, "EXCHANGE_LIMIT_S", 0.2)

    async def story(e: Endpoint) -> None:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", e.address.port)) as idle:
            idle.setblocking(False)
            idle.sendall(get("/metrics"))
            received, ended = 0, False
            await asyncio.sleep(0.6)
            while not ended:
                try:
                    chunk = await asyncio.wait_for(loop.sock_recv(idle, 1 << 20), 5)
                except ConnectionError:
                    chunk = b""
                received += len(chunk)
                ended = not chunk
            assert 0 < received < len(LARGE)

    serving(story, exposition=lambda: LARGE)


def test_stopping_closes_what_is_open_and_frees_the_port() -> None:
    async def main() -> None:
        endpoint = Endpoint(Address.parse("127.0.0.1:0"), Health(str), bytes)
        async with endpoint.serving():
            reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.address.port)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        again = Endpoint(endpoint.address, Health(str), bytes)
        async with again.serving():
            assert (await exchange(again.address, get("/healthz")))[0] == 200

    asyncio.run(main())


def test_both_families_are_served_on_every_address() -> None:
    async def story(e: Endpoint) -> None:
        assert (await exchange(Address("127.0.0.1", e.address.port), get("/healthz")))[0] == 200
        if socket.has_dualstack_ipv6():
            assert (await exchange(Address("::1", e.address.port), get("/healthz")))[0] == 200

    serving(story, address=":0")


def test_ipv6_alone_is_served() -> None:
    async def story(e: Endpoint) -> None:
        assert str(e.address) == f"[::1]:{e.address.port}"
        assert (await exchange(e.address, get("/healthz")))[0] == 200

    serving(story, address="[::1]:0")


@pytest.mark.parametrize("host", ["127.0.0.1", "", "[::1]"])
def test_a_port_in_use_is_one_sentence(host: str) -> None:
    family = socket.AF_INET6 if host == "[::1]" else socket.AF_INET
    with closing(socket.create_server(("::1" if host == "[::1]" else "127.0.0.1", 0), family=family)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            BadInputError, match=rf"Cannot listen on .*:{port} \(.*in use.*\); give another --listen\."
        ):
            serving(_unreached, address=f"{host}:{port}")


def test_an_address_of_another_machine_is_one_sentence() -> None:
    with pytest.raises(BadInputError, match=r"Cannot listen on 192\.0\.2\.1:80 \(.*\); give another --listen"):
        serving(_unreached, address="192.0.2.1:80")


async def _unreached(_: Endpoint) -> None:
    raise AssertionError("it must not get here")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        (":8080", "", 8080),
        ("[::]:0", "::", 0),
        ("[fe80::1]:65535", "fe80::1", 65535),
        ("localhost:1", "localhost", 1),
    ],
)
def test_addresses_are_read(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "8080", "x:", "x:-1", "x:65536", "x:123456", "::1:80", "[x]:80", "a b:80", "x:８０", "[::1]", "x:8 "]
)
def test_what_is_no_address_is_one_sentence(text: str) -> None:
    with pytest.raises(BadInputError, match=r"is not ADDRESS:PORT; .*\.$"):
        Address.parse(text)


@given(st.text(max_size=300))
def test_any_text_is_an_address_or_one_sentence(text: str) -> None:
    refused = ""
    try:
        address = Address.parse(text)
    except BadInputError as error:
        refused = str(error)
    if refused:
        assert len(refused) < 600
        assert "\n" not in refused
    else:
        assert 0 <= address.port <= 65535
        assert Address.parse(str(address)) == address
