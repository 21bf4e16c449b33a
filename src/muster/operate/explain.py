"""Why is this node in this state, on what evidence, what happens next, and who can change it. Pure.

The explanation is built from the resources alone, so that the command line, the demo and its report tell the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from muster.operate.phrases import counted, duration, moment
from muster.plain_text import plain
from muster.resources.certification import Certification, NodeResult, NodeVerdict, Outcome, RunRecord
from muster.resources.fault import Fault
from muster.resources.node_health import Certificate, Lifecycle, NodeHealth, RungAttempt, Standing, State
from muster.resources.repair import Repair

MAX_RUNS_SHOWN = 8
HISTORY_SHOWN = 12


@dataclass(frozen=True)
class Evidence:
    """One piece of evidence. `kind` is `fault`, `verdict`, `run`, `link`, `repair` or `monitor`; `source` says where
    it can be looked up (fault key, run ID, name of a resource)."""

    kind: str
    source: str
    text: str


@dataclass(frozen=True)
class Step:
    """One entry of the history, oldest first. `lasted_s` counts to the next entry, or to now."""

    at: datetime
    state: str
    cause: str
    lasted_s: float
    episode: str = ""


@dataclass(frozen=True)
class Explanation:
    """All sentences are plain text on one line. `since` is None while no controller has seen the node."""

    node: str
    state: str
    since: datetime | None
    held: bool
    headline: str
    why: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    waits_for: tuple[str, ...]
    next: str
    who: tuple[str, ...]
    history: tuple[Step, ...]
    ticket: str = ""


def explain(
    health: NodeHealth,
    certifications: Sequence[Certification] = (),
    repairs: Sequence[Repair] = (),
    *,
    now: datetime,
) -> Explanation:
    """Explain one node. `certifications` and `repairs` may hold others than this node's; those are left out."""
    name = health.metadata.name
    life = health.status.lifecycle
    if life is None:
        return Explanation(
            node=name,
            state="unknown",
            since=None,
            held=False,
            headline=f"{name} has not been looked at by a controller yet.",
            why=("No controller has written its lifecycle; is 'muster controller run' running?",),
            evidence=tuple(_fault_evidence(health)),
            waits_for=(),
            next="The controller decides as soon as it runs.",
            who=("Whoever runs the controller.",),
            history=(),
        )
    mine = _relevant(name, life, certifications)
    return Explanation(
        node=name,
        state=life.state.value,
        since=life.since,
        held=life.held,
        headline=_headline(name, life, now),
        why=tuple(_why(health, life, now)),
        evidence=(
            *_fault_evidence(health),
            *(piece for certification in mine for piece in _certification_evidence(name, certification)),
            *_repair_evidence(life, [r for r in repairs if r.spec.node_name == name]),
            *_monitor_evidence(health),
        ),
        waits_for=tuple(f"{plain(b.message)} (for {duration(now - b.since)})" for b in life.blockers),
        next=plain(life.next) or "Nothing: it stays as it is until something changes.",
        who=tuple(_who(health, life)),
        history=_history(life, now),
        ticket=plain(life.episode.ticket, 80) if life.episode else "",
    )


def _headline(name: str, life: Lifecycle, now: datetime) -> str:
    held = (
        f", held ({plain(life.hold_reason, 60)})" if life.held and life.hold_reason else ", held" if life.held else ""
    )
    return f"{name} is {life.state.value}{held} since {moment(life.since)} ({duration(now - life.since)})."


def _why(health: NodeHealth, life: Lifecycle, now: datetime) -> list[str]:
    found: list[str] = []
    hold = health.spec.hold
    if hold is not None:
        found.append(f"{plain(hold.by, 60)} holds it: {plain(hold.reason)}.")
    if life.episode is not None:
        cause = life.episode.cause
        told = plain(cause.message) or plain(cause.name) or "no message"
        found.append(
            f"Episode {life.episode.id}, opened {moment(life.episode.opened_at)} because of "
            f"{cause.kind.value.replace('-', ' ')}: {told}"
        )
    last = life.history[-1].cause if life.history else None
    if last is not None and last.message and (life.episode is None or last != life.episode.cause):
        found.append(f"It entered this state because: {plain(last.message)}")
    found.extend(_certificate_sentences(life.certificate, now))
    if health.spec.paused:
        found.append("It is paused (spec.paused): the controller starts nothing new on it.")
    if life.cordon:
        found.append("Muster has cordoned it.")
    return found


def _certificate_sentences(certificate: Certificate | None, now: datetime) -> list[str]:
    if certificate is None:
        return ["It holds no certificate."]
    name = f"Its certificate (profile {certificate.profile}, from {certificate.certification})"
    issued = f"issued {moment(certificate.issued_at)}, {duration(now - certificate.issued_at)} ago"
    tests = counted(len(certificate.tests), "test")
    match certificate.standing:
        case Standing.VALID:
            return [f"{name}, {issued}, is valid: {tests} passed."]
        case Standing.GRACE:
            return [f"{name}, {issued}, works on under grace: {plain(certificate.voided_because)}"]
        case Standing.VOID:
            when = f" since {moment(certificate.voided_at)}" if certificate.voided_at else ""
            return [f"{name} is void{when}: {plain(certificate.voided_because)}"]
        case _:
            assert_never(certificate.standing)


def _fault_evidence(health: NodeHealth) -> list[Evidence]:
    observed = health.status.observed
    return [Evidence("fault", fault.key(), fault_sentence(fault)) for fault in (observed.faults if observed else ())]


def fault_sentence(fault: Fault) -> str:
    """A fault in one line: what, where, how bad, how often, and the log line."""
    times = f"{counted(fault.count, 'time')}, last {moment(fault.last_seen)}"
    head = f"{fault.check} {fault.code} on {fault.entity.key()} ({fault.severity.value}, scope {fault.scope.value}"
    return f"{plain(head)}, hint {fault.hint.value}; {plain(fault.source, 80)}, seen {times}): {plain(fault.message)}"


def _relevant(name: str, life: Lifecycle, certifications: Sequence[Certification]) -> list[Certification]:
    """The certification the node waits for, the one of its certificate, and the last with a verdict against it."""
    chosen = {life.certification, life.certificate.certification if life.certificate else ""}
    failed = [
        c
        for c in certifications
        if any(r.name == name and r.verdict is not NodeVerdict.PASSED for r in c.status.nodes)
    ]
    if life.state is not State.IN_SERVICE and failed:
        chosen.add(max(failed, key=_age_order).metadata.name)
    found = [c for c in certifications if c.metadata.name in chosen and c.metadata.name]
    return sorted(found, key=_age_order)


def _age_order(certification: Certification) -> tuple[str, str]:
    started = certification.status.started_at
    return (started.isoformat() if started else "", certification.metadata.name)


def _certification_evidence(name: str, certification: Certification) -> list[Evidence]:
    result = next((r for r in certification.status.nodes if r.name == name), None)
    found: list[Evidence] = []
    if result is None:
        phase = certification.status.phase.value.lower()
        text = f"{certification.metadata.name} ({certification.spec.profile}) is {phase}"
        if certification.status.blocked:
            text += f"; blocked: {plain(certification.status.blocked)}"
        return [Evidence("verdict", certification.metadata.name, f"{text}.")]
    found.append(Evidence("verdict", certification.metadata.name, _verdict_sentence(certification, result)))
    runs = {run.id: run for run in certification.status.runs}
    shown = result.evidence_for or result.evidence_against
    found.extend(Evidence("run", run, run_sentence(runs[run])) for run in shown[:MAX_RUNS_SHOWN] if run in runs)
    if len(shown) > MAX_RUNS_SHOWN:
        rest = counted(len(shown) - MAX_RUNS_SHOWN, "run")
        found.append(
            Evidence("run", certification.metadata.name, f"and {rest} more in {certification.metadata.name}.")
        )
    for link in certification.status.links:
        if name in (link.a, link.b):
            ids = ", ".join(link.evidence[:MAX_RUNS_SHOWN])
            text = f"link {link.a} - {link.b}: {link.verdict.value}: {plain(link.message)} (runs {ids or 'none'})"
            found.append(Evidence("link", certification.metadata.name, text))
    return found


def _verdict_sentence(certification: Certification, result: NodeResult) -> str:
    text = f"{certification.metadata.name} ({certification.spec.profile}): {result.verdict.value}"
    if result.reason.value:
        text += f", {result.reason.value}"
    if result.message:
        text += f": {plain(result.message)}"
    if result.error_bound is not None and result.verdict is NodeVerdict.FAILED:
        text += f" (probability that the verdict is wrong: at most {result.error_bound:.2g})"
    return text


def run_sentence(run: RunRecord) -> str:
    """A run in one line: test, nodes, outcome, the number against its floor."""
    others = ", ".join(run.nodes[:4]) + (f" and {len(run.nodes) - 4} more" if len(run.nodes) > 4 else "")
    text = f"run {run.id}, round {run.round}, {run.test} on {others}: {run.outcome.value}"
    if run.reason.value and run.outcome is not Outcome.PASS:
        text += f" ({run.reason.value})"
    if run.value is not None:
        floor = f", floor {run.floor:g}" if run.floor is not None else ", no floor known"
        text += f": {run.value:.4g} {plain(run.unit, 20)}{floor}"
    if run.message:
        text += f"; {plain(run.message, 160)}"
    return text


def _repair_evidence(life: Lifecycle, repairs: Sequence[Repair]) -> list[Evidence]:
    if life.episode is None:
        return []
    by_name = {repair.metadata.name: repair for repair in repairs}
    return [
        Evidence("repair", attempt.repair, _attempt_sentence(attempt, by_name.get(attempt.repair)))
        for attempt in life.episode.attempts
    ]


def _attempt_sentence(attempt: RungAttempt, repair: Repair | None) -> str:
    text = f"{moment(attempt.at)}: {attempt.rung}, attempt {attempt.attempt}: {attempt.outcome or 'under way'}"
    if repair is not None:
        text += f"; provider {plain(repair.spec.provider, 60)} says {repair.status.phase.value}"
        if repair.status.external_id:
            text += f" ({plain(repair.status.external_id, 60)})"
        if repair.status.message:
            text += f": {plain(repair.status.message, 160)}"
    return text


def _monitor_evidence(health: NodeHealth) -> list[Evidence]:
    observed = health.status.observed
    if observed is None:
        return [Evidence("monitor", health.metadata.name, "No agent has reported about this node yet.")]
    return [
        Evidence(
            "monitor", monitor.name, f"monitor {monitor.name} is {monitor.state.value}: {plain(monitor.message)}"
        )
        for monitor in observed.monitors
        if monitor.state.value != "ok"
    ]


def _who(health: NodeHealth, life: Lifecycle) -> list[str]:
    """Commands that change the state now."""
    command = f"muster node {health.metadata.name}"
    if health.spec.hold is not None:
        return [f"'{command} release' ends the hold of {plain(health.spec.hold.by, 60)}."]
    hold = f"'{command} hold --reason TEXT' takes it out of service."
    match life.state:
        case State.IN_SERVICE:
            return [hold]
        case State.UNCERTIFIED | State.CERTIFYING:
            return ["It returns by itself when it passes.", hold]
        case State.QUARANTINED | State.DRAINING:
            found = [
                "The controller goes on by itself.",
                f"'{command} approve' lets it go on where approval is asked.",
            ]
            return [*found, f"'{command} release' ends the episode; the node must still pass its tests."]
        case State.REPAIRING:
            return [f"'{command} retry' starts the repair again, '{command} retire' gives the node up."]
        case State.OUT_OF_SERVICE:
            retry = f"'{command} retry' tries the ladder again after somebody worked on it."
            return ["A person decides.", retry, f"'{command} retire' gives it up."]
        case _:
            assert_never(life.state)


def _history(life: Lifecycle, now: datetime) -> tuple[Step, ...]:
    ends = [*(t.at for t in life.history[1:]), now][: len(life.history)]
    return tuple(
        Step(
            at=step.at,
            state=step.state.value,
            cause=plain(step.cause.message or step.cause.name or step.cause.kind.value, 140),
            lasted_s=max(0.0, (end - step.at).total_seconds()),
            episode=step.episode,
        )
        for step, end in zip(life.history, ends, strict=True)
    )
