"""Whether the time of a maintenance leaves the availability sum of a node: one yes or no, five conditions. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from muster.operate.maintenance.scope import handed_back, problems
from muster.operate.maintenance.window import utc
from muster.resources.maintenance import Maintenance, NodeProgress

NOTICE_S = 14 * 24 * 3600
"""Two weeks between declaration and opening: what owners of work are commonly promised."""


@dataclass(frozen=True)
class Exclusion:
    """`excluded`: the window counts neither as up nor as down. Else all of it is charged, and `failed` says why."""

    excluded: bool
    failed: tuple[str, ...]
    opens_at: datetime
    closes_at: datetime


def exclusion(maintenance: Maintenance, node: str, notice_s: float = NOTICE_S) -> Exclusion:
    """The rule for `node`. An overrun charges the whole window, not its late part alone: the promise was not kept.

    The conditions: it was declared (and could be carried out), told `notice_s` before it opened, the node lay inside
    its scope, the work was handed back and the node passed its tests, and that by the stated close.
    """
    spec = maintenance.spec
    opens, closes = utc(spec.opens_at), utc(spec.closes_at)
    created = maintenance.metadata.creation_timestamp
    listed = next((n for n in maintenance.status.nodes if n.name == node), None)
    returned = listed is not None and listed.progress is NodeProgress.RETURNED
    failed = []
    if problems(spec) or spec.cancelled:
        failed.append("not declared")
    if created is None or utc(created) + timedelta(seconds=notice_s) > opens:
        failed.append("not announced in time")
    if listed is None:
        failed.append("outside the scope")
    if not (returned and handed_back(maintenance, node)):
        failed.append("not finished with validation")
    if listed is not None and returned and utc(listed.since) > closes:
        failed.append("finished after the stated close")
    return Exclusion(not failed, tuple(failed), opens, closes)
