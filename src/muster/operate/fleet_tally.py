"""What the node controller counts over the whole fleet: members, disruptions, kinds of open findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from muster.operate.budget import Disruption, Member, Usage
from muster.operate.coverage import Standard
from muster.operate.fleet_plan import FleetPlan
from muster.operate.fleet_usage import disruptions_of
from muster.operate.model import FleetView, NodeView
from muster.resources.node_health import Lifecycle


class FleetTally:
    """Kept up to date node by node; what it costs to ask does not grow with what has not changed."""

    def __init__(self) -> None:
        self._disruptions: dict[str, tuple[Disruption, ...]] = {}
        self._members: dict[str, Member] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._usage: Usage | None = None
        self._kinds: Counter[str] = Counter()
        self._kinds_of: dict[str, tuple[str, ...]] = {}

    @property
    def usage(self) -> Usage:
        """How much of the fleet is out of service."""
        if self._usage is None:
            self._usage = Usage(
                members=tuple(self._members[name] for name in sorted(self._members)),
                disruptions=tuple(d for name in sorted(self._disruptions) for d in self._disruptions[name]),
            )
        return self._usage

    def view(self, plan: FleetPlan, compared_at: datetime, standard: Standard, *, demand: bool) -> FleetView:
        """What a decision needs to know of the other nodes."""
        return FleetView(
            usage=self.usage,
            wave=plan.wave,
            batch_waits=plan.batches.waits,
            labels=self._labels,
            correlations=plan.correlations,
            compared_at=compared_at,
            kinds=self._kinds,
            standard=standard,
            demand=demand,
        )

    def count(self, view: NodeView, life: Lifecycle | None) -> None:
        """Keep the usage of the budget up to date with what is known about one node, whose lifecycle is `life`."""
        self._count_kinds(view)
        disruptions = disruptions_of(view.member, life) if life is not None else ()
        self._labels[view.name] = view.labels
        if self._members.get(view.name) != view.member or self._disruptions.get(view.name, ()) != disruptions:
            self._members[view.name] = view.member
            self._disruptions.pop(view.name, None)
            if disruptions:
                self._disruptions[view.name] = disruptions
            self._usage = None

    def _count_kinds(self, view: NodeView) -> None:
        """Keep count of which kinds of findings are open on how many nodes."""
        seen = view.observed
        faults = seen.faults if seen is not None and seen.node_uid == view.uid else ()
        kinds = tuple(sorted({f"{f.check}/{f.code}" for f in faults}))
        before = self._kinds_of.get(view.name, ())
        if kinds != before:
            self._kinds.subtract(before)
            self._kinds.update(kinds)
            self._kinds_of[view.name] = kinds

    def forget(self, name: str) -> None:
        """The node is gone."""
        self._kinds.subtract(self._kinds_of.pop(name, ()))
        self._labels.pop(name, None)
        if self._members.pop(name, None) is not None:
            self._disruptions.pop(name, None)
            self._usage = None
