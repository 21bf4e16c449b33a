"""The repair controller: hands Repairs to the providers that they name and keeps their status.

Crash-only. Before a provider is asked for the first time the Repair is claimed: its status says `Running`, written
on condition that nobody else changed it. A controller that dies afterwards is continued by the next one, which asks
the provider again; the provider knows its own earlier work by the name of the Repair. A final phase is never left.
The queue holds nodes, not Repairs, so one node is in one worker's hands at a time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn, TypeVar, assert_never

import msgspec

from muster.clock import Clock
from muster.errors import BadInputError, MusterError, UnreachableError
from muster.kube.api import NODES, REPAIRS, ApiError, ConflictError, KubeApi, NotFoundError
from muster.kube.backoff import exponential_s
from muster.kube.cache import WatchCache
from muster.kube.events import EventRecorder
from muster.kube.metered import MeteredQueue
from muster.moments import after
from muster.operate.carry_out import NotLeadingError, always_leading
from muster.operate.outputs.action import Action
from muster.operate.providers.node_facts import absent, node_facts
from muster.operate.providers.provider import (
    FINAL,
    Delegated,
    NodeFactsForRepair,
    PermanentProviderError,
    Progress,
    Provider,
    Tidies,
    TransientProviderError,
)
from muster.operate.providers.status_writer import MANAGER, MESSAGE_LIMIT, StatusWriter
from muster.operate.providers.turn import Capability, Step, Turn, deadline_of, turns
from muster.operate.together import run_together
from muster.plain_text import plain
from muster.resources.repair import Repair, RepairPhase
from muster.telemetry.observer import ControllerObserver

log = logging.getLogger(__name__)
T = TypeVar("T")

WORKERS = 16
POLL_S = 10.0
"""How often a provider is asked how far it is, unless it says otherwise."""
CALL_LIMIT_S = 120.0
"""A provider that has not answered after this time is asked again: the outcome of the call is unknown."""
STOP_GRACE_S = 120.0
"""How long after the time limit it is tried to stop what is still under way and does not answer."""
RETRY_BASE_S = 2.0
RETRY_CAP_S = 60.0
RESYNC_S = 300.0
TIDY = "@tidy"

_decode = msgspec.json.Decoder(Repair, strict=False).decode


def project_repair(raw: bytes) -> Repair:
    """Decode one Repair. Raises msgspec.MsgspecError."""
    return _decode(raw)


@dataclass
class _Trouble:
    """Transient errors of one Repair in a row."""

    count: int = 0
    next_at: datetime | None = None


class RepairController:
    """Carries out Repairs whose `spec.provider` is the name of one of `providers`. One may run at a time."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        providers: Sequence[Provider],
        *,
        still_leading: Callable[[], Awaitable[bool]] = always_leading,
        observer: ControllerObserver | None = None,
        identity: str = MANAGER,
        tell: Callable[[str], None] = log.info,
        on_action: Callable[[Action], None] = lambda action: None,  # noqa: ARG005 - nobody listens
        workers: int = WORKERS,
        poll_s: float = POLL_S,
        call_limit_s: float = CALL_LIMIT_S,
    ) -> None:
        """`tell` receives one line for each begin and end, `on_action` the same for the audit log.

        Raises BadInputError when two providers have the same name.
        """
        self._providers = {provider.name: provider for provider in providers}
        if len(self._providers) != len(providers):
            raise BadInputError("Two repair providers have the same name; give each a name of its own.")
        self._able = {p.name: Capability(p.rungs, _delegated(p)) for p in providers}
        self._api = api
        self._clock = clock
        self._workers = workers
        self._poll_s = poll_s
        self._call_limit_s = call_limit_s
        self._queue = MeteredQueue(clock, observer or ControllerObserver())
        self._repairs: WatchCache[Repair] = WatchCache(
            api, REPAIRS, project_repair, clock=clock, on_change=self._changed
        )
        self._events = EventRecorder(api, clock=clock, controller=MANAGER, instance=identity)
        self._writer = StatusWriter(
            api, clock, self._events, still_leading=still_leading, tell=tell, on_action=on_action
        )
        self._identity = identity
        self._node_of: dict[str, str] = {}
        self._names_of: dict[str, set[str]] = {}
        self._trouble: dict[str, _Trouble] = {}
        self._random = random.Random(zlib.crc32(identity.encode()))  # noqa: S311 - jitter, not a secret
        self.synced = False

    async def run(self) -> None:
        """Work for ever; cancel it to stop. Raises NotLeadingError when another controller holds the lease."""
        try:
            await run_together(self._repairs.run(), self._events.run(), self._lead())
        finally:
            self._queue.close()
            for name in sorted(self._providers):
                await self._providers[name].close()

    async def _lead(self) -> None:
        await self._repairs.wait_synced()
        self.synced = True
        await run_together(self._resync(), *(self._work() for _ in range(self._workers)))

    async def _resync(self) -> NoReturn:
        while True:
            for key, repair in sorted(self._repairs.items().items()):
                if repair.status.phase not in FINAL:
                    self._queue.add(self._node_of.get(key, repair.spec.node_name))
            self._queue.add(TIDY)
            await self._clock.sleep(RESYNC_S)

    def _changed(self, key: str) -> None:
        repair = self._repairs.get(key)
        node, before = (repair.spec.node_name if repair is not None else ""), self._node_of.pop(key, "")
        if before and before != node:
            self._names_of[before].discard(key)
            if not self._names_of[before]:
                del self._names_of[before]
            self._queue.add(before)
        if node:
            self._node_of[key] = node
            self._names_of.setdefault(node, set()).add(key)
            self._queue.add(node)
        elif before:
            self._trouble.pop(key, None)
            self._writer.forget(key)
            # What it left behind, such as the labels of a node, is given back now and not in minutes.
            self._queue.add(TIDY)

    def _repairs_of(self, node: str) -> list[Repair]:
        """All Repairs of the node that are there, by name."""
        there = self._repairs.items()
        mine = {key: there[key] for key in sorted(self._names_of.get(node, ())) if key in there}
        return self._writer.present(mine)

    async def _work(self) -> NoReturn:
        while True:
            key = await self._queue.get()
            try:
                await (self._tidy() if key == TIDY else self._handle(key))
                self._queue.forget(key)
            except NotLeadingError:
                raise
            except ConflictError as error:
                log.debug("Repairs of %s changed meanwhile: %s", key, error)
                self._queue.retry(key)
            except (ApiError, UnreachableError) as error:
                # Also a GET that fails: it says nothing about whether the object is there.
                log.warning("Repairs of %s: %s; tried again", key, error)
                self._queue.retry(key)
            except Exception:
                log.exception("Repairs of %s cannot be handled; tried again", key)
                self._queue.retry(key)
            finally:
                self._queue.done(key)

    # One node

    async def _handle(self, node: str) -> None:
        repairs = self._repairs_of(node)
        if not any(r.spec.provider in self._able and r.status.phase not in FINAL for r in repairs):
            return
        facts = await self._facts(node)
        now = self._clock.now()
        for turn in turns(repairs, self._able, facts.uid if facts.present else None, now):
            if turn.recheck_at is not None:
                self._queue.add_after(node, max(0.001, (turn.recheck_at - now).total_seconds()))
            await self._take(turn, facts)

    async def _facts(self, node: str) -> NodeFactsForRepair:
        try:
            return node_facts(await self._api.get(NODES, node))
        except NotFoundError:
            return absent(node)

    async def _take(self, turn: Turn, facts: NodeFactsForRepair) -> None:
        repair = turn.repair
        match turn.step:
            case Step.WAIT:
                if turn.message and turn.message != repair.status.message:
                    await self._writer.write(repair, msgspec.structs.replace(repair.status, message=turn.message))
            case Step.CLOSE:
                await self._end(repair, turn.phase, turn.message)
            case Step.BEGIN | Step.LOOK | Step.CANCEL:
                await self._go_on(turn, facts)
            case Step.EXPIRE | Step.ABANDON:
                await self._stop(turn, facts)
            case _ as never:
                assert_never(never)

    async def _go_on(self, turn: Turn, facts: NodeFactsForRepair) -> None:
        repair, now = turn.repair, self._clock.now()
        trouble = self._trouble.get(repair.metadata.name)
        if trouble is not None and trouble.next_at is not None and now < trouble.next_at:
            self._queue.add_after(repair.spec.node_name, (trouble.next_at - now).total_seconds())
            return
        claimed = repair
        if turn.step is Step.BEGIN and repair.status.phase is RepairPhase.PENDING:
            claimed = await self._writer.claim(repair, self._identity)
        deadline = deadline_of(claimed, now)
        limit_s = min(self._call_limit_s, max(0.001, (deadline - now).total_seconds()))
        try:
            progress = await self._ask(turn.step, repair if turn.step is Step.BEGIN else claimed, facts, limit_s)
        except PermanentProviderError as error:
            await self._end(claimed, RepairPhase.FAILED, str(error))
            return
        except TransientProviderError as error:
            await self._suffer(claimed, turn.step, error)
            return
        self._trouble.pop(repair.metadata.name, None)
        await self._note(claimed, turn.step, progress)

    async def _ask(self, step: Step, repair: Repair, facts: NodeFactsForRepair, limit_s: float) -> Progress:
        """The provider's answer. Raises its errors; no answer in time, or a bug in it, is a transient one."""
        provider = self._providers[repair.spec.provider]
        await self._writer.fence()
        match step:
            case Step.BEGIN:
                call = provider.begin(repair, facts)
            case Step.LOOK:
                call = provider.look(repair, facts)
            case _:
                call = provider.cancel(repair, facts)
        try:
            return await within(self._clock, call, limit_s)
        except (PermanentProviderError, TransientProviderError, NotLeadingError):
            raise
        except TimeoutError as error:
            raise TransientProviderError(f"Provider {provider.name} did not answer within {limit_s:g} s") from error
        except (ApiError, UnreachableError) as error:
            raise TransientProviderError(str(error)) from error
        except MusterError as error:
            raise PermanentProviderError(str(error)) from error
        except Exception as error:
            log.exception("provider %s failed at %s of %s", provider.name, step.value, repair.metadata.name)
            text = f"Provider {provider.name} failed unexpectedly ({type(error).__name__}); the log has more"
            raise TransientProviderError(text) from error

    async def _suffer(self, repair: Repair, step: Step, error: TransientProviderError) -> None:
        """Try again with full jitter: between nothing and a delay that doubles, and not before the provider said."""
        trouble = self._trouble.setdefault(repair.metadata.name, _Trouble())
        wait_s = self._random.uniform(0.0, exponential_s(trouble.count, RETRY_BASE_S, RETRY_CAP_S))
        wait_s = max(0.5, wait_s, error.retry_after_s or 0.0)
        trouble.count += 1
        trouble.next_at = after(self._clock.now(), wait_s)
        self._queue.add_after(repair.spec.node_name, wait_s)
        said = plain(str(error), MESSAGE_LIMIT).rstrip(".")
        text = f"Could not {step.value} ({trouble.count} in a row): {said}. Tried again."
        log.warning("repair %s on %s: %s", repair.metadata.name, repair.spec.node_name, text)
        await self._writer.write(repair, msgspec.structs.replace(repair.status, message=text))

    async def _note(self, repair: Repair, step: Step, progress: Progress) -> None:
        """Write down what the provider answered, and when to ask again."""
        old = repair.status
        external = progress.external_id or old.external_id
        if progress.phase in FINAL:
            await self._end(repair, progress.phase, progress.message, external)
            return
        if not external and progress.phase is RepairPhase.RUNNING:
            external = repair.metadata.name
        status = msgspec.structs.replace(
            old, external_id=external, message=plain(progress.message, MESSAGE_LIMIT) or _still(step, external)
        )
        if status != old:
            repair = await self._writer.write(repair, status)
        pause_s = self._poll_s if progress.retry_after_s is None else max(0.5, progress.retry_after_s)
        left_s = (deadline_of(repair, self._clock.now()) - self._clock.now()).total_seconds()
        self._queue.add_after(repair.spec.node_name, min(pause_s, max(0.001, left_s)))

    async def _end(self, repair: Repair, phase: RepairPhase, message: str, external_id: str = "") -> None:
        await self._writer.end(repair, phase, message, external_id)
        self._trouble.pop(repair.metadata.name, None)
        self._queue.add(repair.spec.node_name)
        self._queue.add(TIDY)

    async def _stop(self, turn: Turn, facts: NodeFactsForRepair) -> None:
        """Out of time, or the wrong node: have it stopped, for a while also against resistance, then fail."""
        repair, now = turn.repair, self._clock.now()
        over = turn.step is Step.ABANDON or now >= after(deadline_of(repair, now), STOP_GRACE_S)
        try:
            progress = await self._ask(Step.CANCEL, repair, facts, min(self._call_limit_s, STOP_GRACE_S))
        except PermanentProviderError as error:
            await self._end(repair, RepairPhase.FAILED, f"{turn.message} It could not be stopped: {error}")
            return
        except TransientProviderError as error:
            if over:
                await self._end(repair, RepairPhase.FAILED, f"{turn.message} It could not be stopped: {error}")
            else:
                self._queue.add_after(repair.spec.node_name, self._random.uniform(1.0, self._poll_s))
            return
        if progress.phase is RepairPhase.DONE and turn.step is Step.EXPIRE:
            await self._end(repair, RepairPhase.DONE, progress.message, progress.external_id)
        elif progress.phase in FINAL or over:
            await self._end(repair, RepairPhase.FAILED, turn.message, progress.external_id)
        else:
            self._queue.add_after(repair.spec.node_name, self._poll_s)

    async def _tidy(self) -> None:
        running = [r for r in self._writer.present(self._repairs.items()) if r.status.phase is RepairPhase.RUNNING]
        for name in sorted(self._providers):
            provider = self._providers[name]
            if not isinstance(provider, Tidies):
                continue
            await self._writer.fence()
            try:
                mine = tuple(r for r in running if r.spec.provider == name)
                await within(self._clock, provider.tidy(mine), self._call_limit_s)
            except (NotLeadingError, ApiError, UnreachableError):
                raise
            except (MusterError, TimeoutError) as error:
                log.warning("provider %s could not tidy up: %s; tried again", name, error or "no answer in time")


async def within(clock: Clock, call: Coroutine[Any, Any, T], seconds: float) -> T:
    """The result of `call`, which is cancelled after `seconds` of the clock's time. Raises TimeoutError then."""
    task = asyncio.get_running_loop().create_task(call)
    limit = asyncio.get_running_loop().create_task(clock.sleep(seconds))
    try:
        await asyncio.wait((task, limit), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        limit.cancel()
        task.cancel()


def _delegated(provider: Provider) -> bool:
    return isinstance(provider, Delegated) and provider.delegated


def _still(step: Step, external: str) -> str:
    return "Being stopped." if step is Step.CANCEL else f"Under way as {external}." if external else "Not begun yet."
