"""Orders that cannot be given twice without harm, at services that know no idempotency key (BMCs, some clouds).

After a crash nobody knows whether the order was taken. A second reboot on top of a good one is worse than waiting, so
it is given again only when the node shows that the first had no effect: still Ready, with the old boot ID, after
RESEND_S.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from muster.moments import after
from muster.operate.providers.provider import NodeFactsForRepair
from muster.resources.repair import Repair, RepairPhase

RESEND_S = 300.0
"""A node that took the order has stopped being Ready long before (the lease of a kubelet runs out after 40 s)."""


class Order(StrEnum):
    GIVE = "give"
    WAIT = "wait"
    TAKEN = "taken"
    """The node has booted since."""


class OnceGuard:
    """What this process knows of the orders that it gave."""

    def __init__(self) -> None:
        self._not_given: set[str] = set()
        self._given: dict[str, datetime] = {}

    def may_give(self, repair: Repair, node: NodeFactsForRepair, now: datetime) -> Order:
        """Whether the order may be given now. Whoever gives it says so with `giving` just before."""
        name = repair.metadata.name
        if node.booted_since(repair):
            return Order.TAKEN
        if repair.status.phase is RepairPhase.PENDING or name in self._not_given:
            self._not_given.add(name)
            return Order.GIVE
        since = self._given.get(name) or repair.status.started_at or now
        if node.ready and now >= after(since, RESEND_S):
            return Order.GIVE
        return Order.WAIT

    def surely_not_given(self, repair: Repair) -> bool:
        """Whether this process began the repair and knows that no order went out."""
        return repair.metadata.name in self._not_given

    def giving(self, repair: Repair, now: datetime) -> None:
        """From here on it may have been taken."""
        self._not_given.discard(repair.metadata.name)
        self._given[repair.metadata.name] = now

    def refused(self, repair: Repair) -> None:
        """An answer said that it was not taken: it may be given again at once."""
        self._not_given.add(repair.metadata.name)
        self._given.pop(repair.metadata.name, None)

    def forget(self, repair: Repair) -> None:
        """It is over."""
        self._not_given.discard(repair.metadata.name)
        self._given.pop(repair.metadata.name, None)


UNKNOWN = "It is not known whether the order was taken; waits for the node to show it."
