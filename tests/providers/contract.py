"""What every provider must stand. Each provider's tests inherit `ProviderContract` and say what lies behind it.

Every test runs the real repair controller on an API server, in virtual time.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from muster.kube.api import NODES, REPAIRS, PatchType
from muster.operate.carry_out import NotLeadingError
from muster.operate.providers.node_facts import node_facts
from muster.operate.providers.provider import FINAL, Provider
from muster.resources.repair import RepairPhase, Rung
from muster.sim.virtual import VirtualClock, run_virtual
from tests.providers.bed import NODE, Bed, StalledApi, bed, running


class Bench(ABC):
    """The machine, cloud or service behind a provider."""

    rung: ClassVar[Rung] = Rung.REBOOT
    node: ClassVar[dict[str, Any]] = {}
    stops: ClassVar[bool] = False
    """Whether a repair that has begun can be stopped, so that it ends as Cancelled."""
    reports_failure: ClassVar[bool] = True
    """Whether what is behind it can say of accepted work that it failed."""

    def __init__(self, on: Bed) -> None:
        self.bed = on
        self.works: list[str] = []
        """One entry for each piece of work that was really begun."""
        self.ok: bool | None = True
        """How work ends; None: never."""

    @abstractmethod
    def provider(self) -> Provider:
        """A fresh one, as after a restart of the process."""

    @abstractmethod
    def break_next(self, times: int, how: str) -> None:
        """Of the next requests so many go wrong: `transient`, `lost` (done, but no answer), `permanent`."""

    async def run(self) -> None:
        """What the world does beside: for ever."""
        await asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return


class ProviderContract(ABC):
    bench: ClassVar[Callable[[Bed], Bench]]

    @asynccontextmanager
    async def world(self, clock: VirtualClock) -> AsyncIterator[Bench]:
        make = type(self).bench
        on = await bed(clock, make.node)  # type: ignore[attr-defined]
        behind = make(on)
        await behind.start()
        try:
            async with running(behind.run()):
                yield behind
        finally:
            await behind.close()

    def play(self, act: Callable[[Bench], Awaitable[None]]) -> None:
        async def main(clock: VirtualClock) -> None:
            async with self.world(clock) as behind:
                await act(behind)

        run_virtual(main)

    def test_one_repair_is_one_piece_of_work(self) -> None:
        async def act(b: Bench) -> None:
            await b.bed.ask("r1", "p", b.rung)
            async with running(b.bed.controller([b.provider()]).run()):
                done = await b.bed.ended("r1")
            assert (done.status.phase, len(b.works)) == (RepairPhase.DONE, 1), done.status
            assert done.status.external_id
            assert done.status.started_at is not None
            assert done.status.finished_at is not None
            assert [a.action for a in b.bed.actions] == ["repair-begun", "repair-ended"]

        self.play(act)

    def test_begin_twice_is_one_piece_of_work(self) -> None:
        async def act(b: Bench) -> None:
            await b.bed.ask("r1", "p", b.rung)
            status = {"status": {"phase": "Running", "startedAt": b.bed.clock.now().isoformat()}}
            first, second = b.provider(), b.provider()
            repair = await b.bed.repair("r1")
            facts = node_facts(await b.bed.node())
            await first.begin(repair, facts)
            await b.bed.api.patch(REPAIRS, "r1", status, PatchType.MERGE, subresource="status")
            await second.begin(await b.bed.repair("r1"), facts)
            await first.close()
            await second.close()
            assert len(b.works) <= 1
            async with running(b.bed.controller([b.provider()]).run()):
                done = await b.bed.ended("r1")
            assert (done.status.phase, len(b.works)) == (RepairPhase.DONE, 1), done.status

        self.play(act)

    @pytest.mark.parametrize("writes", [0, 1, 2, 3])
    def test_a_crash_before_any_write_of_the_status(self, writes: int) -> None:
        """The process dies when it is about to write; the next one goes on."""

        async def act(b: Bench) -> None:
            await b.bed.ask("r1", "p", b.rung)
            api = StalledApi(b.bed.api, writes)
            async with running(b.bed.controller([b.provider()], api).run()):
                await asyncio.wait(
                    {asyncio.ensure_future(api.dead.wait()), asyncio.ensure_future(b.bed.clock.sleep(400))},
                    return_when=asyncio.FIRST_COMPLETED,
                )
            async with running(b.bed.controller([b.provider()]).run()):
                done = await b.bed.ended("r1")
            assert (done.status.phase, len(b.works)) == (RepairPhase.DONE, 1), done.status

        self.play(act)

    def test_an_answer_that_is_lost_is_not_asked_for_by_doing_it_again(self) -> None:
        async def act(b: Bench) -> None:
            b.break_next(1, "lost")
            await b.bed.ask("r1", "p", b.rung)
            async with running(b.bed.controller([b.provider()]).run()):
                done = await b.bed.ended("r1")
            assert (done.status.phase, len(b.works)) == (RepairPhase.DONE, 1), done.status

        self.play(act)

    def test_transient_errors_go_on_and_are_told(self) -> None:
        async def act(b: Bench) -> None:
            b.break_next(3, "transient")
            await b.bed.ask("r1", "p", b.rung)
            said: set[str] = set()

            async def over() -> bool:
                found = await b.bed.repair("r1")
                said.add(found.status.message)
                return found.status.phase in FINAL

            async with running(b.bed.controller([b.provider()]).run()):
                await b.bed.until(over, step_s=0.2)
            done = await b.bed.repair("r1")
            assert (done.status.phase, len(b.works)) == (RepairPhase.DONE, 1), done.status
            assert any("in a row)" in text and "Tried again" in text for text in said), said

        self.play(act)

    def test_transient_errors_for_ever_end_with_the_time_limit(self) -> None:
        async def act(b: Bench) -> None:
            b.break_next(10**6, "transient")
            await b.bed.ask("r1", "p", b.rung, timeout_s=600)
            async with running(b.bed.controller([b.provider()]).run()):
                done = await b.bed.ended("r1", 1000)
            assert done.status.phase is RepairPhase.FAILED
            assert "600 s" in done.status.message
            assert b.works == []

        self.play(act)

    def test_a_permanent_error_fails_at_once(self) -> None:
        async def act(b: Bench) -> None:
            b.break_next(10**6, "permanent")
            await b.bed.ask("r1", "p", b.rung)
            async with running(b.bed.controller([b.provider()]).run()):
                done = await b.bed.ended("r1", 120)
            assert done.status.phase is RepairPhase.FAILED
            assert len(done.status.message) > 20
            assert b.works == []

        self.play(act)

    def test_work_that_fails_is_failed(self) -> None:
        async def act(b: Bench) -> None:
            b.ok = False
            await b.bed.ask("r1", "p", b.rung, timeout_s=1200)
            async with running(b.bed.controller([b.provider()]).run()):
                done = await b.bed.ended("r1", 2000)
            assert (done.status.phase, len(b.works)) == (RepairPhase.FAILED, 1), done.status

        self.play(act)

    def test_work_that_never_ends_fails_with_the_time_limit_and_stays_so(self) -> None:
        async def act(b: Bench) -> None:
            b.ok = None
            await b.bed.ask("r1", "p", b.rung, timeout_s=900)
            async with running(b.bed.controller([b.provider()]).run()):
                done = await b.bed.ended("r1", 1300)
                assert done.status.phase is RepairPhase.FAILED
                assert "900 s" in done.status.message
                b.ok = True  # the provider answers after all
                await b.bed.clock.sleep(2000)
            assert (await b.bed.repair("r1")).status == done.status
            assert len(b.works) == 1

        self.play(act)

    def test_cancelled_before_it_began(self) -> None:
        async def act(b: Bench) -> None:
            await b.bed.ask("r1", "p", b.rung, cancel=True)
            async with running(b.bed.controller([b.provider()]).run()):
                done = await b.bed.ended("r1", 60)
            assert (done.status.phase, b.works) == (RepairPhase.CANCELLED, [])

        self.play(act)

    def test_cancelled_after_it_began(self) -> None:
        async def act(b: Bench) -> None:
            b.ok = None
            await b.bed.ask("r1", "p", b.rung, timeout_s=1200)

            async def begun() -> bool:
                return bool(b.works)

            async with running(b.bed.controller([b.provider()]).run()):
                await b.bed.until(begun)
                await b.bed.cancel("r1")
                await b.bed.clock.sleep(60)
                b.ok = True
                done = await b.bed.ended("r1", 2000)
            wanted = (RepairPhase.CANCELLED,) if b.stops else (RepairPhase.DONE,)
            assert done.status.phase in wanted, done.status
            assert len(b.works) == 1

        self.play(act)

    def test_a_node_deleted_and_created_again_is_left_alone(self) -> None:
        async def act(b: Bench) -> None:
            await b.bed.ask("r1", "p", b.rung)
            await b.bed.api.delete(NODES, NODE)
            await b.bed.add_node(b.node)
            async with running(b.bed.controller([b.provider()]).run()):
                done = await b.bed.ended("r1", 60)
            assert (done.status.phase, b.works) == (RepairPhase.FAILED, [])
            assert "another node" in done.status.message

        self.play(act)

    def test_repairs_of_one_node_wait_for_each_other(self) -> None:
        async def act(b: Bench) -> None:
            for name in ("r2", "r1", "r3"):
                await b.bed.ask(name, "p", b.rung)
                await b.bed.clock.sleep(1)
            overlaps: list[int] = []

            async def over() -> bool:
                found = [await b.bed.repair(name) for name in ("r1", "r2", "r3")]
                overlaps.append(sum(r.status.phase is RepairPhase.RUNNING for r in found))
                return all(r.status.phase in FINAL for r in found)

            async with running(b.bed.controller([b.provider()]).run()):
                await b.bed.until(over, 4 * 3600)
            assert max(overlaps) == 1
            begun = [a.target for a in b.bed.actions if a.action == "repair-begun"]
            assert begun == ["Repair/r2", "Repair/r1", "Repair/r3"]

        self.play(act)

    def test_an_old_leader_begins_nothing(self) -> None:
        async def act(b: Bench) -> None:
            await b.bed.ask("r1", "p", b.rung)

            async def not_leading() -> bool:
                return False

            with pytest.raises(NotLeadingError):
                await b.bed.controller([b.provider()], still_leading=not_leading).run()
            assert b.works == []
            assert (await b.bed.repair("r1")).status.phase is RepairPhase.PENDING

        self.play(act)

    def test_two_controllers_at_once_begin_one_piece_of_work(self) -> None:
        async def act(b: Bench) -> None:
            await b.bed.ask("r1", "p", b.rung)
            both = [b.bed.controller([b.provider()], identity=name).run() for name in ("one", "two")]
            async with running(*both):
                done = await b.bed.ended("r1")
            assert (done.status.phase, len(b.works)) == (RepairPhase.DONE, 1), done.status

        self.play(act)
