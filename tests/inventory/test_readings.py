"""The vocabulary: collectors use no other names, and the page about it is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.inventory.collect import AGENT_COLLECTORS, COLLECTORS, collect
from muster.inventory.machine import Findings, Machine
from muster.inventory.node import this_machine
from muster.inventory.readings import VOCABULARY, class_of, known
from muster.inventory.reference_page import page
from muster.resources.fingerprint import ReadingClass
from muster.sim.agent_sources import readings_of
from muster.sim.virtual import DEFAULT_START
from muster.sim.world import World
from tests.inventory.machines import put_hgx, put_system, write

PAGE = Path(__file__).parents[2] / "docs/reference/readings.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_names_stand_in_the_vocabulary_once() -> None:
    names = [entry.name for entry in VOCABULARY]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["gpu.0.model", "kernel.release", "os.image", "nic.mlx5_0.board", "gpu.x.uuid", ""])
def test_a_name_that_is_not_in_the_vocabulary_cannot_be_used(name: str) -> None:
    assert known(name) is None
    with pytest.raises(KeyError):
        Findings().add(name, "value")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu.10.uuid", ReadingClass.IDENTITY),
        ("gpu.0.nvlink.17.state", ReadingClass.VOLATILE),
        ("gpu.0.mig.1.0.profile", ReadingClass.CONFIG),
        ("sysctl.net.core.rmem_max", ReadingClass.CONFIG),
        ("rdma.mlx5_0.1.rate", ReadingClass.VOLATILE),
        ("rdma.mlx5_0.firmware", ReadingClass.STACK),
        ("net.eth0.100.mtu", ReadingClass.CONFIG),
    ],
)
def test_the_class_of_a_reading(name: str, expected: ReadingClass) -> None:
    assert class_of(name) is expected


def test_the_simulated_fleet_and_this_machine_use_the_vocabulary() -> None:
    world = World(seed=3, nodes=2, domains=1, started=DEFAULT_START, driver="580.65.06")
    node = next(iter(world.nodes.values()))
    told = [(r.name, r.reading_class) for r in readings_of(node)]
    assert told == [(name, class_of(name)) for name, _ in told]
    here = collect(this_machine(), COLLECTORS)
    assert here.readings
    assert [r.name for r in here.readings if known(r.name) is None] == []


def test_the_agent_reads_a_part_of_what_a_snapshot_reads(tmp_path: Path) -> None:
    put_system(tmp_path)
    put_hgx(tmp_path)
    agent = collect(Machine(tmp_path), AGENT_COLLECTORS).values()
    snapshot = collect(Machine(tmp_path), COLLECTORS).values()
    assert agent.items() <= snapshot.items()
    assert {"gpu.7.uuid", "driver.version", "kernel.version"} <= agent.keys()


def test_a_collector_that_fails_hides_no_other(tmp_path: Path) -> None:
    put_system(tmp_path)

    def broken(machine: Machine) -> Findings:
        raise ZeroDivisionError

    found = collect(Machine(tmp_path), (("odd", broken), *AGENT_COLLECTORS))
    assert [u.reason for u in found.unknown if u.name == "odd"] == ["the collector failed: ZeroDivisionError"]
    assert found.values()["os.id"] == "ubuntu"


def test_a_hot_plugged_network_device_is_volatile_unless_it_holds_the_default_route(tmp_path: Path) -> None:
    put_system(tmp_path)
    route = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\nens5\t00000000\t01\t3\t0\t0\t0\t00000000"
    write(tmp_path, "proc/net/route", route)
    for name in ("ens5", "ens6"):
        write(tmp_path, f"sys/class/net/{name}/address", "02:00:00:00:00:01")
        write(tmp_path, f"sys/class/net/{name}/mtu", "9001")
        (tmp_path / f"sys/class/net/{name}/device").mkdir()
        (tmp_path / f"sys/class/net/{name}/device/driver").symlink_to("../../../bus/pci/drivers/ena")
    classes = {r.name: r.reading_class for r in collect(Machine(tmp_path), COLLECTORS).readings}
    assert classes["net.ens5.address"] is ReadingClass.IDENTITY
    assert {classes[f"net.ens6.{part}"] for part in ("address", "mtu", "driver")} == {ReadingClass.VOLATILE}
