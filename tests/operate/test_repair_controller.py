"""The repair controller beyond the contract of providers: whose turn it is, bad answers, what is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.kube.api import NODES, REPAIRS, ForbiddenError, Object, PatchType, ServerError
from muster.operate.providers.config import ExternalSettings
from muster.operate.providers.external import ExternalProvider
from muster.operate.providers.provider import FINAL, NodeFactsForRepair, Progress
from muster.operate.providers.turn import FOREIGN_MARGIN_S, Capability, Step, turns
from muster.resources.base import ObjectMeta
from muster.resources.repair import Repair, RepairPhase, RepairSpec, RepairStatus, Rung
from muster.sim.virtual import VirtualClock, run_virtual
from tests.providers.bed import NODE, Bed, bed, running
from tests.providers.stand_in import Service, StandIn

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
ALL = frozenset(Rung)
OURS = {"p": Capability(ALL), "few": Capability(frozenset({Rung.REBOOT})), "hands": Capability(ALL, delegated=True)}


def play(act: Callable[[Bed, Service], Awaitable[None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        await act(await bed(clock), Service(clock))

    run_virtual(main)


@st.composite
def repairs(draw: st.DrawFn) -> tuple[Repair, ...]:
    found = []
    for index in range(draw(st.integers(0, 5))):
        phase = draw(st.sampled_from(RepairPhase))
        age_s = draw(st.integers(0, 4000))
        begun = phase is not RepairPhase.PENDING
        found.append(
            Repair(
                metadata=ObjectMeta(name=f"r{index}", creation_timestamp=NOW - timedelta(seconds=age_s)),
                spec=RepairSpec(
                    node_name=NODE,
                    node_uid=draw(st.sampled_from(["u1", "u2", ""])),
                    episode="e",
                    rung=draw(st.sampled_from(Rung)),
                    provider=draw(st.sampled_from(["p", "few", "hands", "other"])),
                    timeout_s=draw(st.sampled_from([60, 1800])),
                    cancel=draw(st.booleans()),
                ),
                status=RepairStatus(
                    phase=phase,
                    started_at=NOW - timedelta(seconds=age_s // 2) if begun else None,
                    external_id=draw(st.sampled_from(["", "op"])) if begun else "",
                ),
            )
        )
    return tuple(found)


@given(there=repairs(), uid=st.sampled_from(["u1", None]), shuffle=st.randoms(use_true_random=False))
def test_at_most_one_begins_and_never_beside_another(
    there: tuple[Repair, ...], uid: str | None, shuffle: Any
) -> None:
    found = turns(there, OURS, uid, NOW)
    mixed = list(there)
    shuffle.shuffle(mixed)
    assert turns(mixed, OURS, uid, NOW) == found, "the order of the objects decides nothing"
    fresh = [t.repair for t in found if t.step is Step.BEGIN and t.repair.status.phase is RepairPhase.PENDING]
    busy = [r for r in there if r.status.phase is RepairPhase.RUNNING and r.spec.provider in ("p", "few")]
    assert len(fresh) <= 1
    assert not (fresh and busy)
    for turn in found:
        spec = turn.repair.spec
        assert turn.repair.status.phase not in FINAL
        assert spec.provider in OURS
        if turn.step is Step.BEGIN:
            assert not spec.cancel
            assert spec.rung in OURS[spec.provider].rungs or turn.repair.status.phase is RepairPhase.RUNNING
        if spec.provider == "hands":
            assert turn.step in (Step.WAIT, Step.CLOSE)
            assert turn.step is Step.WAIT or turn.repair.status.phase is RepairPhase.PENDING
        if turn.step is Step.WAIT and turn.repair.status.phase is RepairPhase.PENDING:
            assert turn.recheck_at is not None
            assert turn.recheck_at > NOW


def test_a_foreign_repair_that_never_ends_blocks_for_its_time_only() -> None:
    async def act(on: Bed, service: Service) -> None:
        await on.ask("r0", "somebody", Rung.REBOOT, timeout_s=300)
        started = {"status": {"phase": "Running", "startedAt": on.clock.now().isoformat()}}
        await on.api.patch(REPAIRS, "r0", started, PatchType.MERGE, subresource="status")
        await on.clock.sleep(1)
        await on.ask("r1", "p", Rung.REBOOT)
        async with running(on.controller([StandIn(service)]).run()):
            await on.clock.sleep(200)
            waiting = await on.repair("r1")
            assert waiting.status.phase is RepairPhase.PENDING
            assert "r0" in waiting.status.message
            await on.clock.sleep(100 + FOREIGN_MARGIN_S + 10)
            assert service.order == ["r1"]

    play(act)


class Unwell:
    """A client whose GETs of Nodes fail."""

    def __init__(self, on: Bed, error: Exception) -> None:
        self._api = on.api
        self.error: Exception | None = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def get(self, res: Any, *args: Any, **kwargs: Any) -> Object:
        if res is NODES and self.error is not None:
            raise self.error
        return await self._api.get(res, *args, **kwargs)


@pytest.mark.parametrize("error", [ServerError(503, "", "starting"), ForbiddenError(403, "Forbidden", "no")])
def test_a_get_that_fails_is_not_read_as_a_node_that_is_gone(error: Exception) -> None:
    async def act(on: Bed, service: Service) -> None:
        api = Unwell(on, error)
        await on.ask("r1", "p", Rung.REBOOT)
        async with running(on.controller([StandIn(service)], api).run()):
            await on.clock.sleep(60)
            assert (await on.repair("r1")).status.phase is RepairPhase.PENDING
            assert service.order == []
            api.error = None
            done = await on.ended("r1")
        assert done.status.phase is RepairPhase.DONE

    play(act)


def test_a_node_that_is_gone_refuses_the_repair() -> None:
    async def act(on: Bed, service: Service) -> None:
        await on.ask("r1", "p", Rung.REBOOT)
        await on.api.delete(NODES, NODE)
        async with running(on.controller([StandIn(service)]).run()):
            done = await on.ended("r1", 30)
        assert (done.status.phase, service.order) == (RepairPhase.FAILED, [])
        assert "there is no node gpu-001" in done.status.message
        assert [a.action for a in on.actions] == ["repair-refused"]

    play(act)


def test_a_node_that_is_replaced_while_the_repair_runs_ends_it() -> None:
    async def act(on: Bed, service: Service) -> None:
        service.ok = None
        await on.ask("r1", "p", Rung.REBOOT)
        async with running(on.controller([StandIn(service)]).run()):
            await on.clock.sleep(20)
            await on.api.delete(NODES, NODE)
            await on.add_node({})
            done = await on.ended("r1", 60)
        assert done.status.phase is RepairPhase.FAILED
        assert "another node" in done.status.message
        assert service.cancelled == ["r1"]

    play(act)


def test_begin_and_end_are_told_to_people_and_to_the_audit_log() -> None:
    async def act(on: Bed, service: Service) -> None:
        await on.ask("r1", "p", Rung.REBOOT)
        async with running(on.controller([StandIn(service)]).run()):
            await on.ended("r1")
            await on.clock.sleep(5)
        events = [
            (e["reason"], e["action"], e["regarding"]["kind"], e["regarding"]["name"]) for e in await on.events()
        ]
        assert sorted(events) == [("RepairBegun", "reboot", "Node", NODE), ("RepairDone", "reboot", "Node", NODE)]
        assert len(on.lines) == 2
        assert "repair r1 node=gpu-001 rung=reboot provider=p action=repair-ended phase=Done" in on.lines[1]
        begun, ended = on.actions
        assert (begun.actor, begun.target, begun.node, begun.episode) == ("muster/p", "Repair/r1", NODE, "e1")
        assert (begun.action, ended.action, ended.result.value) == ("repair-begun", "repair-ended", "done")

    play(act)


def test_a_provider_with_a_bug_ends_with_the_time_limit_and_stops_nobody_else() -> None:
    class Broken(StandIn):
        async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
            raise KeyError("outlet")

    class Hanging(StandIn):
        async def begin(self, repair: Repair, node: NodeFactsForRepair) -> Progress:
            await self._service.clock.sleep(10**9)
            raise AssertionError

    async def act(on: Bed, service: Service) -> None:
        await on.ask("r1", "broken", Rung.REBOOT, timeout_s=300)
        await on.clock.sleep(1)
        await on.ask("r2", "hanging", Rung.REBOOT, timeout_s=300)
        await on.clock.sleep(1)
        await on.ask("r3", "p", Rung.REBOOT, timeout_s=3000)
        providers = [Broken(service, "broken"), Hanging(service, "hanging"), StandIn(service)]
        async with running(on.controller(providers).run()):
            await on.clock.sleep(30)
            assert "KeyError" in (await on.repair("r1")).status.message
            done = [await on.ended(name) for name in ("r1", "r2", "r3")]
        assert [d.status.phase for d in done] == [RepairPhase.FAILED, RepairPhase.FAILED, RepairPhase.DONE]

    play(act)


def test_a_repair_deleted_while_it_runs_harms_nobody() -> None:
    async def act(on: Bed, service: Service) -> None:
        service.ok = None
        await on.ask("r1", "p", Rung.REBOOT)
        async with running(on.controller([StandIn(service)]).run()):
            await on.clock.sleep(20)
            await on.api.delete(REPAIRS, "r1")
            await on.clock.sleep(5)
            service.ok = True
            await on.ask("r2", "p", Rung.REBOOT)
            done = await on.ended("r2")
        assert done.status.phase is RepairPhase.DONE

    play(act)


def test_a_hostile_status_is_no_reason_to_stop() -> None:
    """Somebody else writes nonsense into the status of a Repair that runs."""

    async def act(on: Bed, service: Service) -> None:
        await on.ask("r1", "p", Rung.REBOOT)
        nonsense = {"status": {"phase": "Running", "startedAt": "9999-12-31T23:59:59Z", "externalId": "x" * 900}}
        await on.api.patch(REPAIRS, "r1", nonsense, PatchType.MERGE, subresource="status")
        service.begun["r1"] = on.clock.now()
        async with running(on.controller([StandIn(service)]).run()):
            done = await on.ended("r1")
        assert done.status.phase is RepairPhase.DONE

    play(act)


def test_two_providers_of_one_name_are_refused() -> None:
    async def act(on: Bed, service: Service) -> None:
        with pytest.raises(BadInputError, match="same name"):
            on.controller([StandIn(service), StandIn(service)])

    play(act)


# Somebody else's controller


def hands() -> ExternalProvider:
    return ExternalProvider(ExternalSettings(name="hands"))


@pytest.mark.parametrize(
    ("spec", "phase", "said"),
    [
        ({"cancel": True}, RepairPhase.CANCELLED, "before it began"),
        ({"node_uid": "another"}, RepairPhase.FAILED, "another node"),
        ({"timeout_s": 600}, RepairPhase.FAILED, "nobody took it up"),
    ],
)
def test_what_nobody_should_take_up_is_ended(spec: dict[str, Any], phase: RepairPhase, said: str) -> None:
    async def act(on: Bed, service: Service) -> None:
        await on.ask("r1", "hands", Rung.REPLACE, **spec)
        async with running(on.controller([hands()]).run()):
            done = await on.ended("r1", 700)
        assert done.status.phase is phase
        assert said in done.status.message

    play(act)


def test_what_another_controller_has_taken_up_is_its_own() -> None:
    async def act(on: Bed, service: Service) -> None:
        await on.ask("r1", "hands", Rung.REPLACE, timeout_s=600)
        async with running(on.controller([hands()]).run()):
            status = {"status": {"phase": "Running", "message": "on its way"}}
            await on.api.patch(REPAIRS, "r1", status, PatchType.MERGE, subresource="status")
            await on.cancel("r1")
            await on.clock.sleep(3600)
        found = await on.repair("r1")
        assert (found.status.phase, found.status.message) == (RepairPhase.RUNNING, "on its way")

    play(act)
