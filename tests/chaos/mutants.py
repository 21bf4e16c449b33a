"""Planted bugs: what the chaos must find. Each is a patch of running code that re-creates a known kind of mistake.

A mutant that is not found says that a rule, or a kind of trouble, is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace as with_fields

from muster.errors import UnreachableError
from muster.kube.api import REPAIRS
from muster.kube.cache import WatchCache
from muster.operate import decide, lifecycle, projection, proof, remedy, validation
from muster.operate.carry_out import Writer
from muster.operate.draft import Draft, Judged
from muster.operate.model import BlockerKind
from muster.operate.node_controller import NodeController
from muster.operate.projection import CordonChange
from muster.operate.proof import Proof, ProofState
from muster.resources.certification import NodeVerdict
from muster.resources.fault import Severity
from tests.chaos.mix import Kind


@dataclass(frozen=True)
class Mutant:
    """`kinds`: the trouble in which it does harm; with it alone it is found soonest. `seed` is one that finds it."""

    name: str
    recreates: str
    patches: Callable[[], list[Any]]
    kinds: tuple[Kind, ...]
    seed: int = 1

    @contextmanager
    def planted(self) -> Iterator[None]:
        """With the bug in the running code."""
        with ExitStack() as stack:
            for one in self.patches():
                stack.enter_context(one)
            yield


def _lifts_foreign_cordon() -> list[Any]:
    real = projection.cordon

    def cordon(life: Any, unschedulable: bool, cordoned_by: str) -> CordonChange:
        if not life.cordon and unschedulable and not life.held:
            return CordonChange(unschedulable=False, annotation="")
        return real(life, unschedulable, cordoned_by)

    return [patch.object(projection, "cordon", cordon)]


def _done_when_created() -> list[Any]:
    real = proof.judge_repair

    def judge(attempt: Any, repair: Any, evidence: Any, now: Any) -> Proof:
        if repair is not None:
            return Proof(ProofState.PROVED, "created")
        return real(attempt, repair, evidence, now)

    return [patch.object(remedy, "judge_repair", judge)]


def _boot_id_ignored() -> list[Any]:
    return [patch.object(proof, "REBOOTING", ())]


def _budget_counted_after_write() -> list[Any]:
    def decide_only(self: Any, view: Any) -> Any:
        self._tally.count(view, view.lifecycle)
        fleet = self._tally.view(self._plan, self._compared_at, self._standard, demand=self._caches.demand)
        return decide.decide(view, fleet, self._caches.policy(view.name, view.labels), self._clock.now())

    return [patch.object(NodeController, "_decide", decide_only)]


def _certificate_outlives_its_node() -> list[Any]:
    return [patch.object(decide, "_notice_replacement", lambda d: None)]


def _passes_with_open_fault() -> list[Any]:
    real = validation._pulled_out

    def pulled_out(d: Draft) -> bool:
        return False if d.disqualifying else real(d)

    return [patch.object(validation, "_pulled_out", pulled_out)]


def _release_lost_after_restart() -> list[Any]:
    real = Writer._patch_node

    async def patch_node(self: Any, record: Any, life: Any) -> None:
        mine = self.__dict__.setdefault("_mine", set())
        if life.held:
            mine.add(record.name)
        elif record.name not in mine:
            return
        await real(self, record, life)

    return [patch.object(Writer, "_patch_node", patch_node)]


def _second_repair_on_replay() -> list[Any]:
    real = Writer._create

    async def create(self: Any, res: Any, value: Any) -> bool:
        if await real(self, res, value):
            return True
        if res is not REPAIRS:
            return False
        again = with_fields(value, metadata=with_fields(value.metadata, name=f"{value.metadata.name}-again"))
        return await real(self, res, again)

    return [patch.object(Writer, "_create", create)]


def _released_before_durable() -> list[Any]:
    real = NodeController._make_durable

    async def make_durable(self: Any, record: Any, view: Any, health: Any, decision: Any) -> None:
        await self._writer.project(record, decision.lifecycle)
        await real(self, record, view, health, decision)

    return [patch.object(NodeController, "_make_durable", make_durable)]


def _fence_skipped() -> list[Any]:
    async def fence(self: Any) -> None:
        return

    return [patch.object(Writer, "fence", fence)]


def _gone_is_empty() -> list[Any]:
    real = WatchCache._relist

    async def relist(self: Any) -> None:
        for key in list(self._versions):
            self._remove(key)
        await real(self)

    return [patch.object(WatchCache, "_relist", relist)]


def _broken_watch_stays_broken() -> list[Any]:
    real = WatchCache._watch

    async def watch(self: Any) -> bool:
        try:
            return await real(self)
        except UnreachableError:
            await asyncio.get_running_loop().create_future()
            raise

    return [patch.object(WatchCache, "_watch", watch)]


def _old_fingerprint_admits() -> list[Any]:
    return [patch.object(validation, "_unchanged", lambda view, observed: True)]


def _unknown_acts() -> list[Any]:
    real = Draft.disqualifying.fget
    assert real is not None

    def disqualifying(self: Draft) -> tuple[Judged, ...]:
        return (*real(self), *(j for j in self.judged if j.fault.severity is Severity.UNKNOWN))

    return [patch.object(Draft, "disqualifying", property(disqualifying))]


def _undetermined_is_failed() -> list[Any]:
    real = validation._read_verdict

    def read(d: Draft, ended: Any, observed: Any) -> None:
        if ended.verdict is not NodeVerdict.PASSED:
            ended = replace(ended, verdict=NodeVerdict.FAILED)
        real(d, ended, observed)

    return [patch.object(validation, "_read_verdict", read)]


def _hold_ignored() -> list[Any]:
    from muster.operate import handover

    def pulled_out(d: Draft) -> bool:
        if d.disqualifying:
            return real(d)
        return handover.pulled_out(d)

    real = validation._pulled_out
    return [patch.object(validation, "_pulled_out", pulled_out)]


def _pause_ignored() -> list[Any]:
    return [patch.object(remedy, "stopped", lambda d: False)]


def _history_cut() -> list[Any]:
    return [patch.object(lifecycle, "HISTORY_LIMIT", 6)]


def _waits_for_what_is_gone() -> list[Any]:
    real = validation.certifying

    def certifying(d: Draft) -> None:
        if any(c.name == d.life.certification for c in d.node.certifications):
            real(d)
        else:
            d.block(BlockerKind.CERTIFICATION, "Its certification is running.")

    handlers = dict(decide.HANDLERS)
    handlers[next(s for s, h in handlers.items() if h is validation.certifying)] = certifying
    return [patch.object(decide, "HANDLERS", handlers)]


def _repairs_under_work() -> list[Any]:
    return [patch.object(remedy, "_start_drain", lambda d: False)]


MUTANTS = (
    Mutant(
        "lifts-foreign-cordon",
        "a cordon that a person placed is lifted when the node recovers",
        _lifts_foreign_cordon,
        (Kind.CORDONS,),
    ),
    Mutant(
        "done-when-created",
        "a repair counts as done as soon as its object exists",
        _done_when_created,
        (Kind.FAULTS,),
        seed=5,
    ),
    Mutant(
        "boot-id-ignored",
        "a reboot is believed although the boot ID is the old one",
        _boot_id_ignored,
        (Kind.HIDDEN_DEFECTS, Kind.LYING_PROVIDER),
    ),
    Mutant(
        "budget-counted-late",
        "the budget is counted after the write: a burst overshoots it",
        _budget_counted_after_write,
        (Kind.GPU_SWAPS, Kind.FAULTS),
    ),
    Mutant(
        "certificate-outlives-node",
        "a node made anew under its name works on the old certificate",
        _certificate_outlives_its_node,
        (Kind.NODE_REBIRTH, Kind.LATE_EVENTS, Kind.CUT_WATCHES),
    ),
    Mutant(
        "passes-with-open-fault",
        "a pass of one check releases a node whose other check is at fault",
        _passes_with_open_fault,
        (Kind.FAULTS,),
    ),
    Mutant(
        "release-lost-on-restart",
        "what a process held before its restart is never released",
        _release_lost_after_restart,
        (Kind.KILLS,),
        seed=3,
    ),
    Mutant(
        "second-repair-on-replay",
        "a cold start asks for a second repair: a second reboot",
        _second_repair_on_replay,
        (Kind.LOST_ANSWERS, Kind.FAULTS),
    ),
    Mutant(
        "released-before-durable",
        "the taint goes before the status is written",
        _released_before_durable,
        (Kind.LATE_EVENTS, Kind.FAULTS),
    ),
    Mutant(
        "fence-skipped",
        "a leader that was suspended writes on without asking for its lease",
        _fence_skipped,
        (Kind.FREEZES, Kind.FAULTS),
    ),
    Mutant(
        "gone-is-empty",
        "410 on a watch is read as an empty list",
        _gone_is_empty,
        (Kind.FORGOTTEN_HISTORY, Kind.LATE_EVENTS, Kind.WORK, Kind.FAULTS, Kind.REBOOTS),
    ),
    Mutant(
        "watch-stays-broken",
        "a watch that broke is never opened again",
        _broken_watch_stays_broken,
        (Kind.CUT_WATCHES,),
    ),
    Mutant(
        "old-fingerprint-admits",
        "a test of what the node was before admits what it is now",
        _old_fingerprint_admits,
        (Kind.ROLL_OUTS, Kind.REBOOTS),
    ),
    Mutant("unknown-acts", "a code that nobody knows cordons nodes", _unknown_acts, (Kind.UNKNOWN_FAULTS,)),
    Mutant(
        "undetermined-is-failed",
        "a test without a verdict blames the node",
        _undetermined_is_failed,
        (Kind.REBOOTS,),
        seed=3,
    ),
    Mutant("hold-ignored", "a person's hold does not end the way back into service", _hold_ignored, (Kind.WORDS,)),
    Mutant(
        "pause-ignored",
        "a person's pause does not stop drains and repairs",
        _pause_ignored,
        (Kind.WORDS, Kind.FAULTS),
        seed=2,
    ),
    Mutant(
        "history-cut", "old entries of the history are dropped too early", _history_cut, (Kind.FAULTS, Kind.WORDS)
    ),
    Mutant(
        "waits-for-what-is-gone",
        "a certification that somebody deleted is waited for, for ever",
        _waits_for_what_is_gone,
        (Kind.DELETIONS,),
    ),
    Mutant(
        "repairs-under-work",
        "the drain is skipped: the node boots under running work",
        _repairs_under_work,
        (Kind.WORK, Kind.FAULTS),
    ),
)


def named(name: str) -> Mutant:
    """The mutant of that name. Raises KeyError."""
    return {m.name: m for m in MUTANTS}[name]
