"""What correlation sees and says. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from muster.resources.fault import Fault
from muster.resources.fault_policy import Disposition

AGENT_CHANGE = "agent.version"
"""Name of the change of the agent itself: what a new agent finds says something about the agent first."""
AGENT_REACH_S = 1800
"""What a new agent reports so soon may come from the agent."""


@dataclass(frozen=True)
class Change:
    """Something that changed on one node: a reading of the fingerprint, the agent's version, the recipe."""

    name: str
    before: str
    """Empty: not known."""
    after: str
    at: datetime
    rollout: str = ""
    """The name under which the waves know it (the cause of the drift); empty: they do not."""

    @property
    def key(self) -> str:
        """Equal on every node that the same change reached."""
        return f"{self.name}={self.after or 'absent'}"

    def words(self) -> str:
        return f"{self.name} {self.before} -> {self.after}" if self.before else f"{self.name} {self.after}"


@dataclass(frozen=True)
class FleetNode:
    """A node among which findings are compared, with or without a finding."""

    labels: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    """What changed on it lately."""


@dataclass(frozen=True)
class NodeFinding:
    """One open fault on one node."""

    node: str
    at: datetime
    """When it was first told of. A log line may be older: an agent that starts reads back to the boot."""
    fault: Fault

    @property
    def kind(self) -> str:
        return f"{self.fault.check}/{self.fault.code}"


@dataclass(frozen=True)
class Correlated:
    """Why automation holds back for a finding on a node: many nodes have it."""

    correlation: str
    """Name of the correlation."""
    group: str
    """The domain, pool or cluster in which it is seen."""
    kind: str
    """`xid/79`, or `any` for whatever a new agent reports."""
    nodes: tuple[str, ...]
    """The nodes that have it, sorted."""
    since: datetime
    change: str
    """What they share and others lack, with counts; empty when nothing stands out."""
    disposition: Disposition
    """The most that rules may do for it."""
    message: str


@dataclass(frozen=True)
class Correlations:
    """The verdict over the fleet."""

    by_node: Mapping[str, Mapping[str, Correlated]] = field(default_factory=dict)
    """Node -> fault key or kind -> why it is held back."""
    halted: Mapping[str, str] = field(default_factory=dict)
    """Roll-out (as the waves name it) -> why it must not go on."""

    def of(self, node: str) -> Mapping[str, Correlated]:
        return self.by_node.get(node, {})

    def all(self) -> tuple[Correlated, ...]:
        """Each correlation that holds, once, sorted."""
        found = {(c.correlation, c.group, c.kind): c for own in self.by_node.values() for c in own.values()}
        return tuple(found[key] for key in sorted(found))


NOTHING = Correlations()
