"""Runners carry out the runs of a round and say how each rank ended. What that means is decided by `measure`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from muster.certify.catalogue import CatalogueTest
from muster.certify.isolation.plan import PlannedRun
from muster.certify.measure import RankEnd


@dataclass(frozen=True)
class Owner:
    """The certification on whose behalf something runs. Another of the same name has another UID."""

    name: str
    uid: str


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
