"""The network monitor: what it watches, what counts as down, and what it makes of growing counters."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import network
from muster.agent.diagnosis import Diagnosis
from muster.agent.monitor import NodeFacts
from muster.agent.network import memory as memories
from muster.agent.network.config import CounterLimit, NetworkConfig
from muster.agent.network.counters import Point, Track, calm_looks, grow, increase
from muster.agent.network.judge import judge
from muster.agent.network.memory import NetworkMemory, PortMemory
from muster.agent.network.monitor import NetworkMonitor
from muster.agent.network.ports import PortReading, PortState, Snapshot
from muster.agent.network.reading import read_ports
from muster.agent.sources import Probe
from muster.clock import SystemClock
from muster.faults.generate import catalogue
from muster.inventory.machine import Machine
from muster.read.fabric_ports.thresholds import THRESHOLDS, of_counter
from muster.resources.fault import Severity
from tests.agent.network_tree import NetworkTree

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STEP = timedelta(seconds=15)
CONFIG = NetworkConfig()
LINK_ERRORS = f"{of_counter('symbol_error')[0].code} mlx5_0"


def port(number: int, state: PortState = PortState.UP, **changes: object) -> PortReading:
    base = PortReading(
        device=f"mlx5_{number}",
        port=1,
        state=state,
        told="4: ACTIVE, 5: LinkUp" if state is PortState.UP else "1: DOWN, 2: Polling",
        rdma=True,
        link_layer="InfiniBand",
        hardware="MT_0000000838",
        pci=f"0000:{number:02x}:00.0",
        numa_node=0,
        rate_gbps=400.0 if state is PortState.UP else None,
        losses=0,
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the fields of the reading


def snapshot(*ports: PortReading, gone: frozenset[str] = frozenset()) -> Snapshot:
    every = frozenset(f"0000:{number:02x}:00.0" for number in range(32))
    return Snapshot(ports=ports, pci_addresses=every - gone)


class Node:
    """Looks at a node again and again, 15 seconds apart."""

    def __init__(self, config: NetworkConfig = CONFIG, gpus: int = 8) -> None:
        self.config, self.gpus = config, gpus
        self.memory = NetworkMemory()
        self.now = T0
        self.boot_id, self.booted_at = "boot-1", T0 - timedelta(days=1)

    def look(self, shot: Snapshot, times: int = 1) -> dict[str, Probe]:
        """The probes of the last of `times` looks, by `<code> <device>`."""
        for _ in range(times):
            self.now += STEP
            self.memory, probes = judge(
                self.memory, shot, self.config, self.boot_id, self.booted_at, self.gpus, self.now
            )
        return {f"{probe.code} {probe.entity.device}": probe for probe in probes}


def eight(*down: int, **changes: object) -> Snapshot:
    return snapshot(
        *(port(n, PortState.DOWN if n in down else PortState.UP, **changes if n in down else {}) for n in range(8))
    )


# Down


def test_a_fabric_port_that_was_up_is_fatal_after_three_looks_and_healthy_when_it_comes_back() -> None:
    node = Node()
    assert node.look(eight())["port-down mlx5_3"].healthy is True
    assert node.look(eight(3), times=2)["port-down mlx5_3"].healthy is None
    down = node.look(eight(3))["port-down mlx5_3"]
    assert (down.healthy, down.severity) == (False, Severity.FATAL)
    assert down.entity.key() == "nic/0000:03:00.0/port1"
    assert "0000:03:00.0, NUMA node 0" in down.message
    assert node.look(eight())["port-down mlx5_3"].healthy is True


def test_a_look_in_between_that_is_well_begins_the_count_anew() -> None:
    node = Node()
    node.look(eight())
    for _ in range(5):
        assert node.look(eight(3), times=2)["port-down mlx5_3"].healthy is None
        assert node.look(eight())["port-down mlx5_3"].healthy is True


def test_ports_that_never_were_up_on_a_partly_cabled_node_are_information() -> None:
    probes = Node().look(eight(2, 5), times=10)
    assert probes["port-down mlx5_2"].healthy is True
    never = probes["port-never-up mlx5_2"]
    assert (never.healthy, never.severity) == (False, Severity.INFO)
    assert "6 of its 7 peers are" in never.message
    assert all(p.severity is Severity.INFO for p in probes.values() if p.healthy is False)


def test_the_only_port_that_never_came_up_is_a_warning_as_all_peers_are_up() -> None:
    down = Node().look(eight(4), times=3)["port-down mlx5_4"]
    assert (down.healthy, down.severity) == (False, Severity.WARNING)
    assert "all its 7 peers are up" in down.message


def test_second_ports_of_all_cards_that_nobody_cabled_are_nothing() -> None:
    ports = [port(n) for n in range(4)]
    ports += [port(n + 8, PortState.DOWN, pci=f"0000:{n:02x}:00.1") for n in range(4)]
    probes = Node().look(snapshot(*ports), times=10)
    assert [key for key, probe in sorted(probes.items()) if probe.healthy is False] == []


def test_after_a_boot_a_port_that_was_up_before_is_a_warning_once_the_grace_is_over() -> None:
    node = Node()
    node.look(eight())
    node.boot_id, node.booted_at = "boot-2", node.now
    early = node.look(eight(1), times=10)
    assert early["port-down mlx5_1"].healthy is None
    assert early["port-down mlx5_0"].healthy is True
    late = node.look(eight(1), times=15)["port-down mlx5_1"]
    assert (late.healthy, late.severity) == (False, Severity.WARNING)
    assert "before the node booted" in late.message


def test_a_port_that_a_person_disabled_and_one_of_another_kind_are_no_more_than_a_warning() -> None:
    node = Node()
    storage = port(9, hardware="MT_0000000999")
    node.look(snapshot(*eight().ports, storage))
    shot = snapshot(
        *(p for p in eight().ports if p.device != "mlx5_2"),
        port(2, PortState.DISABLED),
        replace(storage, state=PortState.DOWN),
    )
    probes = node.look(shot, times=3)
    assert probes["port-down mlx5_2"].severity is Severity.WARNING
    assert probes["port-down mlx5_9"].severity is Severity.WARNING
    assert probes["port-down mlx5_9"].healthy is False


def test_the_configuration_names_the_fabric_and_what_is_expected_up() -> None:
    node = Node(NetworkConfig(fabric="mlx5_9", expect_up="mlx5_9"))
    lone = port(9, PortState.DOWN, hardware="other")
    probe = node.look(snapshot(lone), times=3)["port-down mlx5_9"]
    assert (probe.healthy, probe.severity) == (False, Severity.WARNING)
    node.look(snapshot(replace(lone, state=PortState.UP)))
    assert node.look(snapshot(lone), times=3)["port-down mlx5_9"].severity is Severity.FATAL


def test_an_adapter_gone_from_the_bus_is_fatal_and_one_that_moved_into_a_pod_is_nothing() -> None:
    node = Node()
    node.look(eight())
    rest = tuple(p for p in eight().ports if p.device != "mlx5_6")
    moved = node.look(snapshot(*rest), times=5)
    assert [key for key in sorted(moved) if key.endswith("mlx5_6")] == []
    gone = node.look(snapshot(*rest, gone=frozenset({"0000:06:00.0"})), 3)["nic-gone mlx5_6"]
    assert (gone.healthy, gone.severity) == (False, Severity.FATAL)
    assert node.look(eight())["nic-gone mlx5_6"].healthy is True


def test_after_a_boot_nothing_of_before_is_over_before_it_was_seen_well() -> None:
    node = Node()
    node.look(eight(losses=0, counters={"port_xmit_discards": 5}))
    node.look(eight(1), times=3)
    node.boot_id, node.booted_at = "boot-2", node.now
    first = node.look(eight(1, counters={"port_xmit_discards": 0}))
    assert first["port-down mlx5_1"].healthy is None
    assert first["port-discards mlx5_1"].healthy is None
    assert first["port-link-flapping mlx5_0"].healthy is None
    fresh = Node().look(eight(1))
    assert [key for key, probe in sorted(fresh.items()) if probe.healthy is None] == []


# Rate and flaps


def test_a_link_slower_than_most_peers_is_a_warning_once_confirmed() -> None:
    node = Node()
    shot = snapshot(*(port(n, rate_gbps=200.0 if n == 5 else 400.0) for n in range(8)))
    assert node.look(shot, times=2)["port-rate-low mlx5_5"].healthy is None
    slow = node.look(shot)["port-rate-low mlx5_5"]
    assert (slow.healthy, slow.severity) == (False, Severity.WARNING)
    assert "200 Gb/s instead of 400, that of its peers" in slow.message
    assert node.look(eight())["port-rate-low mlx5_5"].healthy is True


def test_a_lone_port_is_measured_by_its_own_past_and_by_the_configuration() -> None:
    node = Node(gpus=1)
    node.look(snapshot(port(0)))
    slow = node.look(snapshot(port(0, rate_gbps=100.0)), times=3)["port-rate-low mlx5_0"]
    assert slow.healthy is False
    told = Node(NetworkConfig(expected_rate_gbps=400.0), gpus=1)
    assert told.look(snapshot(port(0, rate_gbps=200.0)), times=3)["port-rate-low mlx5_0"].healthy is False
    assert told.look(snapshot(port(0)))["port-rate-low mlx5_0"].healthy is True


def test_one_lost_link_is_information_and_three_are_flapping_until_the_window_has_passed() -> None:
    node = Node()
    node.look(snapshot(port(0, losses=40)))
    assert node.look(snapshot(port(0, losses=40)))["port-link-lost mlx5_0"].healthy is True
    once = node.look(snapshot(port(0, losses=41)))
    assert (once["port-link-lost mlx5_0"].healthy, once["port-link-flapping mlx5_0"].healthy) == (False, True)
    thrice = node.look(snapshot(port(0, losses=43)))
    assert thrice["port-link-flapping mlx5_0"].healthy is False
    assert thrice["port-link-lost mlx5_0"].healthy is True
    assert "3 times" in thrice["port-link-flapping mlx5_0"].message
    later = node.look(snapshot(port(0, losses=43)), times=41)
    assert later["port-link-flapping mlx5_0"].healthy is True
    assert later["port-link-lost mlx5_0"].healthy is True


def test_a_counter_of_losses_that_begins_anew_is_no_loss() -> None:
    node = Node()
    node.look(snapshot(port(0, losses=40)))
    assert node.look(snapshot(port(0, losses=0)))["port-link-lost mlx5_0"].healthy is True


# Counters


def test_lifetime_counts_say_nothing() -> None:
    node = Node()
    shot = snapshot(port(0, counters={"symbol_error": 9_999_999, "local_link_integrity_errors": 77}))
    assert LINK_ERRORS not in node.look(shot)
    assert node.look(shot)[LINK_ERRORS].healthy is True
    assert node.look(shot)["port-link-integrity mlx5_0"].healthy is True


@pytest.mark.requirement("v2.4/SDN09")
def test_an_excursion_is_a_warning_and_closes_after_calm_looks_without_a_reboot() -> None:
    node = Node()
    node.look(snapshot(port(0, counters={"port_xmit_discards": 0})))
    loud = node.look(snapshot(port(0, counters={"port_xmit_discards": 3000})))["port-discards mlx5_0"]
    assert (loud.healthy, loud.severity) == (False, Severity.WARNING)
    assert "port_xmit_discards +" in loud.message
    calm = snapshot(port(0, counters={"port_xmit_discards": 3000}))
    looks = [node.look(calm)["port-discards mlx5_0"].healthy for _ in range(CONFIG.clear_looks)]
    assert looks == [False] * (CONFIG.clear_looks - 1) + [True]


@pytest.mark.requirement("v2.4/SDN09")
def test_acknowledgements_that_do_not_arrive_are_told_by_their_rate_and_never_by_their_number() -> None:
    # 2705 timeouts since the driver was loaded may all be years old.
    node = Node()
    roce = port(0, link_layer="Ethernet", counters={"local_ack_timeout_err": 2705})
    assert node.look(snapshot(roce), times=4)["roce-ack-timeouts mlx5_0"].healthy is True
    losing = replace(roce, counters={"local_ack_timeout_err": 2705 + 16})
    assert node.look(snapshot(losing))["roce-ack-timeouts mlx5_0"].healthy is False


def test_symbol_errors_count_over_an_hour_however_often_one_looks() -> None:
    node = Node()
    count = 0
    node.look(snapshot(port(0, counters={"symbol_error": count})))
    while count < 240:
        count += 1
        if not node.look(snapshot(port(0, counters={"symbol_error": count})))[LINK_ERRORS].healthy:
            break
    assert count == 121
    assert max(len(track) for track in node.memory.ports["mlx5_0/1"].tracks.values()) <= 16


def test_a_counter_that_wrapped_is_a_new_baseline() -> None:
    node = Node()
    node.look(snapshot(port(0, counters={"port_rcv_errors": 65_000})))
    assert "port-receive-errors mlx5_0" not in node.look(snapshot(port(0, counters={"port_rcv_errors": 9_000})))
    assert node.look(snapshot(port(0, counters={"port_rcv_errors": 9_001})))["port-receive-errors mlx5_0"].healthy


def test_own_limits_replace_those_of_the_table_and_unknown_counters_are_refused() -> None:
    node = Node(NetworkConfig(limits=(CounterLimit(counter="port_rcv_errors", limit=1_000_000, window_s=60),)))
    node.look(snapshot(port(0, counters={"port_rcv_errors": 0})))
    assert node.look(snapshot(port(0, counters={"port_rcv_errors": 5000})))["port-receive-errors mlx5_0"].healthy
    with pytest.raises(msgspec.ValidationError, match="a counter without a threshold"):
        msgspec.convert({"limits": [{"counter": "port_rcv_eror", "limit": 1}]}, NetworkConfig)
    with pytest.raises(msgspec.ValidationError, match="no regular expression"):
        msgspec.convert({"include": "mlx5_("}, NetworkConfig)


VALUES = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60)


@given(VALUES, st.sampled_from([1.0, 60.0, 3600.0]), st.integers(1, 600))
def test_growth_is_never_negative_and_tracks_stay_short(values: list[int], window_s: float, step_s: int) -> None:
    track: Track = ()
    for number, value in enumerate(values):
        track = grow(track, 1e9 + number * step_s, value, window_s)
        grown = increase(track, window_s)
        assert grown is None or grown >= 0
        assert len(track) <= 16
        assert track[-1] == Point(1e9 + number * step_s, value)


@given(st.integers(0, 1000), st.integers(1, 120), st.sampled_from([60.0, 600.0, 3600.0]))
def test_a_steady_rate_is_found_again(rate_per_s: int, step_s: int, window_s: float) -> None:
    track: Track = ()
    looks = int(2 * window_s / step_s) + 2
    for number in range(looks):
        track = grow(track, 1e9 + number * step_s, number * step_s * rate_per_s, window_s)
    grown = increase(track, window_s)
    assert grown == pytest.approx(rate_per_s * window_s, rel=0.01)


@given(st.lists(st.floats(0, 100), max_size=50), st.floats(0.1, 50), st.integers(1, 8))
def test_an_alarm_goes_on_above_the_limit_only_and_off_after_calm_looks_only(
    values: list[float], limit: float, clear_looks: int
) -> None:
    calm: int | None = None
    for number, value in enumerate(values):
        before, calm = calm, calm_looks(calm, value, limit, clear_looks)
        if before is None:
            assert (calm is not None) == (value > limit)
        if before is not None and calm is None:
            assert all(v <= limit / 2 for v in values[number - clear_looks + 1 : number + 1])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=40))
def test_fatal_only_after_it_was_up_and_down_for_three_looks(steps: list[tuple[bool, int]]) -> None:
    node = Node()
    seen: list[bool] = []
    for up, losses in steps:
        seen.append(up)
        shot = snapshot(*(port(n) for n in range(7)), port(7, PortState.UP if up else PortState.DOWN, losses=losses))
        probes = node.look(shot)
        fatal = [p for p in probes.values() if p.healthy is False and p.severity is Severity.FATAL]
        expected = len(seen) >= 3 and not any(seen[-3:]) and any(seen)
        assert bool(fatal) == expected


# Memory


def test_memory_survives_a_restart_and_forgets_another_boot() -> None:
    node = Node()
    node.look(eight(), times=3)
    again = memories.decode(memories.encode(node.memory))
    assert again.ports["mlx5_3/1"].up
    node.memory = again
    assert node.look(eight(3), times=3)["port-down mlx5_3"].severity is Severity.FATAL
    other = memories.in_boot(again, "boot-9")
    assert (other.ports["mlx5_3/1"].up, other.ports["mlx5_3/1"].up_before) == (False, True)


@given(st.text(max_size=200))
def test_any_text_can_be_restored(text: str) -> None:
    assert memories.decode(text).ports == {} or text.startswith("{")


def test_what_is_kept_is_bounded() -> None:
    track = tuple(Point(1e9 + n, 2**60 + n) for n in range(14))
    ports = {
        f"mlx5_{n}/1": PortMemory(device=f"mlx5_{n}", port=1, tracks={f"counter{m}/60": track for m in range(60)})
        for n in range(128)
    }
    text = memories.encode(NetworkMemory(boot_id="b", ports=ports))
    assert len(text) <= memories.MAX_CHARACTERS
    assert len(memories.decode(text).ports) == 128


# The catalogue


def test_every_code_has_a_row() -> None:
    known = {(row.check, row.code) for row in catalogue().conditions}
    own = {"port-down", "port-never-up", "port-rate-low", "port-link-flapping", "port-link-lost", "nic-gone"}
    codes = own | {threshold.code for threshold in THRESHOLDS}
    assert {("nic-port", code) for code in codes} <= known


# Reading


def test_what_is_watched_on_a_machine_with_everything(tmp_path: Path) -> None:
    tree = NetworkTree(tmp_path)
    tree.rdma("mlx5_0", "0000:18:00.0")
    tree.rdma("mlx5_1", "0000:2a:00.0", netdev="enp42s0np0")
    tree.rdma("mlx5_2", "0000:18:01.1", virtual_function=True)
    tree.ethernet("ens1f0", "0000:5e:00.0")
    tree.ethernet("ens1f1", "0000:5e:00.1", state="down")
    tree.ethernet("eth7", "0000:00:03.0", driver="virtio_net")
    for name in ("lo", "docker0", "cali12345", "dummy0"):
        tree.virtual(name)
    tree.virtual("vlan10", parent="bond0")
    tree.virtual("bond0", one="ens1f1")
    (tmp_path / "sys/class/net/bonding_masters").write_text("bond0\n")
    tree.route("vlan10")
    shot = read_ports(Machine(tmp_path), CONFIG)
    assert [p.key for p in shot.ports] == ["mlx5_0/1", "mlx5_1/1", "ens1f0"]
    assert shot.unknown == ()
    infiniband, roce, ethernet = shot.ports
    assert (infiniband.state, infiniband.rate_gbps, infiniband.numa_node) == (PortState.UP, 400.0, 1)
    assert "lifespan" not in infiniband.counters
    assert (roce.link_layer, roce.losses) == ("Ethernet", 1)
    assert (ethernet.rate_gbps, ethernet.pci) == (100.0, "0000:5e:00.0")
    every = read_ports(Machine(tmp_path), NetworkConfig(include=".*", exclude="lo|.*0"))
    assert "eth7" in [p.key for p in every.ports]
    assert "mlx5_2/1" in [p.key for p in every.ports]
    assert "mlx5_0/1" not in [p.key for p in every.ports]


def test_states_as_the_kernel_writes_them(tmp_path: Path) -> None:
    tree = NetworkTree(tmp_path)
    tree.rdma("mlx5_0", "0000:18:00.0", up=False)
    tree.rdma("mlx5_1", "0000:19:00.0", netdev="eth1")
    tree.state("mlx5_1", False, physical="3: Disabled")
    tree.rdma("mlx5_2", "0000:1a:00.0", netdev="eth2")
    tree.state("mlx5_2", False, physical="3: Disabled")
    tree.write("sys/class/net/eth2/flags", "0x1002")
    tree.rdma("mlx5_3", "0000:1b:00.0")
    tree.state("mlx5_3", False, physical="3: Disabled")
    tree.rdma("mlx5_4", "0000:1c:00.0")
    tree.write("sys/class/infiniband/mlx5_4/ports/1/state", "2: INIT")
    states = {p.device: p.state for p in read_ports(Machine(tmp_path), CONFIG).ports}
    down, disabled = PortState.DOWN, PortState.DISABLED
    assert states == {"mlx5_0": down, "mlx5_1": down, "mlx5_2": disabled, "mlx5_3": disabled, "mlx5_4": down}


def test_hostile_files_are_unknown_and_no_error(tmp_path: Path) -> None:
    tree = NetworkTree(tmp_path)
    tree.rdma("mlx5_0", "0000:18:00.0")
    tree.count("mlx5_0", "symbol_error", b"\x00\xff" * 5000)
    tree.count("mlx5_0", "link_error_recovery", "9" * 400)
    tree.count("mlx5_0", "port_rcv_errors", "-4")
    tree.count("mlx5_0", "port_xmit_discards", "0x0a")
    tree.write("sys/class/infiniband/mlx5_0/ports/1/rate", b"\x1b[31m" * 10)
    (tmp_path / "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence").unlink()
    (tmp_path / "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence").mkdir()
    shot = read_ports(Machine(tmp_path), CONFIG)
    assert dict(shot.ports[0].counters) == {
        "port_xmit_discards": 10,
        "local_ack_timeout_err": 0,
        "rnr_nak_retry_err": 0,
    }
    assert len(shot.unknown) == 4
    assert shot.ports[0].rate_gbps is None


@pytest.mark.requirement("companion/OBS10")
def test_the_monitor_sees_a_port_go_down_and_come_back_on_a_tree(tmp_path: Path) -> None:
    tree = NetworkTree(tmp_path)
    for n in range(4):
        tree.rdma(f"mlx5_{n}", f"0000:1{n}:00.0", netdev=f"eth{n}")
    facts = NodeFacts(boot_id="b", booted_at=None, gpus=())

    async def story() -> list[tuple[str, ...]]:
        monitor = NetworkMonitor(CONFIG, tmp_path, SystemClock())
        told: list[tuple[str, ...]] = []
        now = T0
        for up in (True, False, False, False, True):
            tree.state("mlx5_2", up)
            now += STEP
            look = await monitor.look(facts, now)
            told.append(tuple(f"{p.code} {p.entity.device}" for p in look.probes if p.healthy is False))
            restarted = NetworkMonitor(CONFIG, tmp_path, SystemClock())
            restarted.restore(monitor.keep())
            monitor = restarted
        await monitor.close()
        return told

    assert asyncio.run(story()) == [(), (), (), ("port-down mlx5_2",), ()]


@pytest.mark.requirement("companion/OBS10")
def test_damaged_frames_of_roce_and_ethernet_are_counted(tmp_path: Path) -> None:
    tree = NetworkTree(tmp_path)
    tree.rdma("mlx5_0", "0000:18:00.0", netdev="eth0")
    tree.ethernet("ens1f0", "0000:5e:00.0")
    node = Node()
    node.look(read_ports(Machine(tmp_path), CONFIG))
    for name in ("eth0", "ens1f0"):
        tree.write(f"sys/class/net/{name}/statistics/rx_crc_errors", "9")
    probes = node.look(read_ports(Machine(tmp_path), CONFIG))
    assert probes["eth-crc-errors mlx5_0"].healthy is False
    assert probes["eth-crc-errors ens1f0"].healthy is False
    assert "rx_crc_errors_phy +9 within 60 s (limit 1)" in probes["eth-crc-errors ens1f0"].message


def test_this_machine_can_be_read() -> None:
    (monitor,) = network.monitors(NetworkConfig(include=".*"), Path("/"), SystemClock())
    look = asyncio.run(monitor.look(NodeFacts(boot_id="b", booted_at=None, gpus=()), T0))
    assert "lo" in [probe.entity.device for probe in look.probes]
    assert network.monitors(NetworkConfig(enabled=False), Path("/"), SystemClock()) == ()


def test_a_machine_without_sysfs_raises(tmp_path: Path) -> None:
    (monitor,) = network.monitors(CONFIG, tmp_path, SystemClock())
    with pytest.raises(OSError, match="No such file"):
        asyncio.run(monitor.look(NodeFacts(boot_id="b", booted_at=None, gpus=()), T0))


def test_faults_open_and_close_in_the_agents_own_memory() -> None:
    node, diagnosis = Node(), Diagnosis("boot-1")
    told: list[list[tuple[str, str]]] = []

    def look(shot: Snapshot, times: int = 1) -> None:
        for _ in range(times):
            for probe in node.look(shot).values():
                diagnosis.probe(probe, node.now)
        told.append([(fault.code, fault.severity.value) for fault in diagnosis.faults])

    look(eight())
    look(eight(3), times=2)
    look(eight(3), times=2)
    look(eight())
    assert told == [[], [], [("port-down", "fatal")], []]


def test_the_order_of_ports_and_of_what_is_told_is_always_the_same(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from datetime import datetime, UTC\n"
        "from muster.agent.network.config import NetworkConfig; from muster.agent.network.judge import judge\n"
        "from muster.agent.network.memory import NetworkMemory, encode\n"
        "from muster.agent.network.reading import read_ports; from muster.inventory.machine import Machine\n"
        "shot = read_ports(Machine(Path(sys.argv[1])), NetworkConfig())\n"
        "memory, days = NetworkMemory(), [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]\n"
        "for day in days: memory, probes = judge(memory, shot, NetworkConfig(), 'b', None, 8, day)\n"
        "print(shot.ports, probes, encode(memory))\n"
    )
    tree = NetworkTree(tmp_path)
    for n in range(4):
        tree.rdma(f"mlx5_{n}", f"0000:1{n}:00.0", netdev=f"eth{n}", up=n != 2)
    answers = [
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert answers[0] == answers[1]
    assert "port-link-flapping" in answers[0]


def test_the_default_route_is_that_of_the_node_and_not_of_the_agents_pod(tmp_path: Path) -> None:
    tree = NetworkTree(tmp_path)
    tree.rdma("mlx5_0", "0000:01:00.0", netdev="eth0")
    tree.rdma("mlx5_1", "0000:02:00.0", netdev="ens1")
    tree.route("eth0")
    (tmp_path / "proc/1/net").mkdir(parents=True)
    pod = (tmp_path / "proc/net/route").read_text()
    (tmp_path / "proc/1/net/route").write_text(pod.replace("eth0", "ens1"))
    found = {port.device: port.management for port in read_ports(Machine(tmp_path), CONFIG).ports}
    assert found == {"mlx5_0": False, "mlx5_1": True}


def test_ports_that_come_back_after_their_driver_was_replaced_have_time_to_train() -> None:
    """The driver of the adapters is replaced without a boot: they vanish from sysfs and not from the bus."""
    node = Node()
    up = snapshot(*(port(n) for n in range(8)))
    node.look(up, 10)
    gone = node.look(snapshot(), 4)
    assert not any(probe.healthy is False for probe in gone.values())
    training = snapshot(*(port(n, PortState.DOWN) for n in range(8)))
    told = node.look(training, 10)
    assert [probe.healthy for name, probe in told.items() if name.startswith("port-down")] == [None] * 8
    # One that does not come up in all that time was up in this boot, and is down.
    told = node.look(snapshot(*(port(n) for n in range(7)), port(7, PortState.DOWN)), 30)
    assert (told["port-down mlx5_7"].healthy, told["port-down mlx5_7"].severity) == (False, Severity.FATAL)
    assert told["port-down mlx5_0"].healthy is True


def test_a_port_that_loses_its_link_without_its_driver_has_no_more_time_than_before() -> None:
    node = Node()
    node.look(snapshot(*(port(n) for n in range(8))), 10)
    node.look(snapshot(*(port(n) for n in range(7))))
    node.look(snapshot(*(port(n) for n in range(8))), 40)
    told = node.look(snapshot(*(port(n) for n in range(7)), port(7, PortState.DOWN)), 3)
    assert (told["port-down mlx5_7"].healthy, told["port-down mlx5_7"].severity) == (False, Severity.FATAL)


def test_an_adapter_whose_firmware_is_reset_is_off_the_bus_for_a_moment_and_not_gone() -> None:
    node = Node()
    up = snapshot(*(port(n) for n in range(8)))
    node.look(up, 10)
    short = snapshot(*(port(n) for n in range(7)), gone=frozenset({"0000:07:00.0"}))
    told = node.look(short)
    assert told["nic-gone mlx5_7"].healthy is None
    assert node.look(up)["nic-gone mlx5_7"].healthy is True
    assert [node.look(short)["nic-gone mlx5_7"].healthy for _ in range(3)] == [None, None, False]
    assert node.look(short)["nic-gone mlx5_7"].severity is Severity.FATAL
