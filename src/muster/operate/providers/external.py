"""Provider `external`: somebody else's controller carries out its Repairs. See docs/how-to/repairs.md."""

from __future__ import annotations

from muster.operate.providers.config import ExternalSettings
from muster.operate.providers.provider import NodeFactsForRepair, PermanentProviderError, Progress, chosen
from muster.resources.repair import Repair, Rung


class ExternalProvider:
    """Does nothing itself.

    The repair controller refuses for it what must not begin (another node, cancelled, not taken up in time), all of
    it only while the phase is `Pending`; from `Running` on the Repair is the other controller's alone.
    """

    delegated = True

    def __init__(self, settings: ExternalSettings) -> None:
        self.name = settings.name
        self.rungs = chosen(settings.rungs, frozenset(Rung))

    async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:  # noqa: ARG002 - the contract
        raise PermanentProviderError(f"Repairs of {self.name} are carried out by another controller.")

    look = begin
    cancel = begin

    async def close(self) -> None:
        return
