"""Telling of what was decided: log lines, Events, figures, the audit log."""

from __future__ import annotations

from collections.abc import Callable

from muster.kube.events import EventKind, EventRecorder, node_reference
from muster.operate.carry_out import Writer
from muster.operate.figures import ended_attempts
from muster.operate.model import Decision, NodeView, Note
from muster.operate.people import HOLD
from muster.operate.views import NodeRecord
from muster.plain_text import printable
from muster.resources.node_health import CauseKind, Lifecycle, Transition
from muster.telemetry.observer import NEW, ControllerObserver

OnTransitions = Callable[[NodeRecord | None, str, Lifecycle, tuple[Transition, ...]], None]


class Announcer:
    """`tell` receives one line for each transition, `on_transitions` what was written, see `NodeController`."""

    def __init__(
        self,
        tell: Callable[[str], None],
        events: EventRecorder,
        observer: ControllerObserver,
        writer: Writer,
        on_transitions: OnTransitions | None,
    ) -> None:
        self._tell = tell
        self._events = events
        self._observer = observer
        self._writer = writer
        self._on_transitions = on_transitions

    def decided(self, record: NodeRecord, view: NodeView, decision: Decision) -> None:
        """A decision was written."""
        self.stepped(record, view.name, view.lifecycle, decision.lifecycle, decision.transitions)
        self._people(view, decision)
        for attempt in ended_attempts(view.lifecycle, decision.lifecycle):
            self._observer.repair_ended(attempt.rung, attempt.outcome)

    def stepped(
        self,
        record: NodeRecord | None,
        name: str,
        before: Lifecycle | None,
        after: Lifecycle,
        transitions: tuple[Transition, ...],
    ) -> None:
        """Steps of the lifecycle were written; `record` is None for a node that left."""
        if self._on_transitions is not None and transitions:
            self._on_transitions(record, name, after, transitions)
        state = before.state.value if before is not None else "(new)"
        for entry in transitions:
            known = NEW if before is None and entry is transitions[0] else state
            self._observer.transition(known, entry.state.value, entry.cause.kind.value)
            self._tell(
                f"{entry.at:%Y-%m-%dT%H:%M:%SZ} node {name}: {state} -> {entry.state.value} "
                f"({entry.cause.kind.value}: {printable(entry.cause.message or entry.cause.name)})"
            )
            state = entry.state.value

    def note(self, name: str, note: Note) -> None:
        """Make it an Event about the node."""
        if note.reason == "WorkBeforeHold":
            self._observer.slipped()
        kind = EventKind.WARNING if note.warning else EventKind.NORMAL
        self._events.record(node_reference(name), note.reason, "Lifecycle", printable(note.message), kind)

    def _people(self, view: NodeView, decision: Decision) -> None:
        """A person's decision or hold was acted on."""
        life = decision.lifecycle
        episode = life.episode.id if life.episode else ""
        target = f"NodeHealth/{view.name}"
        said = view.spec.decision
        before = view.lifecycle.decision_seen if view.lifecycle is not None else ""
        if said is not None and life.decision_seen == said.id != before:
            message = f"{said.verb.value}: {said.reason}"[:400] if said.reason else said.verb.value
            by = said.by[:80]
            self._writer.tell("decision", target, node=view.name, episode=episode, message=message, actor=by)
        hold = view.spec.hold
        held = any(t.cause.kind is CauseKind.PERSON and t.cause.name == HOLD for t in decision.transitions)
        if hold is not None and held:
            message, by = f"hold: {hold.reason}"[:400], hold.by[:80]
            self._writer.tell("decision", target, node=view.name, episode=episode, message=message, actor=by)
