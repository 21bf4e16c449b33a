"""Posting to a real HTTP server on this machine: what arrives, and what its answers mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from muster.clock import SystemClock
from muster.errors import BadInputError
from muster.operate.outputs.config import OutputsConfig, SinkConfig, SinkKind, check, load
from muster.operate.outputs.encode import SIGNATURE_HEADER, signature
from muster.operate.outputs.http_sink import Answer, HttpSink
from tests.outputs.test_events import events

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBdDCCARugAwIBAgIUZejECg5YnKYRG44tLr7AXlYWJjwwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjEyMDEwNDA1MjVaGA8yMTI2MTEwNzA0MDUy
NVowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABG3W
FOsi1s/c8GGtjNjSSh4To1NNEgUE7MWdq0gci3PlM5jSW2zucONT4xAdoUVwoUyJ
J1jRa4Lw61dRWRwjLk2jUzBRMB0GA1UdDgQWBBQurmDeNcMkcNZDhioG1Ve3YFN2
+DAfBgNVHSMEGDAWgBQurmDeNcMkcNZDhioG1Ve3YFN2+DAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0cAMEQCIBpFf30xCNc0IF4bVde8BKNL6rcWPO17SRXw
k3BzVCK6AiB7RQLPNPTdtixgZSMLCANN93uTUps8EvnIg0DyROFJhA==
-----END CERTIFICATE-----
"""
"""Of an authority that signs nothing."""


class Received:
    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.url = ""


@asynccontextmanager
async def receiver() -> AsyncIterator[Received]:
    received = Received()

    async def take(request: web.Request) -> web.Response:
        received.requests.append((dict(request.headers), await request.read()))
        headers = {"Location": received.url + "/elsewhere"} if received.status == 302 else {}
        return web.Response(status=received.status, headers=headers)

    app = web.Application()
    app.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    received.url = f"http://127.0.0.1:{runner.addresses[0][1]}/events"
    try:
        yield received
    finally:
        await runner.cleanup()


def with_receiver(test: Callable[[Received], Awaitable[None]]) -> None:
    async def work() -> None:
        async with receiver() as received:
            await test(received)

    asyncio.run(work())


async def deliver(config: SinkConfig, count: int = 3) -> tuple[Answer, str]:
    sink = HttpSink(config, SystemClock(), "east")
    try:
        return await sink.deliver(events(count))
    finally:
        await sink.close()


def test_cloudevents_one_a_request_or_in_batches() -> None:
    async def work(received: Received) -> None:
        single = SinkConfig(name="ce", kind=SinkKind.CLOUDEVENTS, url=received.url)
        assert await deliver(single) == (Answer.DELIVERED, "")
        assert len(received.requests) == 3
        headers, body = received.requests[0]
        assert headers["Content-Type"].startswith("application/cloudevents+json")
        assert json.loads(body)["specversion"] == "1.0"
        received.requests.clear()
        batched = SinkConfig(name="ce", kind=SinkKind.CLOUDEVENTS, url=received.url, batch=True)
        assert await deliver(batched) == (Answer.DELIVERED, "")
        ((headers, body),) = received.requests
        assert headers["Content-Type"].startswith("application/cloudevents-batch+json")
        assert len(json.loads(body)) == 3

    with_receiver(work)


def test_a_webhook_is_signed_and_carries_the_token(tmp_path: Path) -> None:
    secret, token = tmp_path / "secret", tmp_path / "token"
    secret.write_text("key\n")
    token.write_text("tkn\n")

    async def work(received: Received) -> None:
        config = SinkConfig(
            name="hook", kind=SinkKind.WEBHOOK, url=received.url, secret_file=str(secret), token_file=str(token)
        )
        assert await deliver(config) == (Answer.DELIVERED, "")
        ((headers, body),) = received.requests
        assert headers["Authorization"] == "Bearer tkn"
        time, _, _ = headers[SIGNATURE_HEADER].partition(",")
        from datetime import UTC, datetime

        at = datetime.fromtimestamp(int(time.removeprefix("t=")), UTC)
        assert headers[SIGNATURE_HEADER] == signature(b"key", body, at)
        assert [event["node"] for event in json.loads(body)["events"]] == ["n0", "n1", "n2"]

    with_receiver(work)


def test_a_secret_that_was_rotated_is_used_at_once(tmp_path: Path) -> None:
    token = tmp_path / "token"

    async def work(received: Received) -> None:
        config = SinkConfig(name="hook", kind=SinkKind.WEBHOOK, url=received.url, token_file=str(token))
        sink = HttpSink(config, SystemClock())
        for value in ("old", "new"):
            token.write_text(value)
            await sink.deliver(events(1))
        await sink.close()
        assert [headers["Authorization"] for headers, _ in received.requests] == ["Bearer old", "Bearer new"]

    with_receiver(work)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, Answer.DELIVERED),
        (204, Answer.DELIVERED),
        (302, Answer.AGAIN),
        (400, Answer.REFUSED),
        (401, Answer.AGAIN),
        (404, Answer.AGAIN),
        (413, Answer.REFUSED),
        (422, Answer.REFUSED),
        (429, Answer.AGAIN),
        (500, Answer.AGAIN),
        (503, Answer.AGAIN),
    ],
)
def test_what_an_answer_means(status: int, answer: Answer) -> None:
    async def work(received: Received) -> None:
        received.status = status
        found, why = await deliver(SinkConfig(name="hook", kind=SinkKind.WEBHOOK, url=received.url))
        assert found is answer
        assert bool(why) == (answer is not Answer.DELIVERED)
        assert len(received.requests) == 1, "a redirect must not be followed"

    with_receiver(work)


def test_nobody_there_and_a_missing_secret_are_tried_again_and_show_no_address(tmp_path: Path) -> None:
    async def work() -> None:
        closed = SinkConfig(name="s", kind=SinkKind.SLACK, url="http://127.0.0.1:9/T000/secret", timeout_s=2)
        answer, why = await deliver(closed)
        assert answer is Answer.AGAIN
        assert "secret" not in why
        assert "127.0.0.1" not in why
        missing = SinkConfig(name="s", kind=SinkKind.SLACK, url_file=str(tmp_path / "absent"))
        assert (await deliver(missing))[0] is Answer.AGAIN

    asyncio.run(work())


GOOD = """
cluster: east
sinks:
  - name: ops
    kind: slack
    urlFile: /etc/muster/slack-url
    only: {minWeight: warning, causes: [fault, repair]}
audit: {path: "-"}
"""


def test_a_configuration_is_read(tmp_path: Path) -> None:
    file = tmp_path / "outputs.yaml"
    file.write_text(GOOD)
    found = load(file)
    assert (found.cluster, [s.name for s in found.sinks]) == ("east", ["ops"])
    assert found.audit is not None


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (("kind: slack", "kind: pager"), "pager"),
        (("urlFile: /etc/muster/slack-url", "url: ftp://x"), "URL"),
        (("urlFile: /etc/muster/slack-url", "colour: red"), "colour"),
        (("    urlFile: /etc/muster/slack-url\n", ""), "url or urlFile"),
        (("name: ops", "name: Ops!"), "name"),
        (("minWeight: warning", "minWeight: loud"), "loud"),
        (('{path: "-"}', '{path: "-", keep: 0}'), "keep"),
        (("sinks:", "sinks: 3\nother:"), "sinks"),
    ],
)
def test_a_bad_configuration_is_one_sentence(tmp_path: Path, change: tuple[str, str], word: str) -> None:
    file = tmp_path / "outputs.yaml"
    file.write_text(GOOD.replace(*change))
    with pytest.raises(BadInputError) as caught:
        load(file)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_sinks_of_one_name_are_refused() -> None:
    sink = SinkConfig(name="a", kind=SinkKind.SLACK, url="http://x.example")
    with pytest.raises(BadInputError, match="name of its own"):
        check(OutputsConfig(sinks=(sink, sink)), "here")


@pytest.mark.parametrize(
    "url", ["http://user:pass@127.0.0.1:9/x", "http://a..b/x", "http://xn--/x", "http://[::1]:9/x"]
)
def test_no_address_makes_a_delivery_fail_otherwise(tmp_path: Path, url: str) -> None:
    (tmp_path / "url").write_text(url)
    (tmp_path / "token").write_text("t0ken")
    config = SinkConfig(
        name="x",
        kind=SinkKind.WEBHOOK,
        url_file=str(tmp_path / "url"),
        token_file=str(tmp_path / "token"),
        timeout_s=2,
    )
    answer, why = asyncio.run(deliver(config))
    assert answer is Answer.AGAIN
    assert "pass" not in why
    assert "127.0.0.1" not in why


def test_a_ca_file_that_is_missing_or_no_certificate_is_tried_again(tmp_path: Path) -> None:
    async def work(received: Received) -> None:
        ca = tmp_path / "ca.pem"
        sink = HttpSink(
            SinkConfig(name="x", kind=SinkKind.WEBHOOK, url=received.url, ca_file=str(ca)), SystemClock(), "east"
        )
        try:
            answer, why = await sink.deliver(events(1))
            assert answer is Answer.AGAIN
            assert str(ca) in why
            ca.write_text("no certificate")
            answer, why = await sink.deliver(events(1))
            assert answer is Answer.AGAIN
            assert str(ca) in why
            ca.write_text(CERTIFICATE)
            assert await sink.deliver(events(1)) == (Answer.DELIVERED, "")
        finally:
            await sink.close()

    with_receiver(work)


def test_credentials_do_not_stand_in_the_file_of_outputs() -> None:
    sink = SinkConfig(name="x", kind=SinkKind.WEBHOOK, url="https://user:hunter2@events.example.com/x")
    with pytest.raises(BadInputError) as caught:
        check(OutputsConfig(sinks=(sink,)), "outputs.yaml")
    assert "urlFile" in str(caught.value)
    assert "hunter2" not in str(caught.value)
