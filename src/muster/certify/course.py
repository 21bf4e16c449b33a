"""The course of one certification, from the plan to the verdicts.

Crash-only. The plan is written down (annotation) before anything runs, every finished round (status) before the
next one is worked out; a controller that dies is continued by the next one, which replays plan and records and goes
on with the same round.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from muster.certify import catalogue
from muster.certify.claimed_gpus import with_claims
from muster.certify.conclusion import details_of, passed_tests, progress, shortened, summary
from muster.certify.durable import first_news
from muster.certify.grouping import gpus_of, make_plan, members_of, targets_of
from muster.certify.isolate import IsolationState, next_round, observe, replay
from muster.certify.isolation.plan import WITHDRAWN, Member, Plan, Round, Verdicts
from muster.certify.measure import HowEnded, RankEnd, judge_round
from muster.certify.nodes import change_since
from muster.certify.parts import PartMissingError
from muster.certify.picture import Picture
from muster.certify.runners import Owner, Runner, Work
from muster.certify.writer import CertificationWriter
from muster.clock import Clock
from muster.errors import BadInputError
from muster.moments import after
from muster.resources.base import PLAN_ANNOTATION, TEST_DIGESTS_ANNOTATION, Condition, ConditionStatus
from muster.resources.certification import (
    CertificationStatus,
    Cost,
    NodeResult,
    NodeVerdict,
    Outcome,
    Phase,
    Purpose,
    Reason,
    RunDetail,
    RunRecord,
)
from muster.telemetry.observer import ControllerObserver

log = logging.getLogger(__name__)

NODE_LIMIT = 1200
"""Nodes and partners of one certification. Its plan is an annotation (256 KiB at most, about 170 bytes a node), its
verdicts are one object (1.5 MiB at most, up to 1,000 bytes a node)."""
RUNS_LIMIT_BYTES = 400_000
"""When the status is larger than this after a round, its runs move to a part."""
VERDICTS_LIMIT_BYTES = 1_000_000
NAME_LIMIT = 63
"""The name is the value of a label on every test pod."""
READY_WAIT_S = 120.0
"""A node of the round that is not Ready is waited for this long, then it is out."""
MESSAGE_LIMIT = 2000
COMPLETE = "Complete"
ENDED = (Phase.SUCCEEDED, Phase.FAILED, Phase.ABORTED)


class AbortError(Exception):
    """The certification cannot go on; the sentence says why."""


@dataclass(frozen=True)
class Course:
    """Carries out one certification. `taken`: partner -> certification that uses it now, for a new plan."""

    clock: Clock
    writer: CertificationWriter
    runner: Runner
    picture: Picture
    taken: Mapping[str, str]
    news: asyncio.Event
    """Set whenever a Node changed."""
    observer: ControllerObserver = field(default_factory=ControllerObserver)

    @property
    def _owner(self) -> Owner:
        return Owner(self.writer.name, self.writer.uid)

    async def run(self) -> None:
        """Go on until the certification ended. Raises SupersededError when it must be begun anew, and ApiErrors."""
        if self.writer.status.phase in ENDED:
            return
        try:
            state = await self._resume()
            await self._rounds(state)
        except AbortError as error:
            await self._tidy(frozenset())
            await self._end(Phase.ABORTED, str(error), self.writer.status)

    # Beginning

    async def _resume(self) -> IsolationState:
        """The state as far as it is written down; begins the certification when nothing is."""
        plan = await self._plan()
        if self.writer.status.phase is Phase.PENDING:
            started = msgspec.structs.replace(
                self.writer.status,
                phase=Phase.RUNNING,
                started_at=self._now(),
                blocked="",
                message=" ".join(plan.notes)[:MESSAGE_LIMIT],
            )
            await self.writer.write(started)
        try:
            earlier = [
                run for part in await self.writer.parts.read(self.writer.status.parts) for run in part.spec.runs
            ]
        except PartMissingError as error:
            raise AbortError(str(error)) from error
        try:
            return replay(plan, (*earlier, *self.writer.status.runs))
        except (ValueError, StopIteration) as error:
            raise AbortError(f"The runs in the status do not follow from the plan: {error}.") from error

    async def _plan(self) -> Plan:
        metadata = self.writer.certification.metadata
        written = metadata.annotations.get(PLAN_ANNOTATION, "")
        if written:
            try:
                return msgspec.json.decode(written, type=Plan)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise AbortError(f"The annotation {PLAN_ANNOTATION} cannot be read: {error}.") from error
        if self.writer.status.runs or self.writer.status.parts:
            raise AbortError(f"The annotation {PLAN_ANNOTATION} is gone, so the runs so far cannot be continued.")
        plan = await self._new_plan()
        text = msgspec.json.encode(plan).decode()
        digests = json.dumps({t.name: t.digest for t in plan.tests}, separators=(",", ":"))
        await self.writer.annotate({PLAN_ANNOTATION: text, TEST_DIGESTS_ANNOTATION: digests})
        return plan

    async def _new_plan(self) -> Plan:
        name, spec = self.writer.name, self.writer.certification.spec
        if len(name) > NAME_LIMIT:
            raise AbortError(f"The name of a certification may have {NAME_LIMIT} characters; choose a shorter one.")
        targets = targets_of(spec, self.picture.nodes)
        if len(targets) + len(spec.partners) > NODE_LIMIT:
            raise AbortError(f"A certification may take {NODE_LIMIT} nodes and partners; split it into several.")
        if not targets:
            asked = ", ".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
            what = (
                f"No node has the labels {asked} of spec.nodeSelector" if asked else "The certification names no node"
            )
            raise AbortError(f"{what}; nothing can be tested.")
        busy = await self.picture.gpu_users(name) if spec.purpose is Purpose.MANUAL else {}
        nodes = self.picture.nodes
        if spec.pods.gpu_claim_template:
            nodes = with_claims(nodes, await self.picture.claimed_gpus())
        try:
            profile = catalogue.profile(spec.profile)
            return make_plan(name, spec, profile, nodes, self.picture.healths, self.taken, busy)
        except BadInputError as error:
            raise AbortError(str(error)) from error

    # Rounds

    async def _rounds(self, state: IsolationState) -> None:
        members = members_of(state.plan)
        await self._waiting(None)  # a leader that died while it waited did not say that it is over
        while True:
            until = self._until(state.plan)
            spent = self._spent(state, until)
            if spent:
                state = replace(state, pending=None, spent=spent)
            step = next_round(state)
            if isinstance(step, Verdicts):
                await self._finish(state, step, members)
                return
            records, details = await self._round(state, step, members, until)
            known = len(state.records)
            state = observe(state, records)
            following = state.pending
            runs, parts = await self._store((*self.writer.status.runs, *state.records[known:]), details)
            await self._write(
                runs=runs,
                parts=parts,
                tests=progress(state.records),
                round=following.number if following else step.number,
                current_runs=len(following.runs) if following else 0,
                blocked="",
                cost=self._cost(state.cost),
            )
            self.observer.round_ended()

    async def _store(
        self, runs: tuple[RunRecord, ...], details: Sequence[RunDetail], limit_bytes: int = RUNS_LIMIT_BYTES
    ) -> tuple[tuple[RunRecord, ...], int]:
        """Put the details away, and the runs with them when they are too many for the status: (runs, parts) of it."""
        count = self.writer.status.parts
        if len(msgspec.json.encode(runs)) <= limit_bytes:
            return runs, await self.writer.parts.add(count, (), details)
        return (), await self.writer.parts.add(count, runs, details)

    def _until(self, plan: Plan) -> datetime:
        started = self.writer.status.started_at or self._now()
        return after(started, 60 * (plan.budget.max_wall_minutes + self.writer.status.blocked_minutes))

    def _spent(self, state: IsolationState, until: datetime) -> str:
        """The limit, beside those that isolation counts itself, that ends the certification; nothing while none."""
        if self._now() >= until and state.pending is not None:
            return f"{state.plan.budget.max_wall_minutes:g} minutes have passed, which is all the budget allows"
        blocked = state.plan.budget.max_blocked_minutes
        if self.writer.status.blocked_minutes >= blocked and state.pending is not None:
            return f"nothing could run for {blocked:g} minutes, which is all that maxBlockedMinutes allows"
        return ""

    async def _round(
        self, state: IsolationState, step: Round, members: Mapping[str, Member], until: datetime
    ) -> tuple[list[RunRecord], tuple[RunDetail, ...]]:
        """Carry out one round. The records of its runs, and of nodes that are out from now on; what runs measured."""
        plan, out = state.plan, frozenset(state.withdrawn or {})
        await self._tidy(frozenset(run.id for run in step.runs))
        taking_part = sorted({n for run in step.runs for n in run.nodes})
        gone = dict.fromkeys(await self._not_ready(taking_part, until), (Reason.SCHEDULING, "stopped being Ready"))
        gone |= self._changed(members, taking_part)
        runs = tuple(run for run in step.runs if not any(n in gone for n in run.nodes))
        await self._write(round=step.number, current_runs=len(runs), blocked="")
        tests = {t.name: t for t in plan.tests}
        work = Work(
            self._owner,
            runs,
            tests,
            gpus_of(plan),
            until,
            pods=self.writer.certification.spec.pods,
            wait_s=max(0.0, 60 * (plan.budget.max_blocked_minutes - self.writer.status.blocked_minutes)),
            waiting=self._waiting,
        )
        ends = await self.runner.carry_out(work, self._blocked)
        under_test = frozenset(m.name for cell in plan.cells for m in cell.targets)
        judged = judge_round(plan, runs, ends, self.picture.surroundings(members, under_test, state.records))
        gone |= self._changed(members, [n for n in members if n not in out])
        records = _records(step, {r.id: r for r in judged}, gone)
        return [*records, *_withdrawals(step, {**_busy_partners(plan, ends), **gone})], details_of(runs, ends)

    async def _not_ready(self, names: Sequence[str], until: datetime) -> list[str]:
        """Nodes that are not Ready although they were waited for; those that are gone are not among them."""
        limit = min(until, self._now() + timedelta(seconds=READY_WAIT_S))
        said = False
        while True:
            self.news.clear()
            late = [n for n in names if (node := self.picture.nodes.get(n)) is not None and not node.ready]
            left_s = (limit - self._now()).total_seconds()
            if not late or left_s <= 0:
                return late
            if not said:
                said = True
                await self._blocked(f"Waits until {late[0]} is Ready ({len(late)} node(s) of the round are not).")
            await first_news(self.clock, self.news, left_s)

    def _changed(self, members: Mapping[str, Member], names: Sequence[str]) -> dict[str, tuple[Reason, str]]:
        """Nodes of `names` that are not what they were when the certification started, with what happened."""
        nodes, healths = self.picture.nodes, self.picture.healths
        found = {n: change_since(members[n].identity, nodes.get(n), healths.get(n)) for n in names}
        return {n: (Reason.HARNESS, what) for n, what in found.items() if what}

    async def _tidy(self, keep: frozenset[str]) -> None:
        await self.runner.clean(self._owner, keep, self._blocked)

    # The end

    async def _finish(self, state: IsolationState, verdicts: Verdicts, members: Mapping[str, Member]) -> None:
        await self._tidy(frozenset())
        out = state.withdrawn or {}
        changed = self._changed(members, [n for n in members if n not in out])
        tests = passed_tests(state.records, state.plan)
        nodes = tuple(
            msgspec.structs.replace(
                _unless_changed(result, changed.get(result.name)), tests=tests.get(result.name, ())
            )
            for result in verdicts.nodes
        )
        if len(msgspec.json.encode(nodes)) > VERDICTS_LIMIT_BYTES:
            nodes = tuple(shortened(result) for result in nodes)
        tested = any(r.verdict is not NodeVerdict.UNTESTED for r in nodes)
        passed = all(r.verdict is NodeVerdict.PASSED for r in nodes)
        links_good = all(link.verdict is NodeVerdict.PASSED for link in verdicts.links)
        if not tested:
            phase = Phase.ABORTED
        elif passed and links_good and not verdicts.unresolved:
            phase = Phase.SUCCEEDED
        else:
            phase = Phase.FAILED
        # Verdicts and runs share the object: many verdicts leave no room for runs.
        room = RUNS_LIMIT_BYTES + VERDICTS_LIMIT_BYTES - len(msgspec.json.encode(nodes))
        runs, parts = await self._store(self.writer.status.runs, (), min(RUNS_LIMIT_BYTES, room))
        status = msgspec.structs.replace(
            self.writer.status,
            runs=runs,
            parts=parts,
            nodes=nodes,
            links=verdicts.links,
            cost=self._cost(verdicts.cost),
        )
        await self._end(phase, summary(nodes, verdicts), status)

    async def _end(self, phase: Phase, message: str, status: CertificationStatus) -> None:
        now = self._now()
        status = _waited(status, now)
        complete = Condition(
            type=COMPLETE,
            status=ConditionStatus.TRUE,
            reason=phase.value,
            message=message[:MESSAGE_LIMIT],
            last_transition_time=now,
        )
        await self.writer.write(
            msgspec.structs.replace(
                status,
                phase=phase,
                started_at=status.started_at or now,
                finished_at=now,
                message=message[:MESSAGE_LIMIT],
                blocked="",
                current_runs=0,
                conditions=(complete,),
            )
        )
        log.info("certification %s %s: %s", self.writer.name, phase.value, message)

    # Small things

    def _now(self) -> datetime:
        return self.clock.now()

    def _cost(self, nominal: Cost) -> Cost:
        """The nominal cost with the wall time that really passed while something could run."""
        started = self.writer.status.started_at or self._now()
        minutes = (self._now() - started).total_seconds() / 60.0
        minutes = max(0.0, minutes - _waited(self.writer.status, self._now()).blocked_minutes)
        return msgspec.structs.replace(nominal, wall_minutes=round(minutes, 3))

    async def _write(self, **fields: Any) -> None:
        await self.writer.write(msgspec.structs.replace(self.writer.status, **fields))

    async def _blocked(self, why: str) -> None:
        await self._write(blocked=why[:MESSAGE_LIMIT])

    async def _waiting(self, since: datetime | None) -> None:
        """Write down since when nothing runs for want of workers, or that this is over: the next leader goes on."""
        status = _waited(self.writer.status, self._now()) if since is None else self.writer.status
        await self.writer.write(msgspec.structs.replace(status, blocked_since=since))


def _waited(status: CertificationStatus, now: datetime) -> CertificationStatus:
    """The status with the time of waiting that has ended now."""
    if status.blocked_since is None:
        return status
    minutes = max(0.0, (now - status.blocked_since).total_seconds() / 60.0)
    return msgspec.structs.replace(
        status, blocked_since=None, blocked_minutes=round(status.blocked_minutes + minutes, 3)
    )


def _records(
    step: Round, judged: Mapping[str, RunRecord], gone: Mapping[str, tuple[Reason, str]]
) -> Iterator[RunRecord]:
    """A record for every run of the round. What was measured with a node that changed says nothing about anybody."""
    for run in step.runs:
        lost = tuple(n for n in run.nodes if n in gone)
        if run.id in judged and not lost:
            yield judged[run.id]
            continue
        message = f"{lost[0]} {gone[lost[0]][1]}" if lost else "the run was not carried out"
        yield RunRecord(
            id=run.id,
            round=step.number,
            test=run.test,
            nodes=run.nodes,
            outcome=Outcome.UNKNOWN,
            reason=Reason.HARNESS,
            suspects=lost,
            message=message,
            variant=run.variant,
        )


def _busy_partners(plan: Plan, ends: Mapping[str, Sequence[RankEnd]]) -> dict[str, tuple[Reason, str]]:
    """Partners that took other work meanwhile. To ask them again would only cost rounds."""
    partners = {m.name for cell in plan.cells for m in cell.partners}
    refused = [e.node for found in ends.values() for e in found if e.how is HowEnded.REFUSED]
    return dict.fromkeys(sorted(partners.intersection(refused)), (Reason.SCHEDULING, "was not free as a partner"))


def _withdrawals(step: Round, gone: Mapping[str, tuple[Reason, str]]) -> Iterator[RunRecord]:
    for name, (reason, what) in sorted(gone.items()):
        yield RunRecord(
            id=f"r{step.number:02d}-out-{name}",
            round=step.number,
            test=WITHDRAWN,
            nodes=(name,),
            outcome=Outcome.UNKNOWN,
            reason=reason,
            message=f"The node {what} during the certification.",
        )


def _unless_changed(result: NodeResult, change: tuple[Reason, str] | None) -> NodeResult:
    """A pass counts for the node that was tested, not for what it is now."""
    if change is None or result.verdict is not NodeVerdict.PASSED:
        return result
    message = f"The node {change[1]} during the certification."
    return msgspec.structs.replace(result, verdict=NodeVerdict.UNDETERMINED, reason=change[0], message=message)
