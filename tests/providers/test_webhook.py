"""Providers `webhook` and `ticket` against a local service."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp import web

from muster.kube.api import REPAIRS, PatchType
from muster.operate.outputs.encode import SIGNATURE_HEADER, signature
from muster.operate.providers.config import TicketSettings, WebhookSettings
from muster.operate.providers.provider import Provider
from muster.operate.providers.ticket import TicketProvider
from muster.operate.providers.webhook import WebhookProvider
from muster.resources.repair import RepairPhase, Rung
from muster.sim.virtual import VirtualClock, run_virtual
from tests.providers.bed import Bed, bed, running
from tests.providers.contract import Bench, ProviderContract
from tests.providers.local_http import LocalServer

KEY = "correct horse"


class ServiceBench(Bench):
    rung: ClassVar[Rung] = Rung.POWER_CYCLE
    stops: ClassVar[bool] = True
    poll: ClassVar[bool] = True

    async def start(self) -> None:
        self._made = tempfile.TemporaryDirectory()
        self.folder = Path(self._made.name)
        (self.folder / "key").write_text(KEY + "\n")
        self.since: dict[str, datetime] = {}
        self.stopped: list[str] = []
        self.unsigned = 0
        self.server = LocalServer(self.answer)
        await self.server.start()

    async def close(self) -> None:
        await self.server.close()
        self._made.cleanup()

    def provider(self) -> Provider:
        return WebhookProvider(
            WebhookSettings(name="p", url=f"{self.server.url}/repairs", secret_file=str(self.folder / "key")),
            self.bed.clock,
        )

    def break_next(self, times: int, how: str) -> None:
        self.server.left, self.server.how = times, how

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        time, _, _ = request.headers[SIGNATURE_HEADER].removeprefix("t=").partition(",")
        at = datetime.fromtimestamp(int(time), UTC)
        if request.headers[SIGNATURE_HEADER] != signature(KEY.encode(), body, at):
            self.unsigned += 1
            return web.Response(status=401)
        key = request.headers["Idempotency-Key"]
        if request.method == "POST" and json.loads(body)["action"] == "cancel":
            self.stopped.append(key)
            return web.json_response({"phase": "Cancelled", "message": "Stopped."})
        if request.method == "POST":
            if key not in self.since:
                self.since[key] = self.bed.clock.now()
                self.works.append(key)
            return web.json_response(self.reply(key), status=202)
        return web.json_response(self.reply(key))

    def reply(self, key: str) -> dict[str, Any]:
        told: dict[str, Any] = {"externalId": f"OP-{self.works.index(key) + 1}", "poll": f"/repairs/{key}"}
        age_s = (self.bed.clock.now() - self.since[key]).total_seconds()
        if self.ok is None or age_s < 30:
            return told
        return {**told, "phase": "Done" if self.ok else "Failed", "message": "cycled" if self.ok else "fuse blew"}


class TestWebhook(ProviderContract):
    bench = ServiceBench


class TicketBench(ServiceBench):
    rung = Rung.TICKET

    def provider(self) -> Provider:
        return TicketProvider(
            TicketSettings(name="p", url=f"{self.server.url}/tickets", secret_file=str(self.folder / "key")),
            self.bed.clock,
        )

    def reply(self, key: str) -> dict[str, Any]:
        told = super().reply(key)
        return told if "phase" in told else {"poll": told["poll"]}


class TestTicket(ProviderContract):
    bench = TicketBench


def play(act: Any) -> None:
    async def main(clock: VirtualClock) -> None:
        behind = ServiceBench(await bed(clock))
        await behind.start()
        try:
            await act(behind, behind.bed)
        finally:
            await behind.close()

    run_virtual(main)


def test_the_number_of_the_operation_stands_in_the_status() -> None:
    async def act(b: ServiceBench, on: Bed) -> None:
        await on.ask("r1", "p", Rung.REPLACE)
        async with running(on.controller([b.provider()]).run()):
            done = await on.ended("r1")
        assert (done.status.external_id, done.status.message) == ("OP-1", "cycled")
        assert b.unsigned == 0

    play(act)


def test_a_service_without_poll_reports_in_the_status() -> None:
    async def act(b: ServiceBench, on: Bed) -> None:
        b.reply = lambda key: {"externalId": "OP-9"}  # type: ignore[method-assign]
        await on.ask("r1", "p", Rung.REBOOT)
        async with running(on.controller([b.provider()]).run()):
            await on.clock.sleep(60)
            found = await on.repair("r1")
            assert (found.status.phase, found.status.external_id) == (RepairPhase.RUNNING, "OP-9")
            status = {"status": {"phase": "Done", "message": "by the night shift"}}
            await on.api.patch(REPAIRS, "r1", status, PatchType.MERGE, subresource="status")
            await on.clock.sleep(60)
        assert (await on.repair("r1")).status.message == "by the night shift"

    play(act)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"poll": "https://elsewhere.example/x"}, "another host"),
        ({"phase": "Perhaps"}, "something else"),
        ({"poll": "/" + "x" * 2000}, "characters"),
        ({"phase": "Failed", "message": "evil\x1b[2J\nwords"}, "evil"),
    ],
)
def test_hostile_answers_end_the_repair_with_a_sentence(reply: dict[str, Any], said: str) -> None:
    async def act(b: ServiceBench, on: Bed) -> None:
        b.reply = lambda key: reply  # type: ignore[method-assign]
        await on.ask("r1", "p", Rung.REBOOT)
        async with running(on.controller([b.provider()]).run()):
            done = await on.ended("r1", 60)
        assert done.status.phase is RepairPhase.FAILED
        assert said in done.status.message
        assert done.status.message.isprintable()

    play(act)


def test_without_a_ticket_system_people_are_told() -> None:
    async def act(b: ServiceBench, on: Bed) -> None:
        await on.ask("r1", "p", Rung.TICKET, reason="xid/79 on GPU 3 came back after a power-cycle")
        async with running(on.controller([TicketProvider(TicketSettings(name="p"), on.clock)]).run()):
            done = await on.ended("r1", 60)
            await on.clock.sleep(5)
        assert done.status.phase is RepairPhase.DONE
        assert "xid/79 on GPU 3" in done.status.message
        notes = [event["note"] for event in await on.events()]
        assert any("file a ticket for gpu-001" in note for note in notes)

    play(act)


def test_a_missing_key_is_waited_for_and_named() -> None:
    async def act(b: ServiceBench, on: Bed) -> None:
        (b.folder / "key").unlink()
        await on.ask("r1", "p", Rung.REBOOT)
        async with running(on.controller([b.provider()]).run()):
            await on.clock.sleep(20)
            assert "key of the signature" in (await on.repair("r1")).status.message
            (b.folder / "key").write_text(KEY)
            done = await on.ended("r1")
        assert done.status.phase is RepairPhase.DONE

    play(act)
