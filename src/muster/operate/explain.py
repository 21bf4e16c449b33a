"""Why is this node in this state, on what evidence, what happens next, and who can change it. Pure.

The explanation is built from the resources alone, so that the command line, the demo and its report tell the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from muster.operate.explain_who import who_can
from muster.operate.model import BlockerKind
from muster.operate.phrases import counted, duration, moment
from muster.operate.runbooks import runbooks_of
from muster.plain_text import plain
from muster.resources.certification import Certification, NodeResult, NodeVerdict, Outcome, RunRecord
from muster.resources.fault import Fault
from muster.resources.maintenance import Maintenance
from muster.resources.node_health import (
    Cause,
    Certificate,
    Lifecycle,
    NodeHealth,
    Notice,
    RungAttempt,
    Standing,
    State,
)
from muster.resources.repair import Repair

MAX_RUNS_SHOWN = 8
PODS_SHOWN = 4
EARLIER_SHOWN = 3
HISTORY_SHOWN = 12


@dataclass(frozen=True)
class Evidence:
    """One piece of evidence.

    `kind` is `fault`, `pattern`, `verdict`, `run`, `link`, `repair`, `notice`, `maintenance`, `pods` or `monitor`;
    `source` says where it can be looked up (fault key, run ID, name of a resource).
    """

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
    """Plain text, one line each. `since` is None while no controller has seen the node. `runbooks` help."""

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
    runbooks: tuple[str, ...] = ()


def explain(
    health: NodeHealth,
    certifications: Sequence[Certification] = (),
    repairs: Sequence[Repair] = (),
    *,
    now: datetime,
    maintenances: Sequence[Maintenance] = (),
) -> Explanation:
    """Explain one node. The other objects may be about other nodes too; those are left out."""
    name = health.metadata.name
    life = health.status.lifecycle
    if life is None:
        return Explanation(
            node=name,
            state="unknown",
            since=None,
            held=False,
            headline=f"{name}: no controller has decided about it yet.",
            why=(
                "No controller has written its lifecycle: none runs (agents alone only watch), or it has just begun.",
            ),
            evidence=(
                *_fault_evidence(health),
                *_notice_evidence(health),
                *_pod_evidence(health),
                *_monitor_evidence(health),
            ),
            waits_for=(),
            next="Nothing: faults are only shown until a controller runs.",
            who=("Whoever runs the controller ('muster controller run').",),
            history=(),
            runbooks=tuple(page.path for page in runbooks_of(health)),
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
            *(Evidence("pattern", fault.key(), fault_sentence(fault)) for fault in life.derived),
            *_planned_evidence(health, life, maintenances),
            *(piece for certification in mine for piece in _certification_evidence(name, certification)),
            *_repair_evidence(life, [r for r in repairs if r.spec.node_name == name]),
            *_pod_evidence(health),
            *_monitor_evidence(health),
        ),
        waits_for=tuple(f"{plain(b.message)} (for {duration(now - b.since)})" for b in life.blockers),
        next=plain(life.next) or "Nothing: it stays as it is until something changes.",
        who=tuple(who_can(health, life)),
        history=_history(life, now),
        ticket=plain(life.episode.ticket, 80) if life.episode else "",
        runbooks=tuple(page.path for page in runbooks_of(health)),
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
    last = _entered(life)
    if last is not None and last.message and (life.episode is None or last != life.episode.cause):
        found.append(f"It entered this state because: {plain(last.message)}")
    found.extend(_certificate_sentences(life.certificate, now))
    if health.spec.paused:
        found.append("It is paused (spec.paused): the controller starts nothing new on it.")
    if life.cordon:
        found.append("Muster has cordoned it.")
    if life.no_execute:
        found.append("Its hold taint is NoExecute: pods that do not tolerate it are evicted by Kubernetes.")
    if life.deferred_until is not None:
        found.append(f"Planned maintenance of it is put off until {moment(life.deferred_until)}.")
    return found


def _entered(life: Lifecycle) -> Cause | None:
    """Why it entered its state. Later entries of the same state are words of people that moved nothing."""
    found: Cause | None = None
    before: State | None = None
    for step in life.history:
        if step.state is not before or step.state is not life.state:
            found = step.cause
        before = step.state
    return found


def _certificate_sentences(certificate: Certificate | None, now: datetime) -> list[str]:
    if certificate is None:
        return ["It holds no certificate."]
    name = f"Its certificate (profile {certificate.profile}, from {certificate.certification})"
    issued = f"issued {moment(certificate.issued_at)}, {duration(now - certificate.issued_at)} ago"
    if certificate.adopted:
        when = moment(certificate.issued_at)
        return [f"It works on since {when} without a certificate: {plain(certificate.voided_because)}"]
    tests = counted(len(certificate.tests), "test")
    carried = sorted(test.name for test in certificate.tests if test.carried_from)
    if carried:
        tests += f" (carried over from an earlier certificate: {', '.join(carried[:4])})"
    if certificate.expires_at is not None:
        issued += f", good until {moment(certificate.expires_at)}"
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
    told = f"{plain(fault.source, 80)}, seen {times}{_bursts(fault)}"
    return f"{plain(head)}, hint {fault.hint.value}; {told}): {plain(fault.message)}"


def _bursts(fault: Fault) -> str:
    """When it was seen, where it was seen more than once: `, in 3 bursts since ...`."""
    if len(fault.bursts) < 2:
        return ""
    first, last = fault.bursts[0], fault.bursts[-1]
    details = ", ".join(f"{k}={v}" for k, v in sorted(last.details.items())[:4])
    said = f" ({plain(details, 80)})" if details else ""
    return f", in {len(fault.bursts)} bursts since {moment(first.at)}{said}"


def _planned_evidence(health: NodeHealth, life: Lifecycle, maintenances: Sequence[Maintenance]) -> list[Evidence]:
    """What is announced for the machine, and planned maintenance that lists the node."""
    found = _notice_evidence(health)
    name = health.metadata.name
    waits = " ".join(b.message for b in life.blockers if b.kind == BlockerKind.MAINTENANCE)
    for planned in sorted(maintenances, key=lambda m: m.metadata.name):
        mine = next((n for n in planned.status.nodes if n.name == name), None)
        if mine is None and name not in planned.spec.nodes and planned.metadata.name not in waits:
            continue
        spec = planned.spec
        text = f"Maintenance {planned.metadata.name} ({plain(spec.reason, 120)}), {planned.status.phase.value}: "
        text += f"{moment(spec.opens_at)} to {moment(spec.closes_at)}"
        if mine is not None:
            text += f"; this node: {mine.progress.value} since {moment(mine.since)}. {plain(mine.message, 160)}"
        found.append(Evidence("maintenance", planned.metadata.name, text))
    return found


def _notice_evidence(health: NodeHealth) -> list[Evidence]:
    observed = health.status.observed
    return [
        Evidence("notice", f"{notice.source}/{notice.id}", _notice_sentence(notice))
        for notice in (observed.notices if observed is not None else ())
    ]


def _notice_sentence(notice: Notice) -> str:
    begins = f"not before {moment(notice.not_before)}" if notice.not_before is not None else "at any moment"
    ends = f", until {moment(notice.ends_at)}" if notice.ends_at is not None else ""
    urgent = ", emergency" if notice.emergency else ""
    text = f"{plain(notice.source, 60)} announces {notice.kind.value} ({notice.status.value}{urgent}): {begins}{ends}"
    return f"{text}. {plain(notice.message, 160)}" if notice.message else f"{text}."


def _pod_evidence(health: NodeHealth) -> list[Evidence]:
    """Who holds which GPUs, where that matters: while a fault is open."""
    observed = health.status.observed
    if observed is None or not observed.faults or observed.assignments is None:
        return []
    bad = {f.entity.uuid for f in observed.faults if f.entity.uuid}
    found = []
    for held in observed.assignments[:PODS_SHOWN]:
        on = ", ".join(gpu for gpu in held.gpus if gpu in bad)
        text = f"pod {plain(held.pod or held.pod_uid, 120)} holds {counted(len(held.gpus), 'GPU')}"
        found.append(Evidence("pods", held.pod_uid, f"{text}, {plain(on)} at fault." if on else f"{text}."))
    more = len(observed.assignments) - PODS_SHOWN
    if more > 0:
        found.append(Evidence("pods", health.metadata.name, f"and {counted(more, 'more pod')}."))
    return found


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
    earlier = [
        Evidence("repair", a.repair, f"earlier, {moment(a.at)}: {a.rung} for {plain(a.cause, 120)}: {a.outcome}")
        for a in life.earlier[-EARLIER_SHOWN:]
    ]
    by_name = {repair.metadata.name: repair for repair in repairs}
    return earlier + [
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
