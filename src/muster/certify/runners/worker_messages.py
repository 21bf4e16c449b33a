"""What the words of workers mean: from an answer to the end of a rank, from all ends of a run to who is silent. Pure.

For isolation a "rank" is a node: one end for each node of the run. What a worker sends is foreign text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar, assert_never

import msgspec

from muster.certify.details import FACTS_LIMIT, RANKS_LIMIT, SIZES_LIMIT, NodeDetail
from muster.certify.measure import HowEnded, RankEnd, Report
from muster.certify.runners.worker_link import HowRunEnded, RunAnswer, RunPhase, WorkerState
from muster.resources.certification import RankFigures, Reason, SizeFigures
from muster.workloads.worker_merge import HANG_ALONE_FACT, HANG_STEP_FACT, HANG_WAITING_FACT

MESSAGE_LIMIT = 300
SUSPECTS_LIMIT = 64
NAME_LIMIT = 120
PLACEMENTS = ("out", "in")
_T = TypeVar("_T")
_MISSED = (Reason.HANG.value, Reason.TIMEOUT.value, Reason.CRASH.value)
"""What ranks say of peers that do not come, or that have given up."""
_STUCK = (Reason.HANG.value, Reason.TIMEOUT.value)


class MessageError(ValueError):
    """What the worker sent is not what was agreed; the sentence says what."""


# Answers


class _State(msgspec.Struct, frozen=True, rename="camel"):
    node: str
    incarnation: str
    ready: bool = True
    device: str = "cpu"
    ranks: int = 1
    runs: dict[str, str] = {}
    versions: dict[str, str] = {}
    skew_s: float = 0.0


class _Run(msgspec.Struct, frozen=True):
    phase: str
    how: str = ""
    report: msgspec.Raw = msgspec.Raw(b"null")
    message: str = ""


def read_state(body: bytes) -> WorkerState:
    """Read the answer to `GET /state`. Raises MessageError."""
    found = _decode(body, _State)
    return WorkerState(
        node=found.node[:NAME_LIMIT],
        incarnation=found.incarnation[:NAME_LIMIT],
        ready=found.ready,
        device=found.device[:NAME_LIMIT],
        ranks=found.ranks,
        runs=found.runs,
        versions=_texts(found.versions),
        skew_s=found.skew_s if math.isfinite(found.skew_s) else 0.0,
    )


def read_run(body: bytes) -> RunAnswer:
    """Read the answer to `GET /runs/ID`. Raises MessageError."""
    found = _decode(body, _Run)
    phase = {"running": RunPhase.RUNNING, "ended": RunPhase.ENDED}.get(found.phase)
    how = next((h for h in HowRunEnded if h.value == found.how), None)
    if phase is None or how is None or (phase is RunPhase.ENDED) == (how is HowRunEnded.NOT_ENDED):
        raise MessageError("the answer says neither that the run goes on nor how it ended")
    report = b"" if bytes(found.report) == b"null" else bytes(found.report)
    return RunAnswer(phase, how, report, found.message[:MESSAGE_LIMIT])


class _Refusal(msgspec.Struct, frozen=True):
    message: str = ""
    busy: str = ""


def read_refusal(body: bytes) -> tuple[str, str]:
    """Why a request was refused, and the run that is in the way, if one is."""
    try:
        found = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.MsgspecError, RecursionError):
        return "the request was refused without a reason", ""
    return found.message[:MESSAGE_LIMIT] or "the request was refused", found.busy[:NAME_LIMIT]


def _decode(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MessageError(f"the answer cannot be read: {error}") from error


# The end of a run on one node


class _Report(msgspec.Struct, frozen=True):
    """A NodeReport (see `muster.workloads.report`)."""

    node: str
    ok: bool
    value: float | None = None
    unit: str = ""
    reason: str = ""
    suspects: tuple[str, ...] = ()
    message: str = ""
    sizes: tuple[SizeFigures, ...] = ()
    ranks: tuple[RankFigures, ...] = ()
    transport: str = ""
    versions: dict[str, str] = {}
    facts: dict[str, float] = {}


def end_of(node: str, answer: RunAnswer, started_at: datetime, ended_at: datetime) -> RankEnd:
    """How the run ended on `node`, from an answer that says that it ended. Raises ValueError for another one."""
    if answer.phase is not RunPhase.ENDED:
        raise ValueError("the run has not ended")
    match answer.how:
        case HowRunEnded.REPORTED:
            return _reported(node, answer, started_at, ended_at)
        case HowRunEnded.CRASHED:
            return RankEnd(node, HowEnded.CRASHED, message=f"the test program {answer.message}")
        case HowRunEnded.MUTE:
            return RankEnd(node, HowEnded.MUTE, message=answer.message)
        case HowRunEnded.TIMEOUT:
            return RankEnd(node, HowEnded.TIMEOUT, message=answer.message)
        case HowRunEnded.STOPPED:
            return RankEnd(node, HowEnded.DISTURBED, message="the run was stopped on request")
        case HowRunEnded.NOT_ENDED:
            raise ValueError("the run has not ended")
        case _:
            assert_never(answer.how)


def _reported(node: str, answer: RunAnswer, started_at: datetime, ended_at: datetime) -> RankEnd:
    try:
        found = msgspec.json.decode(answer.report, type=_Report)
    except (msgspec.MsgspecError, RecursionError) as error:
        return RankEnd(node, HowEnded.MUTE, message=f"the report cannot be read: {error}"[:MESSAGE_LIMIT])
    report = Report(
        node=found.node,
        ok=found.ok,
        value=found.value,
        unit=found.unit[:NAME_LIMIT],
        reason=found.reason[:NAME_LIMIT],
        suspects=found.suspects[:SUSPECTS_LIMIT],
        message=found.message[:MESSAGE_LIMIT],
    )
    detail = NodeDetail(
        sizes=tuple(row for row in found.sizes if row.placement in PLACEMENTS)[: 2 * SIZES_LIMIT],
        # A node speaks of its own ranks: what it says of another one would count as measured there.
        ranks=tuple(_bounded(rank) for rank in found.ranks if rank.node == node)[:RANKS_LIMIT],
        transport=found.transport[:NAME_LIMIT],
        versions=_texts(found.versions),
        facts={k[:NAME_LIMIT]: v for k, v in sorted(found.facts.items())[:FACTS_LIMIT]},
        started_at=started_at,
        ended_at=ended_at,
    )
    return RankEnd(node, HowEnded.REPORTED, report, message=answer.message, detail=detail)


def _bounded(rank: RankFigures) -> RankFigures:
    return msgspec.structs.replace(rank, message=rank.message[:MESSAGE_LIMIT])


def _texts(found: Mapping[str, str]) -> dict[str, str]:
    return {k[:NAME_LIMIT]: v[:NAME_LIMIT] for k, v in sorted(found.items())[:FACTS_LIMIT]}


def lost_end(node: str, *, alive: bool) -> RankEnd:
    """The end on a node whose worker knows nothing of a run that it had started: it was started again since."""
    if alive:
        return RankEnd(node, HowEnded.CRASHED, message="the worker died during the run and was started again")
    return RankEnd(node, HowEnded.DISTURBED, message="the node was gone or not Ready during the run")


def is_bad(end: RankEnd) -> bool:
    """The run cannot come to a good end any more."""
    return end.how is not HowEnded.REPORTED or end.report is None or not end.report.ok


def end_of_stopped(node: str, cause: RankEnd) -> RankEnd:
    """The end on a node on which the run was stopped because of how it ended on another one, which `cause` tells.

    It is no finding about `node`: the words point at the node of the cause alone.
    """
    if cause.how in (HowEnded.CRASHED, HowEnded.TIMEOUT) or (cause.report is not None and not cause.report.ok):
        reason = cause.report.reason if cause.report is not None else _word_of(cause.how)
        words = f"stopped, because {cause.node} had failed: {_told(cause)}"[:MESSAGE_LIMIT]
        suspects = cause.report.suspects if cause.report is not None else (cause.node,)
        report = Report(node=node, ok=False, reason=reason, suspects=suspects, message=words)
        return RankEnd(node, HowEnded.REPORTED, report)
    return RankEnd(node, HowEnded.MUTE, message=f"stopped, because of {cause.node}: {_told(cause)}"[:MESSAGE_LIMIT])


def apart(ends: Sequence[RankEnd]) -> tuple[RankEnd, ...]:
    """The ends of a run whose ranks did not begin together: that they missed each other says nothing about a node."""
    return tuple(
        RankEnd(
            end.node, HowEnded.DISTURBED, message=f"the ranks did not begin together; {_told(end)}"[:MESSAGE_LIMIT]
        )
        if end.report is not None and not end.report.ok and end.report.reason in _MISSED
        else end
        for end in ends
    )


def _word_of(how: HowEnded) -> str:
    return Reason.TIMEOUT.value if how is HowEnded.TIMEOUT else Reason.CRASH.value


def _told(end: RankEnd) -> str:
    return end.report.message if end.report is not None and end.report.message else end.message


# Who is silent


def name_the_silent(ends: Sequence[RankEnd]) -> tuple[RankEnd, ...]:
    """The ends of a run that hung, with the node that all others waited for as the suspect, where that can be told.

    A node is silent when its ranks were at work on their own, or a step behind, while the ranks of every other node
    waited in an operation. When two nodes are, or nobody was seen waiting, nobody is named.
    """
    stuck = [e for e in ends if e.report is not None and not e.report.ok and e.report.reason in _STUCK]
    if len(ends) < 2 or len(stuck) != len(ends) or any(e.report is not None and e.report.suspects for e in stuck):
        return tuple(ends)
    facts = {e.node: e.detail.facts if e.detail is not None else {} for e in stuck}
    # A node whose ranks ended by themselves waited in an operation until its limit. Others were killed as they were.
    at_work = [n for n, f in facts.items() if f.get(HANG_ALONE_FACT, 0.0) > 0]
    speechless = [n for n, f in facts.items() if HANG_STEP_FACT in f and f.get(HANG_WAITING_FACT, 0.0) == 0]
    steps = sorted((f[HANG_STEP_FACT], n) for n, f in facts.items() if HANG_STEP_FACT in f)
    silent = ""
    if len(at_work) == 1 and speechless in ([], at_work):
        silent = at_work[0]
    elif not at_work and len(steps) == len(ends) > 2 and steps[0][0] < steps[1][0]:
        silent = steps[0][1]
    if not silent:
        return tuple(ends)
    return tuple(replace(e, report=_pointing_at(e.report, silent)) for e in ends)


def _pointing_at(report: Report | None, silent: str) -> Report | None:
    if report is None:
        return None
    words = f"all ranks waited for {silent}; {report.message}"[:MESSAGE_LIMIT]
    return msgspec.structs.replace(report, suspects=(silent,), message=words)
