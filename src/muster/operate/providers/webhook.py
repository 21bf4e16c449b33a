"""Provider `webhook`: posts the Repair to a URL, signed, and follows what the service answers.

The service may be asked several times for one Repair: the header Idempotency-Key is the same each time, and it does
the work once. Answers are JSON `{"phase", "message", "externalId", "poll"}`; 204 means Done, 202 without a phase
Running. A service without `poll` reports by patching the status of the Repair itself.
"""

from __future__ import annotations

from typing import Any

import msgspec

from muster.clock import Clock
from muster.operate.outputs.encode import SIGNATURE_HEADER, signature
from muster.operate.providers.config import WebhookSettings
from muster.operate.providers.http import Answer, HttpClient, refuse, same_origin
from muster.operate.providers.provider import NodeFactsForRepair, PermanentProviderError, Progress, chosen
from muster.operate.providers.secret_files import read_secret
from muster.plain_text import plain
from muster.resources.base import API_VERSION, Model, to_object
from muster.resources.repair import Repair, RepairPhase, Rung

KEY_HEADER = "Idempotency-Key"
ID_LIMIT, URL_LIMIT = 128, 1024


class Reply(Model, frozen=True, kw_only=True):
    """What a service answers."""

    phase: RepairPhase | None = None
    message: str = ""
    external_id: str = ""
    poll: str = ""


class WebhookProvider:
    """Any rung. See `WebhookSettings`."""

    def __init__(self, settings: WebhookSettings, clock: Clock) -> None:
        self.name = settings.name
        self.rungs = chosen(settings.rungs, frozenset(Rung))
        self._settings = settings
        self._clock = clock
        self._http = HttpClient(ca_file=settings.ca_file, limit_s=settings.request_limit_s)

    async def close(self) -> None:
        await self._http.close()

    async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        answer = await self._post("begin", repair, node)
        refuse(answer, f"The service of {self.name}")
        return self._progress(repair, answer)

    async def look(self, repair: Repair, node: NodeFactsForRepair) -> Progress:  # noqa: ARG002 - the contract
        _, _, poll = repair.status.external_id.partition(" ")
        if not poll:
            text = "Waits until the service reports in the status of the Repair."
            return Progress(phase=RepairPhase.RUNNING, message=text, retry_after_s=self._settings.poll_s)
        url = same_origin(self._settings.url, poll)
        answer = await self._http.send("GET", url, headers=self._signed(b"", repair))
        refuse(answer, f"The service of {self.name}")
        return self._progress(repair, answer)

    async def cancel(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        """Ask the service; one that cannot (404, 405, 501) is followed to its end."""
        answer = await self._post("cancel", repair, node)
        if answer.status in (404, 405, 501):
            return await self.look(repair, node)
        refuse(answer, f"The service of {self.name}")
        return self._progress(repair, answer)

    async def _post(self, action: str, repair: Repair, node: NodeFactsForRepair) -> Answer:
        body = msgspec.json.encode(
            {
                "apiVersion": API_VERSION,
                "action": action,
                "repair": to_object(repair),
                "node": {
                    "name": node.name,
                    "uid": node.uid,
                    "providerID": node.provider_id,
                    "bootID": node.boot_id,
                    "labels": dict(node.labels),
                },
            }
        )
        headers = self._signed(body, repair) | {"Content-Type": "application/json"}
        return await self._http.send("POST", self._settings.url, headers=headers, body=body)

    def _signed(self, body: bytes, repair: Repair) -> dict[str, str]:
        secret = read_secret(self._settings.secret_file, "key of the signature")
        return {
            SIGNATURE_HEADER: signature(secret.encode(), body, self._clock.now()),
            KEY_HEADER: repair.metadata.name,
        }

    def _progress(self, repair: Repair, answer: Answer) -> Progress:
        reply = _reply(answer.json(), self.name)
        phase = reply.phase or (RepairPhase.DONE if answer.status == 204 else RepairPhase.RUNNING)
        if phase is RepairPhase.PENDING:
            phase = RepairPhase.RUNNING
        old_id, _, old_poll = repair.status.external_id.partition(" ")
        own = plain(reply.external_id, ID_LIMIT).replace(" ", "_") or old_id or repair.metadata.name
        poll = same_origin(self._settings.url, reply.poll) if reply.poll else old_poll
        if len(poll) > URL_LIMIT:
            raise PermanentProviderError(f"The service of {self.name} gave a poll URL of {len(poll)} characters.")
        return Progress(
            phase=phase,
            external_id=f"{own} {poll}" if poll and phase is RepairPhase.RUNNING else own,
            message=reply.message,
            retry_after_s=answer.retry_after_s or self._settings.poll_s,
        )


def _reply(value: dict[str, Any], name: str) -> Reply:
    try:
        return msgspec.convert(value, Reply)
    except msgspec.ValidationError as error:
        text = f"The service of {name} answered with something else than phase, message, externalId, poll: {error}."
        raise PermanentProviderError(text) from error
