"""Provider `ticket`: files a ticket through a webhook, or, where there is none, tells people to file one."""

from __future__ import annotations

from muster.clock import Clock
from muster.operate.providers.config import TicketSettings, WebhookSettings
from muster.operate.providers.provider import NodeFactsForRepair, PermanentProviderError, Progress, chosen
from muster.operate.providers.webhook import WebhookProvider
from muster.resources.repair import Repair, RepairPhase, Rung


class TicketProvider:
    """The rung `ticket`. It is done when the ticket is filed; whether it helped is seen on the node."""

    def __init__(self, settings: TicketSettings, clock: Clock) -> None:
        self.name = settings.name
        self.rungs = chosen(settings.rungs, frozenset({Rung.TICKET}))
        self._webhook: WebhookProvider | None = None
        if settings.url:
            same = WebhookSettings(
                name=settings.name,
                url=settings.url,
                secret_file=settings.secret_file,
                ca_file=settings.ca_file,
                request_limit_s=settings.request_limit_s,
            )
            self._webhook = WebhookProvider(same, clock)

    async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        if self._webhook is None:
            text = f"No ticket system is configured: file a ticket for {node.name}. {repair.spec.reason}"
            return Progress(phase=RepairPhase.DONE, external_id="none", message=text.strip())
        return _filed(await self._webhook.begin(repair, node), repair)

    async def look(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        if self._webhook is None:
            return await self.begin(repair, node)
        return _filed(await self._webhook.look(repair, node), repair)

    async def cancel(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        if self._webhook is None:
            return Progress(phase=RepairPhase.CANCELLED, message="Nothing was filed.")
        return await self._webhook.cancel(repair, node)

    async def close(self) -> None:
        if self._webhook is not None:
            await self._webhook.close()


def _filed(progress: Progress, repair: Repair) -> Progress:
    """A number is all that is waited for."""
    if progress.phase in (RepairPhase.FAILED, RepairPhase.CANCELLED):
        return progress
    number, _, poll = progress.external_id.partition(" ")
    if number and number != repair.metadata.name:
        text = progress.message or f"Ticket {number} was filed."
        return Progress(phase=RepairPhase.DONE, external_id=number, message=text)
    if progress.phase is RepairPhase.DONE or not poll:
        raise PermanentProviderError("The ticket service answered without externalId, the number of the ticket.")
    return progress
