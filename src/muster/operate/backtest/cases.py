"""Unit tests of policies as people write them: a node with faults and a past, and what the policy must say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from muster.errors import BadInputError
from muster.faults import catalogue
from muster.operate.correlation.model import Correlated
from muster.operate.patterns.derive import derive
from muster.operate.patterns.history import DERIVED, History
from muster.operate.policy import EffectivePolicy, Judgement, effective_policy, judge
from muster.operate.policy_files import strict
from muster.resources.base import Model
from muster.resources.fault import Burst, Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fault_policy import Disposition, FaultPolicy
from muster.resources.node_health import Cause, CauseKind, PastFault, RungAttempt, State, Transition
from muster.resources.repair import Rung

DEFAULT_AT = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
MAX_CASES = 2000


class CaseNode(Model, frozen=True, kw_only=True):
    name: str = "node-1"
    labels: dict[str, str] = {}


class CaseBurst(Model, frozen=True, kw_only=True):
    ago_s: float
    lasts_s: float = 0
    count: int = 1
    details: dict[str, str] = {}


class CaseFault(Model, frozen=True, kw_only=True):
    """A fault. What is left out comes from the catalogue, or is unknown there too."""

    check: str
    code: str
    source: str = "kernel-log"
    entity: Entity = Entity(kind=EntityKind.GPU, uuid="GPU-0")
    severity: Severity | None = None
    scope: Scope | None = None
    hint: Hint | None = None
    message: str = ""
    count: int = 1
    ago_s: float = 0
    """Seconds since it was first seen, where no bursts are given."""
    bursts: tuple[CaseBurst, ...] = ()
    closed_ago_s: float | None = None
    """With a value it is a fault of the past."""


class CaseRepair(Model, frozen=True, kw_only=True):
    rung: Rung
    ago_s: float
    proved: bool = True


class CaseCorrelation(Model, frozen=True, kw_only=True):
    kind: str
    """`xid/79`."""
    disposition: Disposition = Disposition.CONDITION


class Expected(Model, frozen=True, kw_only=True):
    """What must be true of one fault; fields that are left out may be anything."""

    fault: str
    """`check/code`, or the whole key of the fault; `pattern/<name>` for a derived one."""
    rule: str | None = None
    disposition: Disposition | None = None
    ladder: tuple[Rung, ...] | None = None
    due: bool | None = None
    capped: bool | None = None


class Case(Model, frozen=True, kw_only=True):
    name: str
    at: datetime = DEFAULT_AT
    node: CaseNode = CaseNode()
    faults: tuple[CaseFault, ...] = ()
    repairs: tuple[CaseRepair, ...] = ()
    released_ago_s: float | None = None
    correlated: tuple[CaseCorrelation, ...] = ()
    expect: tuple[Expected, ...] = ()
    derived: tuple[str, ...] | None = None
    """Names of the patterns that must hold, no others; left out: any."""


class Cases(Model, frozen=True, kw_only=True):
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class CaseResult:
    """How a case went. `differences` is empty when all is as expected; one sentence each otherwise."""

    name: str
    source: str
    differences: tuple[str, ...]
    said: tuple[dict[str, Any], ...] = field(default=())
    """What the policy said of each fault, as plain values."""


def read_cases(document: Any, source: str) -> tuple[Case, ...]:
    """The cases of one document. Raises BadInputError."""
    found = strict(Cases, document, source).cases
    names = [case.name for case in found]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(names) <= MAX_CASES else []
    if len(found) > MAX_CASES:
        raise BadInputError(f"{source} holds {len(found)} cases; at most {MAX_CASES} are accepted, split the file.")
    if twice:
        raise BadInputError(f"{source} has the case {twice[0][:80]} twice; give each case a name of its own.")
    for case in found:
        if case.at.tzinfo is None:
            raise BadInputError(f"{source}: case {case.name[:80]} needs a time zone in `at`, such as Z for UTC.")
        if not case.expect and case.derived is None:
            raise BadInputError(f"{source}: case {case.name[:80]} expects nothing; give `expect` or `derived`.")
    return found


def run_case(case: Case, policies: Sequence[FaultPolicy], source: str) -> CaseResult:
    """What `policies` (over the safe default) say in `case`, and where that is not as expected."""
    policy = effective_policy(policies, case.node.labels)
    history = _history(case)
    derived, _ = derive(policy, history, case.node.name, case.node.labels, (), case.at)
    judged = {f.key(): (f, _judge(policy, f, case, history)) for f in (*history.open, *derived)}
    differences = [d for expected in case.expect for d in _compare(expected, judged)]
    if case.derived is not None:
        concluded, wanted = sorted({f.code for f in derived}), sorted(set(case.derived))
        if concluded != wanted:
            differences.append(
                f"Patterns that hold are {', '.join(concluded) or 'none'}; expected {', '.join(wanted) or 'none'}."
            )
    said = tuple(_said(key, fault, judgement) for key, (fault, judgement) in sorted(judged.items()))
    return CaseResult(case.name, source, tuple(differences), said)


def _judge(policy: EffectivePolicy, fault: Fault, case: Case, history: History) -> Judgement:
    correlated = {
        c.kind: Correlated(
            correlation="case",
            group="case",
            kind=c.kind,
            nodes=(case.node.name,),
            since=case.at,
            change="",
            disposition=c.disposition,
            message="The case says so.",
        )
        for c in case.correlated
    }
    return judge(
        policy, fault, case.node.labels, case.at, node_name=case.node.name, history=history, correlated=correlated
    )


def _compare(expected: Expected, judged: dict[str, tuple[Fault, Judgement]]) -> list[str]:
    matching = [(f, j) for key, (f, j) in sorted(judged.items()) if expected.fault in (key, f"{f.check}/{f.code}")]
    if not matching:
        return [f"Fault {expected.fault} is not there; open are {', '.join(sorted(judged)) or 'none'}."]
    found: list[str] = []
    for fault, judgement in matching:
        wanted = {
            "rule": (expected.rule, judgement.rule),
            "disposition": (expected.disposition, judgement.disposition),
            "ladder": (_rungs(expected.ladder), _rungs(tuple(s.rung for s in judgement.ladder))),
            "due": (expected.due, judgement.due),
            "capped": (expected.capped, bool(judgement.capped_by)),
        }
        found.extend(
            f"{fault.check}/{fault.code}: {name} is {_shown(actual)}, expected {_shown(want)}."
            for name, (want, actual) in wanted.items()
            if want is not None and want != actual
        )
    return found


def _rungs(rungs: tuple[Rung, ...] | None) -> str | None:
    return None if rungs is None else " -> ".join(r.value for r in rungs) or "none"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) or "none"


def _said(key: str, fault: Fault, judgement: Judgement) -> dict[str, Any]:
    return {
        "fault": key,
        "derived": fault.check == DERIVED,
        "rule": judgement.rule,
        "disposition": judgement.disposition.value,
        "ladder": [s.rung.value for s in judgement.ladder],
        "due": judgement.due,
        "cappedBy": judgement.capped_by,
        "skipped": list(judgement.skipped),
    }


def _history(case: Case) -> History:
    faults = [(f, _fault(f, case.at)) for f in case.faults]
    transitions = []
    for repair in case.repairs:
        began = case.at - timedelta(seconds=repair.ago_s)
        cause = Cause(kind=CauseKind.REPAIR, name=repair.rung.value)
        transitions.append(Transition(state=State.REPAIRING, at=began, cause=cause))
        if repair.proved:
            transitions.append(Transition(state=State.UNCERTIFIED, at=began, cause=cause))
    proved = [case.at - timedelta(seconds=r.ago_s) for r in case.repairs if r.proved]
    released = case.at - timedelta(seconds=case.released_ago_s) if case.released_ago_s is not None else None
    return History(
        open=tuple(sorted((f for c, f in faults if c.closed_ago_s is None), key=lambda f: f.key())),
        past=tuple(
            PastFault(fault=f, closed_at=case.at - timedelta(seconds=c.closed_ago_s), closed_by="healthy-reading")
            for c, f in faults
            if c.closed_ago_s is not None
        ),
        transitions=tuple(sorted(transitions, key=lambda t: t.at)),
        attempts=tuple(
            RungAttempt(rung=r.rung.value, attempt=1, repair=f"case-{n}", at=case.at - timedelta(seconds=r.ago_s))
            for n, r in enumerate(case.repairs)
        ),
        boundary=max([*proved, *([released] if released else [])], default=None),
        released=released,
        repaired=max(proved, default=None),
    )


def _fault(case: CaseFault, now: datetime) -> Fault:
    severity, scope, hint = known_values(case.check, case.code)
    bursts = tuple(
        Burst(
            at=now - timedelta(seconds=b.ago_s),
            until=now - timedelta(seconds=max(0.0, b.ago_s - b.lasts_s)),
            count=b.count,
            details=b.details,
        )
        for b in sorted(case.bursts, key=lambda b: -b.ago_s)
    )
    first = bursts[0].at if bursts else now - timedelta(seconds=case.ago_s)
    return Fault(
        source=case.source,
        check=case.check,
        code=case.code,
        entity=case.entity,
        severity=case.severity or severity,
        scope=case.scope or scope,
        hint=case.hint or hint,
        message=case.message,
        count=sum(b.count for b in bursts) if bursts else case.count,
        first_seen=first,
        last_seen=bursts[-1].until if bursts else first,
        bursts=bursts,
    )


def known_values(check: str, code: str) -> tuple[Severity, Scope, Hint]:
    """What the catalogue says of a code; unknown where it does not know it, as everywhere."""
    if check in ("xid", "nvlink5") and code.isascii() and code.isdigit() and len(code) < 9:
        xid = catalogue.xid(int(code))
        return xid.severity, xid.scope, xid.hint
    if code.startswith("DCGM_FR_"):
        dcgm = catalogue.dcgm(code)
        return dcgm.severity, dcgm.scope, dcgm.hint
    try:
        condition = catalogue.condition(code)
    except KeyError:
        return Severity.UNKNOWN, Scope.NODE, Hint.INSPECT
    return condition.severity, condition.scope, condition.hint
