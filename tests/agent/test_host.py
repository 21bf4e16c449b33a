"""The host monitors: file systems, clock, pressure, services; on made-up machines and on this one."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import host
from muster.agent.host import clock_state, filesystems, mounts, pressure, services
from muster.agent.host.adjtimex import read_clock
from muster.agent.host.blocking import Blocking
from muster.agent.host.clock_monitor import ClockMonitor
from muster.agent.host.clock_state import ClockMemory, ClockReading
from muster.agent.host.config import (
    ClockConfig,
    Expectation,
    FilesystemsConfig,
    HostConfig,
    PressureConfig,
    ServicesConfig,
)
from muster.agent.host.filesystem_monitor import FilesystemMonitor
from muster.agent.host.filesystems import FilesystemMemory, Usage
from muster.agent.host.mounts import Mount, Writability
from muster.agent.host.pressure import PressureMemory, PressureReading
from muster.agent.host.pressure_monitor import PressureMonitor
from muster.agent.host.service_reading import read_services
from muster.agent.host.services import MachineReading, ServiceReading, ServicesMemory
from muster.agent.monitor import NodeFacts
from muster.agent.sources import Probe
from muster.clock import SystemClock
from muster.errors import DeadlineError, UnreachableError
from muster.faults.generate import catalogue
from muster.inventory.machine import Machine
from muster.resources.fault import Severity

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LONG_AGO = T0 - timedelta(days=2)
FACTS = NodeFacts(boot_id="boot-1", booted_at=LONG_AGO, gpus=())

MOUNTINFO = r"""22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid shared:2 - proc proc rw
24 22 259:3 / /var/lib/containerd rw,noatime shared:3 master:7 - xfs /dev/nvme1n1 rw,attr2
25 22 0:44 / /mnt/nfs rw shared:4 - nfs4 filer:/export rw,vers=4.2
26 22 259:2 /var/log /var/log rw,relatime shared:5 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
27 22 259:4 / /mnt/with\040space ro,relatime - ext4 /dev/sda1 ro
"""


def unhealthy(probes: tuple[Probe, ...]) -> list[str]:
    return [f"{p.code} {p.entity.name or ''}".strip() for p in probes if p.healthy is False]


# File systems


def test_mountinfo_is_read_with_optional_fields_and_escapes() -> None:
    found = mounts.parse(MOUNTINFO)
    assert [m.point for m in found] == [
        "/", "/proc", "/var/lib/containerd", "/mnt/nfs", "/var/log", "/mnt/with space",
    ]  # fmt: skip
    assert found[2].super_options == ("rw", "attr2")


@given(st.text(max_size=400))
def test_any_text_is_parsed(text: str) -> None:
    assert all(m.point for m in mounts.parse(MOUNTINFO + text)[:6])


def test_each_local_file_system_is_watched_once_and_those_of_a_network_never() -> None:
    found = mounts.watched(mounts.parse(MOUNTINFO), ("/", "/var/log", "/var/lib/containerd/x", "/mnt/nfs", "/proc"))
    assert [m.point for m in found] == ["/", "/var/lib/containerd"]


@pytest.mark.parametrize(
    ("options", "super_options", "expected"),
    [
        ("rw,relatime", "rw", Writability.WRITABLE),
        ("rw,relatime", "ro,errors=remount-ro", Writability.BROKEN),
        ("ro,relatime", "ro", Writability.READ_ONLY),
        ("ro,relatime", "rw", Writability.READ_ONLY),
        ("rw", "rw,emergency_ro", Writability.BROKEN),
        ("rw", "rw,shutdown", Writability.BROKEN),
    ],
)
def test_what_refuses_writes_after_errors_is_told_from_what_is_mounted_so(
    options: str, super_options: str, expected: Writability
) -> None:
    mount = Mount("8:1", "/", "ext4", "/dev/sda1", tuple(options.split(",")), tuple(super_options.split(",")))
    assert mounts.writability(mount) is expected


def mount_of(state: Writability, point: str = "/") -> Mount:
    options = {
        Writability.WRITABLE: (("rw",), ("rw",)),
        Writability.READ_ONLY: (("ro",), ("ro",)),
        Writability.BROKEN: (("rw",), ("ro",)),
    }[state]
    return Mount("8:1", point, "ext4", "/dev/sda1", *options)


def test_a_file_system_that_turned_read_only_is_fatal_and_one_that_always_was_is_not() -> None:
    config = FilesystemsConfig()
    memory, probes = filesystems.judge(
        FilesystemMemory(), [(mount_of(Writability.READ_ONLY), None)], config, "boot-1"
    )
    assert unhealthy(probes) == []
    memory, probes = filesystems.judge(memory, [(mount_of(Writability.WRITABLE), None)], config, "boot-1")
    assert unhealthy(probes) == []
    kept = msgspec.json.decode(msgspec.json.encode(memory), type=FilesystemMemory)
    after, probes = filesystems.judge(kept, [(mount_of(Writability.READ_ONLY), None)], config, "boot-1")
    assert unhealthy(probes) == ["mount-readonly /"]
    assert probes[0].severity is Severity.FATAL
    booted, probes = filesystems.judge(after, [(mount_of(Writability.READ_ONLY), None)], config, "boot-2")
    assert [(p.healthy, p.severity) for p in probes] == [(False, Severity.WARNING)]
    assert "before the node booted" in probes[0].message
    _, probes = filesystems.judge(booted, [(mount_of(Writability.WRITABLE), None)], config, "boot-2")
    assert unhealthy(probes) == []
    _, probes = filesystems.judge(FilesystemMemory(), [(mount_of(Writability.BROKEN), None)], config, "boot-1")
    assert unhealthy(probes) == ["mount-readonly /"]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30))
def test_full_has_hysteresis(uses: list[float]) -> None:
    config = FilesystemsConfig()
    memory = FilesystemMemory()
    on = False
    for percent in uses:
        on = percent >= (config.free_percent if on else config.full_percent)
        memory, probes = filesystems.judge(
            memory, [(mount_of(Writability.WRITABLE), Usage(percent, None))], config, "boot-1"
        )
        assert unhealthy(probes) == (["filesystem-full /"] if on else [])


def test_usage_is_that_of_df_and_unknown_where_there_are_no_inodes() -> None:
    used = filesystems.usage(blocks=1000, available=50, free=100, inodes=0, inodes_available=0)
    assert used.blocks_percent == pytest.approx(100 * 900 / 950)
    assert used.inodes_percent is None
    assert filesystems.usage(0, 0, 0, 0, 0) == Usage(None, None)


def node_tree(root: Path) -> Path:
    (root / "proc/1").mkdir(parents=True)
    (root / "proc/1/mountinfo").write_text(MOUNTINFO)
    (root / "var/lib/containerd").mkdir(parents=True)
    return root


def test_a_file_system_that_cannot_be_asked_is_unknown_alone(tmp_path: Path) -> None:
    def statvfs(path: Path) -> os.statvfs_result:
        if path.name == "containerd":
            raise OSError(5, "Input/output error")
        return os.statvfs_result((4096, 4096, 1000, 20, 10, 100, 50, 50, 0, 255))

    monitor = FilesystemMonitor(FilesystemsConfig(), node_tree(tmp_path), SystemClock(), statvfs)
    look = asyncio.run(monitor.look(FACTS, T0))
    assert look.unknown == ("use of /var/lib/containerd: Input/output error",)
    assert unhealthy(look.probes) == ["filesystem-full /"]
    assert [p.entity.name for p in look.probes if p.code == "mount-readonly"] == ["/", "/var/lib/containerd"]


def test_a_hung_file_system_is_one_stuck_thread_and_an_error_each_time(tmp_path: Path) -> None:
    release = threading.Event()
    calls: list[Path] = []

    def hang(path: Path) -> os.statvfs_result:
        calls.append(path)
        release.wait()
        return os.statvfs("/")

    async def story() -> str:
        monitor = FilesystemMonitor(FilesystemsConfig(), node_tree(tmp_path), SystemClock(), hang)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(monitor.look(FACTS, T0), 0.05)
        with pytest.raises(DeadlineError, match="has not come back"):
            await monitor.look(FACTS, T0)
        assert len(calls) == 1
        release.set()
        for _ in range(500):
            try:
                look = await monitor.look(FACTS, T0)
            except DeadlineError:
                await asyncio.sleep(0.01)
            else:
                return look.probes[0].code
        return "never"

    assert asyncio.run(story()) == "mount-readonly"


def test_a_node_whose_mounts_cannot_be_seen_raises(tmp_path: Path) -> None:
    monitor = FilesystemMonitor(FilesystemsConfig(), tmp_path, SystemClock())
    with pytest.raises(OSError, match="mountinfo"):
        asyncio.run(monitor.look(FACTS, T0))


def test_errors_of_a_blocking_read_reach_whoever_waits() -> None:
    def fail() -> None:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(PermissionError):
        asyncio.run(Blocking("the look", SystemClock()).run(fail))


# Clock

GOOD = ClockReading(synchronised=True, offset_s=0.0001, max_error_s=0.01, ahead_s=1e9)


class Clocked:
    def __init__(self) -> None:
        self.memory, self.now = ClockMemory(), T0

    def look(self, reading: ClockReading, minutes: float = 1.0, booted_at: datetime | None = LONG_AGO) -> list[str]:
        self.now += timedelta(minutes=minutes)
        self.memory, probes = clock_state.judge(self.memory, reading, ClockConfig(), "boot-1", booted_at, self.now)
        self.probes = probes
        return unhealthy(probes)


def test_an_unsynchronised_clock_is_a_warning_after_its_grace_and_healthy_when_synchronised() -> None:
    clock, bad = Clocked(), replace(GOOD, synchronised=False, max_error_s=16.0)
    assert clock.look(bad) == []
    assert next(p for p in clock.probes if p.code == "clock-unsynchronised").healthy is None
    assert clock.look(bad, 14) == []
    assert clock.look(bad) == ["clock-unsynchronised"]
    assert "15 minutes" in next(p.message for p in clock.probes if p.healthy is False)
    assert clock.look(GOOD) == []
    assert next(p for p in clock.probes if p.code == "clock-unsynchronised").healthy is True


def test_a_node_that_just_booted_has_time_and_an_inaccurate_clock_is_told_at_once() -> None:
    clock, bad = Clocked(), replace(GOOD, synchronised=False)
    booted = T0 + timedelta(minutes=10)
    assert [clock.look(bad, 8, booted) for _ in range(3)] == [[], [], []]
    assert clock.look(bad, 8, booted) == ["clock-unsynchronised"]
    assert Clocked().look(replace(GOOD, max_error_s=2.0)) == ["clock-inaccurate"]
    assert Clocked().look(replace(GOOD, offset_s=-1.5)) == ["clock-inaccurate"]


def test_a_step_of_the_clock_is_information_for_a_while() -> None:
    clock = Clocked()
    assert clock.look(GOOD) == []
    assert clock.look(replace(GOOD, ahead_s=1e9 - 90)) == ["clock-jumped"]
    assert "-90.0 s" in next(p.message for p in clock.probes if p.healthy is False)
    assert clock.look(replace(GOOD, ahead_s=1e9 - 90.2), 9) == ["clock-jumped"]
    assert clock.look(replace(GOOD, ahead_s=1e9 - 90.1), 2) == []


def test_the_kernel_of_this_machine_tells_its_clock() -> None:
    reading = read_clock()
    assert 0 <= reading.max_error_s <= 3600
    assert reading.ahead_s > 1.5e9
    look = asyncio.run(ClockMonitor(ClockConfig()).look(FACTS, T0))
    assert "clock-jumped" in [probe.code for probe in look.probes]


# Pressure


def test_the_kernels_figures_are_read_and_missing_ones_are_unknown() -> None:
    reading = pressure.parse(
        "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\nfull avg10=9.00 avg60=31.50 avg300=3.00 total=4\n",
        "MemTotal:       1000 kB\nMemFree: 5 kB\nMemAvailable:     50 kB\n",
        "cpu 1 2 3\nprocs_running 4\nprocs_blocked 70\n",
        "nr_free_pages 5\noom_kill 3\n",
    )
    assert reading == PressureReading(31.5, 5.0, 70, 3)
    assert pressure.parse("", "", "", "") == PressureReading()
    assert pressure.parse("full avg10=x", "MemTotal: \x00", "procs_blocked", "oom_kill -1") == PressureReading()


def test_pressure_is_confirmed_and_lets_go_slowly() -> None:
    config, memory = PressureConfig(), PressureMemory()
    told: list[list[str]] = []
    for percent in (50, 50, 50, 50, 15, 5, 5, 5, 5):
        memory, probes = pressure.judge(memory, PressureReading(memory_full_percent=percent), config, "b")
        told.append(unhealthy(probes))
    assert told == [[], [], [], *([["memory-pressure"]] * 5), []]


def test_only_new_kills_are_told_and_only_for_a_while() -> None:
    config, memory = PressureConfig(), PressureMemory()
    told: list[list[str]] = []
    for kills in (7, 7, 9, 9, 9, 9, 9):
        memory, probes = pressure.judge(memory, PressureReading(oom_kills=kills), config, "b")
        told.append(unhealthy(probes))
    assert told == [[], [], ["oom-kills"], ["oom-kills"], ["oom-kills"], ["oom-kills"], []]


def test_a_node_without_proc_raises(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="/proc of the node"):
        asyncio.run(PressureMonitor(PressureConfig(), tmp_path, SystemClock()).look(FACTS, T0))


# Services

RUNNING = ServiceReading(installed=True, enabled=True, masked=False, process="900@100")
CONFIG = ServicesConfig()


class Services:
    """Looks at one service every 30 seconds."""

    def __init__(self, name: str = "kubelet", *, nvswitches: int = 0, driver: bool = True) -> None:
        self.name, self.nvswitches, self.driver = name, nvswitches, driver
        self.memory, self.now = ServicesMemory(), T0
        self.booted_at: datetime | None = LONG_AGO

    def look(self, reading: ServiceReading, times: int = 1) -> list[str]:
        for _ in range(times):
            self.now += timedelta(seconds=30)
            machine = MachineReading(
                nvswitches=self.nvswitches, driver_loaded=self.driver, services=((self.name, reading),)
            )
            self.memory, self.probes = services.judge(
                self.memory, machine, CONFIG, "boot-1", self.booted_at, self.now
            )
        return unhealthy(self.probes)


def test_down_is_down_after_three_looks_and_ninety_seconds() -> None:
    node, down = Services(), replace(RUNNING, process="")
    assert node.look(RUNNING) == []
    assert node.look(down, 3) == []
    assert next(p for p in node.probes if p.code == "service-down").healthy is None
    assert node.look(down) == ["service-down kubelet"]
    assert next(p for p in node.probes if p.healthy is False).severity is Severity.FATAL
    assert node.look(RUNNING) == []
    assert next(p for p in node.probes if p.code == "service-down").healthy is True


def test_a_node_that_still_boots_has_time() -> None:
    node, down = Services(), replace(RUNNING, process="")
    node.booted_at = T0
    assert node.look(down, 9) == []
    assert node.look(down) == ["service-down kubelet"]


def test_a_unit_that_is_enabled_and_never_ran_in_this_boot_is_a_warning_and_condemns_nobody() -> None:
    """A leftover of the distribution beside the runtime that is in use."""
    node, down = Services("containerd"), replace(RUNNING, process="")
    assert node.look(down, 10) == ["service-down containerd"]
    (probe,) = [p for p in node.probes if p.healthy is False]
    assert (probe.severity, "has not run in this one" in probe.message) == (Severity.WARNING, True)
    node.look(RUNNING)
    node.look(down, 5)
    assert [p.severity for p in node.probes if p.healthy is False] == [Severity.FATAL]


def test_fabric_manager_that_never_came_up_with_nvswitches_is_fatal() -> None:
    node = Services("fabric-manager", nvswitches=4)
    assert node.look(replace(RUNNING, process=""), 4) == ["service-down fabric-manager"]
    assert [p.severity for p in node.probes if p.healthy is False] == [Severity.FATAL]


@pytest.mark.parametrize(
    "reading",
    [
        ServiceReading(installed=False, enabled=False, masked=False, process=""),
        ServiceReading(installed=True, enabled=False, masked=False, process=""),
        ServiceReading(installed=True, enabled=False, masked=True, process=""),
    ],
)
def test_what_nobody_expects_is_not_down(reading: ServiceReading) -> None:
    assert Services().look(reading, 10) == []


def test_a_service_that_a_person_stopped_for_good_is_not_down() -> None:
    node = Services()
    node.look(RUNNING)
    assert node.look(replace(RUNNING, process="", enabled=False), 10) == []
    assert node.look(replace(RUNNING, process="", enabled=True), 4) == ["service-down kubelet"]


def test_a_service_that_others_start_is_down_when_it_ran_and_is_gone() -> None:
    node, static = Services(), replace(RUNNING, enabled=False)
    assert node.look(static) == []
    assert node.look(replace(static, process=""), 4) == ["service-down kubelet"]


def test_fabric_manager_is_needed_with_nvswitches_and_only_with_a_driver() -> None:
    absent = ServiceReading(installed=False, enabled=False, masked=False, process="")
    assert Services("fabric-manager").look(absent, 10) == []
    assert Services("fabric-manager", nvswitches=4, driver=False).look(absent, 10) == []
    node = Services("fabric-manager", nvswitches=4)
    assert node.look(absent, 4) == ["service-missing fabric-manager"]
    # It runs in the driver's container: seen by its name.
    assert node.look(replace(absent, process="77@5")) == []
    assert node.look(absent, 4) == ["service-down fabric-manager"]


def test_imex_is_needed_only_where_it_is_configured() -> None:
    down = replace(RUNNING, process="")
    assert Services("imex").look(down, 10) == []
    assert Services("imex").look(replace(down, configured=True), 4) == ["service-down imex"]


def test_three_restarts_are_flapping_until_the_window_has_passed() -> None:
    node = Services()
    told = [node.look(replace(RUNNING, process=f"{900 + n}@{n}")) for n in range(4)]
    assert told == [[], [], [], ["service-flapping kubelet"]]
    assert node.look(replace(RUNNING, process="903@3"), 18) == ["service-flapping kubelet"]
    assert node.look(replace(RUNNING, process="903@3"), 4) == []


def test_a_process_of_the_service_that_was_killed_for_memory_is_told_for_a_while() -> None:
    node = Services()
    assert node.look(replace(RUNNING, oom_kills=2)) == []
    assert node.look(replace(RUNNING, oom_kills=3)) == ["service-oom kubelet"]
    assert node.look(replace(RUNNING, oom_kills=3), 21) == []
    assert node.look(replace(RUNNING, oom_kills=0)) == []


@given(st.lists(st.sampled_from(["", "1@1", "2@2"]), min_size=1, max_size=30))
def test_down_is_told_exactly_when_the_last_four_looks_saw_nothing(processes: list[str]) -> None:
    node = Services()
    for number, process in enumerate(processes):
        told = node.look(replace(RUNNING, process=process))
        down = number >= 3 and not any(processes[number - 3 : number + 1])
        assert ("service-down kubelet" in told) == down


class ServiceTree:
    """A root folder with units and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process(1, "systemd", "/init.scope")
        (root / "etc/systemd/system/multi-user.target.wants").mkdir(parents=True)
        (root / "usr/lib/systemd/system").mkdir(parents=True)

    def process(self, pid: int, name: str, cgroup: str, start: int = 100, state: str = "S") -> None:
        folder = self.root / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{name[:15]}\n")
        fields = " ".join(["0"] * 18)
        (folder / "stat").write_text(f"{pid} ({name[:15]}) {state} {fields} {start} 0 0\n")
        (folder / "cgroup").write_text(f"0::{cgroup}\n")

    def unit(self, name: str, *, enabled: bool = True, masked: bool = False) -> None:
        folder = self.root / "etc/systemd/system"
        if masked:
            (folder / name).symlink_to("/dev/null")
            return
        (self.root / "usr/lib/systemd/system" / name).write_text("[Service]\n")
        if enabled:
            (folder / "multi-user.target.wants" / name).symlink_to(f"/usr/lib/systemd/system/{name}")


def test_services_are_found_by_unit_cgroup_and_process(tmp_path: Path) -> None:
    tree = ServiceTree(tmp_path)
    tree.unit("kubelet.service")
    tree.process(50, "kubelet", "/kubepods.slice/kubepods-pod1.slice/cri-1", start=5)
    tree.process(60, "kubelet", "/system.slice/kubelet.service", start=900)
    tree.unit("containerd.service", enabled=False)
    tree.process(70, "containerd-shim-runc-v2", "/system.slice/containerd.service")
    tree.unit("crio.service", masked=True)
    tree.process(80, "nv-fabricmanager", "/kubepods.slice/kubepods-pod2.slice/cri-2")
    tree.unit("nvidia-persistenced.service")
    tree.process(90, "nvidia-persistenced", "/system.slice/nvidia-persistenced.service", state="Z")
    (tmp_path / "etc/nvidia-imex").mkdir()
    (tmp_path / "etc/nvidia-imex/nodes_config.cfg").write_text("# nodes\n\n10.0.0.1\n")
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM\n")
    for number, (vendor, kind) in enumerate((("0x10de", "0x068000"), ("0x10de", "0x030200"), ("0x8086", "0x068000"))):
        device = tmp_path / f"sys/bus/pci/devices/0000:0{number}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor)
        (device / "class").write_text(kind)
    events = tmp_path / "sys/fs/cgroup/system.slice/kubelet.service/memory.events"
    events.parent.mkdir(parents=True)
    events.write_text("low 0\nhigh 0\nmax 4\noom 2\noom_kill 2\n")
    reading = read_services(Machine(tmp_path), CONFIG)
    found = dict(reading.services)
    assert (reading.nvswitches, reading.driver_loaded) == (1, True)
    assert found["kubelet"] == ServiceReading(
        installed=True, enabled=True, masked=False, process="60@900", oom_kills=2
    )
    assert found["containerd"] == ServiceReading(installed=True, enabled=False, masked=False, process="")
    assert found["crio"].masked
    assert found["fabric-manager"].process == "80@100"
    assert found["persistenced"].process == ""
    assert found["imex"].configured


def test_a_node_whose_processes_are_hidden_raises(tmp_path: Path) -> None:
    (tmp_path / "proc/42").mkdir(parents=True)
    with pytest.raises(OSError, match="proc/1/stat"):
        read_services(Machine(tmp_path), CONFIG)


# All of them


def test_every_code_has_a_row() -> None:
    known = {(row.check, row.code) for row in catalogue().conditions}
    codes = {
        ("filesystem", filesystems.READ_ONLY), ("filesystem", filesystems.FULL),
        ("filesystem", filesystems.NO_INODES),
        ("clock", clock_state.UNSYNCHRONISED), ("clock", clock_state.INACCURATE), ("clock", clock_state.JUMPED),
        ("pressure", pressure.MEMORY), ("pressure", pressure.LOW), ("pressure", pressure.BLOCKED),
        ("pressure", pressure.KILLED), ("service", services.DOWN), ("service", services.MISSING),
        ("service", services.FLAPPING), ("service", services.OUT_OF_MEMORY),
    }  # fmt: skip
    assert codes <= known


def test_this_machine_is_looked_at_by_all_host_monitors_and_they_survive_a_restart() -> None:
    async def story() -> dict[str, int]:
        found: dict[str, int] = {}
        for monitor in host.monitors(HostConfig(), Path("/"), SystemClock()):
            look = await monitor.look(FACTS, T0)
            found[monitor.name] = len(look.probes)
            kept = monitor.keep()
            monitor.restore("{nonsense")
            monitor.restore("\udc00")
            monitor.restore(kept)
            assert monitor.keep() == kept
            await monitor.close()
        return found

    found = asyncio.run(story())
    assert sorted(found) == ["host-clock", "host-filesystems", "host-pressure", "host-services"]
    assert min(found.values()) >= 1


def test_parts_can_be_turned_off_and_nonsense_is_refused() -> None:
    assert host.monitors(HostConfig(enabled=False), Path("/"), SystemClock()) == ()
    config = msgspec.convert({"services": {"enabled": False}, "clock": {"enabled": False}}, HostConfig)
    names = [monitor.name for monitor in host.monitors(config, Path("/"), SystemClock())]
    assert names == ["host-filesystems", "host-pressure"]
    with pytest.raises(msgspec.ValidationError, match="freePercent"):
        msgspec.convert({"filesystems": {"freePercent": 99}}, HostConfig)
    with pytest.raises(msgspec.ValidationError, match="intervalS"):
        msgspec.convert({"clock": {"intervalS": 0}}, HostConfig)
    service = {"name": "x", "units": [], "process": "x", "expected": Expectation.WHEN_CONFIGURED.value}
    with pytest.raises(msgspec.ValidationError, match="absolute path of its configuration"):
        msgspec.convert({"services": {"services": [service]}}, HostConfig)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EACCES, errno.ENOMEM])
def test_a_look_without_descriptors_or_rights_is_an_error_and_no_service_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    tree = ServiceTree(tmp_path)
    tree.process(60, "kubelet", "/system.slice/kubelet.service")
    tree.unit("kubelet.service")

    def refuse(folder: int, pid: str) -> bytes:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("muster.agent.host.processes._comm", refuse)
        with pytest.raises(OSError, match=os.strerror(number)):
            read_services(Machine(tmp_path), CONFIG)

    def entries(machine: Machine, path: str) -> list[str]:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Machine, "entries", entries)
    with pytest.raises(OSError, match=os.strerror(number)):
        read_services(Machine(tmp_path), CONFIG)


def test_a_file_system_that_answers_with_errors_only_is_still_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XFS answers every question with an input/output error after it shut down."""
    root = node_tree(tmp_path)
    real = Path.exists

    def exists(path: Path) -> bool:
        if path == root:
            raise OSError(errno.EIO, "Input/output error")
        return real(path)

    monkeypatch.setattr(Path, "exists", exists)

    def statvfs(path: Path) -> os.statvfs_result:
        raise OSError(errno.EIO, "Input/output error")

    monitor = FilesystemMonitor(FilesystemsConfig(paths=("/",)), root, SystemClock(), statvfs)
    look = asyncio.run(monitor.look(FACTS, T0))
    assert look.unknown == ("use of /: Input/output error",)
