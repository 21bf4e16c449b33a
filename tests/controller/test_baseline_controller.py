"""The baseline controller against the simulated API: when it compares, what it writes, when it stays silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from muster.clock import Clock
from muster.controller.baseline_controller import BaselineController
from muster.controller.baseline_report import Comparison
from muster.controller.process import ControllerProcess
from muster.errors import BadInputError, UnreachableError
from muster.kube.api import BASELINES, CRDS, EVENTS, NAMESPACES, AlreadyExistsError, ForbiddenError, KubeApi
from muster.operate.carry_out import NotLeadingError
from muster.resources import crd
from muster.resources.base import API_VERSION, SYSTEM_NAMESPACE, from_object
from muster.resources.baseline import Assertion, AssertionResult, Baseline, BaselineSpec, Drift, DriftClass
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual

GOOD = Comparison("sha256:1", (Assertion(name="nfd", result=AssertionResult.PASSED),), ())
BAD = Comparison(
    "sha256:1", (), (Drift(drift_class=DriftClass.VERSION, component="nfd", path="version", expected="1", found="2"),)
)


class Bed:
    """One simulated API, one controller, and a comparison that the test decides."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.api = InProcessApi(Store(clock, seed=1))
        self.lines: list[str] = []
        self.compared: list[tuple[float, str]] = []
        self.found: Comparison | Exception = GOOD
        self.leading = True

    async def compare(self, spec: BaselineSpec) -> Comparison:
        self.compared.append((self.clock.elapsed_s, spec.recipe))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    async def lead(self) -> bool:
        return self.leading

    def controller(self) -> BaselineController:
        return BaselineController(self.api, self.clock, self.compare, still_leading=self.lead, tell=self.lines.append)

    async def install(self) -> None:
        for manifest in crd.manifests():
            await self.api.create(CRDS, dict(manifest))
        for namespace in ("default", SYSTEM_NAMESPACE):
            with suppress(AlreadyExistsError):
                await self.api.create(
                    NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                )

    async def create(self, recipe: str = "a", interval_s: float = 300) -> None:
        body = {
            "apiVersion": API_VERSION,
            "kind": "Baseline",
            "metadata": {"name": "cluster"},
            "spec": {"recipe": recipe, "intervalS": interval_s},
        }
        await self.api.create(BASELINES, body)

    async def read(self) -> Baseline:
        return from_object(Baseline, await self.api.get(BASELINES, "cluster"))


def play(story: Callable[[Bed], Awaitable[None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install()
        task = asyncio.ensure_future(bed.controller().run())
        try:
            await story(bed)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    run_virtual(main)


def test_it_compares_at_once_and_then_at_its_interval() -> None:
    async def story(bed: Bed) -> None:
        await bed.create()
        await bed.clock.sleep(1000)
        assert len(bed.compared) == 4
        gaps = [b - a for (a, _), (b, _) in zip(bed.compared, bed.compared[1:], strict=False)]
        assert gaps == pytest.approx([300] * 3, abs=1)
        status = (await bed.read()).status
        assert status.result is AssertionResult.PASSED
        assert status.recipe_digest == "sha256:1"

    play(story)


def test_a_new_recipe_is_compared_before_the_time() -> None:
    async def story(bed: Bed) -> None:
        await bed.create()
        await bed.clock.sleep(10)
        obj = await bed.api.get(BASELINES, "cluster")
        await bed.api.replace(BASELINES, {**obj, "spec": {"recipe": "b"}})
        await bed.clock.sleep(10)
        assert [recipe for _, recipe in bed.compared] == ["a", "b"]
        baseline = await bed.read()
        assert baseline.status.observed_generation == baseline.metadata.generation == 2

    play(story)


def test_people_hear_of_changes_and_of_nothing_else() -> None:
    async def story(bed: Bed) -> None:
        await bed.create(interval_s=60)
        await bed.clock.sleep(200)
        bed.found = BAD
        await bed.clock.sleep(200)
        bed.found = GOOD
        await bed.clock.sleep(200)
        told = [line.split("baseline cluster ", 1)[1].split(":")[0] for line in bed.lines]
        assert told == ["Matches", "Drifted", "Matches"]
        events = (await bed.api.list_page(EVENTS, "default")).items
        assert len(events) == 3
        assert sum(b'"Warning"' in raw for raw in events) == 1

    play(story)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BadInputError("The recipe was changed."), "RecipeRefused"),
        (ForbiddenError(403, "Forbidden", "secrets is forbidden"), "Forbidden"),
        (UnreachableError("no answer"), "NotReadable"),
    ],
)
def test_what_cannot_be_compared_is_unknown_and_tried_again(error: Exception, reason: str) -> None:
    async def story(bed: Bed) -> None:
        bed.found = error
        await bed.create(interval_s=60)
        await bed.clock.sleep(10)
        status = (await bed.read()).status
        assert status.result is AssertionResult.UNKNOWN
        assert status.conditions[0].reason == reason
        assert str(error) in status.conditions[0].message
        bed.found = GOOD
        await bed.clock.sleep(60)
        assert (await bed.read()).status.result is AssertionResult.PASSED

    play(story)


def test_who_does_not_lead_writes_nothing() -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install()
        bed.leading = False
        await bed.create()
        with pytest.raises(NotLeadingError):
            await bed.controller().run()
        assert (await bed.read()).status.checked_at is None

    run_virtual(main)


def test_a_baseline_that_breaks_the_comparison_does_not_stop_the_others() -> None:
    async def story(bed: Bed) -> None:
        bed.found = RuntimeError("a bug")
        await bed.create()
        await bed.clock.sleep(30)
        assert len(bed.compared) > 1
        bed.found = GOOD
        await bed.clock.sleep(300)
        assert (await bed.read()).status.result is AssertionResult.PASSED

    play(story)


def test_figures_are_those_of_the_last_comparisons() -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install()
        bed.found = BAD
        controller = bed.controller()
        task = asyncio.ensure_future(controller.run())
        await bed.create()
        await clock.sleep(10)
        results, findings = controller.figures()
        assert results == {"passed": 0, "failed": 1, "unknown": 0}
        assert findings == {"failed": 0, "unknown": 0, "drifted": 1}
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run_virtual(main)


class Idle:
    """Stands for the certification controller."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        pass

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("watched", [True, False])
def test_a_process_looks_at_baselines_only_where_it_is_told_how(watched: bool) -> None:
    async def main(clock: VirtualClock) -> None:
        bed = Bed(clock)
        await bed.install()
        await bed.create()
        process = ControllerProcess(
            lambda: bed.api,
            clock,
            "one",
            tell=bed.lines.append,
            certifications=Idle,
            compare=(lambda _: bed.compare) if watched else None,
        )
        task = asyncio.ensure_future(process.run())
        await clock.sleep(1000)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert any("leads" in line for line in bed.lines)
        assert ((await bed.read()).status.checked_at is not None) is watched

    run_virtual(main)
