"""The baseline controller: compares the cluster with each `Baseline`, again and again, and writes what it finds.

It changes nothing but the status of the Baseline. A node whose identity or stack changed is certified again
by the node controller, as the drift policy of its FaultPolicy says.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn

import msgspec

from muster.clock import Clock
from muster.controller.baseline_report import Comparison, compared, news, not_compared
from muster.errors import BadInputError, DeadlineError, UnreachableError
from muster.kube.api import (
    BASELINES,
    ApiError,
    ConflictError,
    ForbiddenError,
    KubeApi,
    NotFoundError,
    TooManyRequestsError,
)
from muster.kube.cache import WatchCache
from muster.kube.events import EventKind, EventRecorder, Regarding
from muster.kube.queue import WorkQueue
from muster.operate.carry_out import NotLeadingError, Writer, always_leading
from muster.operate.together import run_together
from muster.resources.base import API_VERSION, CONTROLLER_MANAGER, ConditionStatus, to_object
from muster.resources.baseline import AssertionResult, Baseline, BaselineSpec, BaselineStatus

log = logging.getLogger(__name__)

Compare = Callable[[BaselineSpec], Awaitable[Comparison]]
"""Reads the cluster and compares it. Raises BadInputError (unusable recipe), ApiError, UnreachableError."""

_decoder = msgspec.json.Decoder(Baseline, strict=False)


class BaselineController:
    """Watches the Baselines of one cluster. Exactly one may run at a time (see the election)."""

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        compare: Compare,
        *,
        identity: str = CONTROLLER_MANAGER,
        still_leading: Callable[[], Awaitable[bool]] = always_leading,
        tell: Callable[[str], None] = log.info,
    ) -> None:
        """`tell` receives one line whenever a baseline begins or ceases to match."""
        self._api = api
        self._clock = clock
        self._compare = compare
        self._tell = tell
        self._queue = WorkQueue(clock)
        self._fence = Writer(api, clock, still_leading).fence
        self._events = EventRecorder(api, clock=clock, controller="muster-controller", instance=identity)
        self._baselines: WatchCache[Baseline] = WatchCache(
            api, BASELINES, _decoder.decode, clock=clock, on_change=self._changed
        )

    async def run(self) -> None:
        """Work for ever; cancel it to stop. Raises NotLeadingError when another controller holds the lease."""
        try:
            await run_together(self._baselines.run(), self._events.run(), self._work())
        finally:
            self._queue.close()

    def figures(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """(Baselines by result, findings by kind), of the last comparisons."""
        statuses = [b.status for b in self._baselines.items().values()]
        results = Counter((s.result or AssertionResult.UNKNOWN).value for s in statuses)
        counts = [s.counts for s in statuses if s.counts is not None]
        return {r.value: results[r.value] for r in AssertionResult}, {
            "failed": sum(c.failed for c in counts),
            "unknown": sum(c.unknown for c in counts),
            "drifted": sum(c.drifted for c in counts),
        }

    def _changed(self, name: str) -> None:
        found = self._baselines.get(name)
        # Our own writes come back as changes; only a new spec is a reason to compare before the time.
        if found is None or found.metadata.generation != found.status.observed_generation:
            self._queue.add(name)

    async def _work(self) -> NoReturn:
        await self._baselines.wait_synced()
        for name in sorted(self._baselines.items()):
            self._queue.add(name)
        while True:
            name = await self._queue.get()
            try:
                await self._handle(name)
                self._queue.forget(name)
            except NotLeadingError:
                raise
            except TooManyRequestsError as error:
                self._queue.add_after(name, error.retry_after_s or 1.0)
            except (ConflictError, NotFoundError) as error:
                log.debug("baseline %s changed meanwhile: %s", name, error)
                self._queue.retry(name)
            except (ApiError, UnreachableError) as error:
                log.warning("baseline %s: %s; it is tried again", name, error)
                self._queue.retry(name)
            except Exception:
                # What stands in one baseline must not stop the others.
                log.exception("baseline %s cannot be compared; it is tried again", name)
                self._queue.retry(name)
            finally:
                self._queue.done(name)

    async def _handle(self, name: str) -> None:
        baseline = self._baselines.get(name)
        if baseline is None or baseline.metadata.deletion_timestamp is not None:
            return
        generation, before = baseline.metadata.generation, baseline.status
        try:
            found = await self._compare(baseline.spec)
        except BadInputError as error:
            after = not_compared("RecipeRefused", str(error), generation, self._clock.now(), before)
        except ForbiddenError as error:
            message = f"The controller may not read what the recipe needs: {error}"
            after = not_compared("Forbidden", message, generation, self._clock.now(), before)
        except (UnreachableError, DeadlineError) as error:
            after = not_compared("NotReadable", str(error), generation, self._clock.now(), before)
        else:
            after = compared(found, generation, self._clock.now(), before)
        await self._write(baseline, after)
        self._queue.add_after(name, baseline.spec.interval_s)

    async def _write(self, baseline: Baseline, after: BaselineStatus) -> None:
        name = baseline.metadata.name
        await self._fence()
        body = {
            "apiVersion": API_VERSION,
            "kind": BASELINES.kind,
            "metadata": {"name": name, "uid": baseline.metadata.uid},
            "status": to_object(after),
        }
        await self._api.apply(BASELINES, body, manager=CONTROLLER_MANAGER, subresource="status")
        told = news(baseline.status, after)
        if told is not None:
            warning = told.status is not ConditionStatus.TRUE
            self._tell(f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ} baseline {name} {told.reason}: {told.message}")
            self._events.record(
                Regarding(API_VERSION, BASELINES.kind, name, uid=baseline.metadata.uid),
                told.reason,
                "Comparing",
                told.message or told.reason,
                EventKind.WARNING if warning else EventKind.NORMAL,
            )
