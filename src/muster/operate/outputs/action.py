"""One thing that was done, by whom, to what: the value of the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Result(StrEnum):
    """How an action ended."""

    DONE = "done"
    REFUSED = "refused"
    """The other side understood and said no: a PodDisruptionBudget, a provider, a missing right."""
    FAILED = "failed"
    """It did not take effect, or nobody knows whether it did."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """`actor` is a person as named in a decision, or the identity of the controller; `on_behalf` who asked for it.

    `action` is a word of a small vocabulary (`hold`, `release`, `cordon`, `uncordon`, `evict`, `delete-pod`,
    `checkpoint`, `decision`, `repair-created`, `repair-begun`, `repair-ended`, `repair-cancelled`,
    `maintenance-...`). `target` is the object as `kind/name` or `kind/namespace/name`.
    """

    at: datetime
    actor: str
    action: str
    target: str
    result: Result
    node: str = ""
    episode: str = ""
    on_behalf: str = ""
    message: str = ""
