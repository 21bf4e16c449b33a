"""Runners carry out the runs of a round and say how each rank ended. What that means is decided by `measure`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from muster.certify.catalogue import CatalogueTest
from muster.certify.isolation.plan import PlannedRun
from muster.certify.measure import RankEnd
from muster.resources.certification import Pods


@dataclass(frozen=True)
class Owner:
    """The certification on whose behalf something runs. Another of the same name has another UID."""

    name: str
    uid: str


Waiting = Callable[[datetime | None], Awaitable[None]]
"""Called with the moment since which nothing runs because workers are waited for; with None when that is over."""


async def _nobody(_: datetime | None) -> None:
    return


@dataclass(frozen=True)
class Work:
    """One round to carry out."""

    owner: Owner
    runs: tuple[PlannedRun, ...]
    tests: Mapping[str, CatalogueTest]
    gpus: Mapping[str, int]
    """GPUs to take on each node."""
    until: datetime
    """When the certification's time is up: runs that have not ended by then are given up."""
    pods: Pods = field(default_factory=Pods)
    """What the certification asks of its pods."""
    wait_s: float | None = None
    """How long nothing may run because workers are waited for. That time comes on top of `until`; None: it does not,
    and only `until` limits it."""
    waiting: Waiting = _nobody


Tell = Callable[[str], Awaitable[None]]
"""Called with the reason why nothing goes on (one sentence), with an empty text when it goes on again."""


class Runner(Protocol):
    """What the certification controller asks of a runner."""

    async def carry_out(self, work: Work, blocked: Tell) -> Mapping[str, tuple[RankEnd, ...]]:
        """Run everything in parallel; how each run ended, its ranks in rank order. What runs already is adopted."""
        ...

    async def clean(self, owner: Owner, keep: frozenset[str], blocked: Tell) -> None:
        """End everything of certifications of this name but the runs `keep` of `owner`, and see it gone."""
        ...


class FleetRunner(Runner, Protocol):
    """What the certification controller asks of a runner that serves all certifications of a cluster."""

    async def run(self) -> None:
        """Watch for ever what runs in the cluster; must run beside everything else."""
        ...

    async def wait_synced(self) -> None:
        """Return when everything that runs is known."""
        ...

    def certifications(self) -> tuple[str, ...]:
        """Names of the certifications that something in the cluster still belongs to, sorted."""
        ...

    def nodes_of(self, certification: str) -> tuple[str, ...]:
        """Nodes that it still uses, sorted."""
        ...

    def forget(self, certification: str) -> None:
        """Nothing of the certification is under way here any more."""
        ...
