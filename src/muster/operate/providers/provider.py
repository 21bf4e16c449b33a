"""The contract of a repair provider, and what it may know of the node.

A provider is asked, never told twice to be sure: `begin` may be called again after any crash and must find its own
earlier work, by the name of the Repair. `look` and `cancel` are asked again until they give a phase that is final.
Nobody reads `Done` as proof; the node itself shows whether the repair helped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from muster.errors import MusterError
from muster.resources.repair import Repair, RepairPhase, Rung

FINAL = (RepairPhase.DONE, RepairPhase.FAILED, RepairPhase.CANCELLED)
"""Phases that a Repair never leaves."""

ENTRY_POINTS = "muster.providers"
"""Group of entry points under which third parties offer kinds of providers."""


@dataclass(frozen=True, kw_only=True)
class NodeFactsForRepair:
    """The node as the API server shows it now. `present` is False when there is no Node of that name."""

    name: str
    uid: str = ""
    present: bool = True
    provider_id: str = ""
    """`spec.providerID`: how the cloud names the machine."""
    boot_id: str = ""
    """`status.nodeInfo.bootID`, as the kubelet reported it last."""
    ready: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def booted_since(self, repair: Repair) -> bool:
        """Whether the node is known to have booted after the Repair was asked for."""
        before = repair.spec.boot_id_before
        return bool(before and self.boot_id) and self.boot_id != before


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a repair is.

    `PENDING` means: not begun, or not known whether it was; `begin` is asked again. `RUNNING`: `look` comes next.
    `external_id` is kept in the status and comes back with the Repair; empty leaves what is there.
    """

    phase: RepairPhase
    external_id: str = ""
    message: str = ""
    """One sentence for people."""
    retry_after_s: float | None = None
    """When to ask again; None: at the usual interval."""


class TransientProviderError(MusterError):
    """Throttling, 5xx, no answer: it is tried again with backoff until the time limit of the repair."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class PermanentProviderError(MusterError):
    """It will not work however often it is tried. The repair fails at once with this sentence."""


class Provider(Protocol):
    """Carries out repairs. Every method may raise TransientProviderError or PermanentProviderError."""

    @property
    def name(self) -> str:
        """What stands in `spec.provider` of a Repair."""
        ...

    @property
    def rungs(self) -> frozenset[Rung]:
        """The rungs that it can carry out; others are refused before anything is done."""
        ...

    async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        """Start the work, once for each name of a Repair.

        `repair.status.phase` is `PENDING` at the very first call. `RUNNING` says that an earlier call may have taken
        effect although nobody wrote its answer down.
        """
        ...

    async def look(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        """How far it is. Changes something only where a repair has several steps."""
        ...

    async def cancel(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
        """Stop it and undo what is half done, as far as that can be.

        `CANCELLED`: nothing more happens. `RUNNING`: it cannot be stopped, or stopping takes its time; asked again.
        """
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...


@runtime_checkable
class Tidies(Protocol):
    """A provider that changes something beside the machine and must give it back whatever happened to the Repair."""

    async def tidy(self, running: Sequence[Repair]) -> None:
        """Undo what is left of Repairs other than `running`: those ended, or are gone. Called now and then."""
        ...


@runtime_checkable
class Delegated(Protocol):
    """A provider whose Repairs somebody else's controller carries out: they are neither begun nor followed here."""

    delegated: bool


def chosen(rungs: tuple[Rung, ...], able: frozenset[Rung]) -> frozenset[Rung]:
    """The rungs of a provider: those chosen, of those that the kind can do. All when none is chosen."""
    return able & frozenset(rungs) if rungs else able
