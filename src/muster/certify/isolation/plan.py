"""What isolation is asked to do, what it asks for, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from muster.certify.catalogue import CatalogueTest, Scope
from muster.resources.base import Model
from muster.resources.certification import CertificationBudget, Cost, LinkResult, NodeResult, Reason

ROUND_OVERHEAD_S = 30.0
"""Nominal time of a round beside the test itself: creating pods, starting them, seeing them gone."""

WITHDRAWN = "withdrawn"
"""`RunRecord.test` of the entry that takes a node out of a certification (it vanished, rebooted, changed)."""


class Role(StrEnum):
    """Why a run is made."""

    LOCAL = "local"
    SCREEN = "screen"
    """A pair that has not been looked at yet."""
    PARTNER = "partner"
    """A suspect with a partner that is proven good."""
    RERUN = "rerun"
    """A failed pair whose ends pass elsewhere, again."""
    SHARED = "shared"
    """Another pair over the same trunk, or out of the same domain, as one that failed."""
    CONFIRM = "confirm"
    """Everything that is good so far, together."""
    SPLIT = "split"
    CANDIDATE = "candidate"
    """A pair that may hold the bad link of a failed group."""
    SCALE = "scale"
    """A node that may fail only in large groups, among proven fillers."""
    CONTROL = "control"
    LAYER = "layer"
    """The same over fewer layers: with NVLink off, or over one NIC at a time."""


class Member(Model, frozen=True, kw_only=True):
    """A node that takes part."""

    name: str
    domain: str = ""
    """Failure domain (NVLink domain, rack, block); empty when unknown."""
    identity: str = ""
    """Digest over UID, boot ID and fingerprint when the certification started; a change takes the node out."""


class Cell(Model, frozen=True, kw_only=True):
    """Nodes of one architecture: only equals are compared and combined."""

    product: str = ""
    platform: str = ""
    gpus: int = 0
    targets: tuple[Member, ...]
    partners: tuple[Member, ...] = ()
    rails: int = 0
    """NICs per node that a rail test can take one at a time; 0: as many as GPUs."""


class UntestedNode(Model, frozen=True, kw_only=True):
    name: str
    reason: Reason
    message: str


class Plan(Model, frozen=True, kw_only=True):
    """Everything that determines the course of a certification together with the outcomes of its runs."""

    seed: int = 0
    tests: tuple[CatalogueTest, ...]
    matchings: int = 1
    weakest_rate: float = 0.8
    expected_transport: str = ""
    """Transport that runs over several nodes must use; empty: any."""
    floors: dict[str, float] = {}
    """Least values by test that replace the shipped ones."""
    budget: CertificationBudget = CertificationBudget()
    cells: tuple[Cell, ...]
    untested: tuple[UntestedNode, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about what cannot come out of it, known before anything runs."""

    def local_tests(self) -> tuple[CatalogueTest, ...]:
        return tuple(t for t in self.tests if t.scope is Scope.NODE)

    def pair_test(self) -> CatalogueTest | None:
        return next((t for t in self.tests if t.scope is Scope.PAIR and not t.variant_of), None)

    def group_tests(self) -> tuple[CatalogueTest, ...]:
        return tuple(t for t in self.tests if t.scope is Scope.GROUP and not t.variant_of)

    def variant_of(self, test: str, variant: str) -> CatalogueTest | None:
        """The same measurement over fewer layers (`net`, `rail`), if the plan has it."""
        return next((t for t in self.tests if t.variant_of == test and t.variant == variant), None)

    def test(self, name: str) -> CatalogueTest:
        return next(t for t in self.tests if t.name == name)


@dataclass(frozen=True)
class Request:
    """A run that a cell wants in the next round; it gets its ID when the cells are put together."""

    test: str
    nodes: tuple[str, ...]
    role: Role
    variant: str = ""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a round; `nodes` in rank order."""

    id: str
    round: int
    test: str
    nodes: tuple[str, ...]
    role: Role
    cell: int
    variant: str = ""
    """What of the test is run, for example `rail=3`; empty for the whole."""


@dataclass(frozen=True)
class Round:
    """Runs that share no node and go in parallel. `minutes` is the nominal wall time."""

    number: int
    runs: tuple[PlannedRun, ...]
    minutes: float


@dataclass(frozen=True)
class Verdicts:
    """The end: a verdict for every target, bad links, and what could not be put down to anything."""

    nodes: tuple[NodeResult, ...]
    links: tuple[LinkResult, ...]
    unresolved: tuple[str, ...]
    """Sentences about failures that were not narrowed to a node or link. Not empty: the certification failed."""
    notes: tuple[str, ...]
    """Sentences that change no verdict: a borrowed partner that failed, a spent budget, flakes."""
    cost: Cost
