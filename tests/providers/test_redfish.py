"""Provider `redfish` against local BMCs over HTTPS, and its pure parts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate.providers.config import RedfishSettings
from muster.operate.providers.provider import NodeFactsForRepair, PermanentProviderError
from muster.operate.providers.redfish.address import bmc_address
from muster.operate.providers.redfish.provider import RedfishProvider
from muster.operate.providers.redfish.schema import (
    Plan,
    Power,
    TaskState,
    allowed_in,
    members,
    plan,
    system_of,
    task_state,
    words,
)
from muster.resources.repair import RepairPhase, Rung
from muster.sim.virtual import VirtualClock, run_virtual
from tests.providers.bed import bed, running
from tests.providers.bmc import Bmc, IdracLike, OpenBmcLike, SupermicroLike, started
from tests.providers.contract import ProviderContract


class TestIdracLike(ProviderContract):
    bench = IdracLike


class TestSupermicroLike(ProviderContract):
    bench = SupermicroLike


class TestOpenBmcLike(ProviderContract):
    bench = OpenBmcLike


def play(kind: type[Bmc], act: Any) -> None:
    async def main(clock: VirtualClock) -> None:
        behind = await started(await bed(clock), kind)
        try:
            await act(behind)
        finally:
            await behind.close()

    run_virtual(main)


@pytest.mark.parametrize(
    ("kind", "rung", "orders"),
    [
        (IdracLike, Rung.REBOOT, ["ForceRestart"]),
        (IdracLike, Rung.POWER_CYCLE, ["PowerCycle"]),
        (SupermicroLike, Rung.REBOOT, ["ForceRestart"]),
        (SupermicroLike, Rung.POWER_CYCLE, ["ForceOff", "On"]),
        (OpenBmcLike, Rung.POWER_CYCLE, ["PowerCycle"]),
    ],
)
@pytest.mark.requirement("v2.4/BFX01")
def test_orders_of_each_rung(kind: type[Bmc], rung: Rung, orders: list[str]) -> None:
    async def act(b: Bmc) -> None:
        await b.bed.ask("r1", "p", rung)
        async with running(b.bed.controller([b.provider()]).run()):
            done = await b.bed.ended("r1")
        assert (done.status.phase, b.orders) == (RepairPhase.DONE, orders), done.status
        assert b.tokens == set(), "every session was given back"

    play(kind, act)


def test_a_machine_that_is_off_is_switched_on() -> None:
    async def act(b: Bmc) -> None:
        b.power = "Off"
        await b.bed.ask("r1", "p", Rung.REBOOT)
        async with running(b.bed.controller([b.provider()]).run()):
            done = await b.bed.ended("r1")
        assert (done.status.phase, b.orders) == (RepairPhase.DONE, ["On"])

    play(SupermicroLike, act)


def test_a_graceful_restart_where_it_is_asked_for() -> None:
    async def act(b: Bmc) -> None:
        await b.bed.ask("r1", "p", Rung.REBOOT)
        provider = RedfishProvider(b.settings(graceful=True), b.bed.clock)
        async with running(b.bed.controller([provider]).run()):
            await b.bed.ended("r1")
        assert b.orders == ["GracefulRestart"]

    play(OpenBmcLike, act)


def test_a_task_that_fails_says_why() -> None:
    async def act(b: Bmc) -> None:
        b.ok = False
        await b.bed.ask("r1", "p", Rung.POWER_CYCLE)
        async with running(b.bed.controller([b.provider()]).run()):
            done = await b.bed.ended("r1", 200)
        assert done.status.phase is RepairPhase.FAILED
        assert "power supply did not come up" in done.status.message

    play(IdracLike, act)


@pytest.mark.parametrize("kind", [IdracLike, OpenBmcLike])
def test_a_wrong_password_is_tried_once(kind: type[Bmc]) -> None:
    async def act(b: Bmc) -> None:
        (b.folder / "password").write_text("wrong words")
        await b.bed.ask("r1", "p", Rung.REBOOT)
        async with running(b.bed.controller([b.provider()]).run()):
            done = await b.bed.ended("r1", 60)
        assert done.status.phase is RepairPhase.FAILED
        assert "credentials" in done.status.message
        assert "wrong words" not in done.status.message + "".join(b.bed.lines)
        assert b.logins <= 1

    play(kind, act)


def test_an_unknown_authority_is_refused_with_the_remedy() -> None:
    async def act(b: Bmc) -> None:
        await b.bed.ask("r1", "p", Rung.REBOOT)
        provider = RedfishProvider(b.settings(ca_file=""), b.bed.clock)
        async with running(b.bed.controller([provider]).run()):
            done = await b.bed.ended("r1", 60)
        assert done.status.phase is RepairPhase.FAILED
        assert "set caFile" in done.status.message
        assert b.orders == []

    play(IdracLike, act)


def test_a_bmc_that_is_away_is_tried_until_it_is_back() -> None:
    async def act(b: Bmc) -> None:
        await b.server.close()
        await b.bed.ask("r1", "p", Rung.REBOOT)
        async with running(b.bed.controller([b.provider()]).run()):
            await b.bed.clock.sleep(120)
            found = await b.bed.repair("r1")
        assert found.status.phase is RepairPhase.RUNNING
        assert "Cannot connect to 127.0.0.1" in found.status.message

    play(OpenBmcLike, act)


# Pure parts


def settings(**more: Any) -> RedfishSettings:
    return RedfishSettings(name="bmc", username_file="u", password_file="p", **more)


def facts(**more: Any) -> NodeFactsForRepair:
    return NodeFactsForRepair(name="gpu-001", provider_id="metal3://ns/host-7", **more)


@pytest.mark.parametrize(
    ("given_settings", "url"),
    [
        ({"addresses": {"gpu-001": "https://10.0.0.7/"}, "address": "https://x"}, "https://10.0.0.7"),
        ({"address": "https://{name}-bmc.example"}, "https://gpu-001-bmc.example"),
        ({"address": "https://{label:example.com/bmc}"}, "https://10.1.1.9"),
        ({"address": "https://[{annotation:bmc6}]"}, "https://[fd00::7]"),
        ({"address": "https://{providerID}.bmc:8443"}, "https://host-7.bmc:8443"),
    ],
)
def test_addresses(given_settings: dict[str, Any], url: str) -> None:
    node = facts(labels={"example.com/bmc": "10.1.1.9"}, annotations={"bmc6": "fd00::7"})
    assert bmc_address(settings(**given_settings), node) == url


@pytest.mark.parametrize("value", ["", "evil.example/x?", "user@evil.example", "a b", "a\nb", "x" * 300])
def test_a_label_cannot_lead_the_password_elsewhere(value: str) -> None:
    with pytest.raises(PermanentProviderError):
        bmc_address(settings(address="https://{label:b}"), facts(labels={"b": value}))


@pytest.mark.parametrize("rung", [Rung.REBOOT, Rung.POWER_CYCLE])
@given(
    allowed=st.lists(st.sampled_from([*Plan, "Nmi", "ForceOn", "GracefulShutdown", "Pause"])), graceful=st.booleans()
)
def test_only_what_is_allowed_is_ordered(rung: Rung, allowed: list[str], graceful: bool) -> None:
    try:
        chosen = plan(rung, tuple(allowed), Power.ON, graceful, "bmc")
    except PermanentProviderError:
        assert allowed
        assert "PowerCycle" not in allowed
        assert not {"ForceOff", "On"} <= set(allowed)
        return
    assert not allowed or chosen in allowed
    assert rung is Rung.REBOOT or chosen in (Plan.POWER_CYCLE, Plan.OFF_ON)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "Actions",
                    "#ComputerSystem.Reset",
                    "target",
                    "PowerState",
                    "Members",
                    "@odata.id",
                    "Parameters",
                    "Name",
                ]
                + ["AllowableValues", "error", "TaskState", "Messages", "@Message.ExtendedInfo", "Message", "message"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(value=st.dictionaries(st.sampled_from(["Actions", "Members", "Parameters", "error", "TaskState"]), _json))
def test_any_answer_is_read_or_refused(value: dict[str, Any]) -> None:
    assert isinstance(members(value), tuple)
    assert isinstance(allowed_in(value), tuple)
    assert task_state(value) in TaskState
    assert len(words(value)) <= 300
    try:
        found = system_of(value, "/x", "", "bmc")
    except PermanentProviderError:
        return
    assert found.power in Power
