"""Network devices: physical Ethernet ports, and InfiniBand or RoCE devices with their ports."""

from __future__ import annotations

from muster.inventory.machine import Findings, Machine, numeric_order
from muster.inventory.readings import HOT_PLUGGED_DRIVERS
from muster.resources.fingerprint import ReadingClass

_NET = "sys/class/net"
_RDMA = "sys/class/infiniband"


def ethernet(machine: Machine) -> Findings:
    """Devices that have hardware behind them; bridges, pairs and tunnels come and go with pods and are left out."""
    findings = Findings()
    try:
        names = [name for name in machine.entries(_NET) if machine.exists(f"{_NET}/{name}/device")]
    except OSError as error:
        findings.miss("net", error)
        return findings
    if not names:
        findings.add("net", "none found")
    primary = _default_device(machine)
    for name in numeric_order(names):
        _port(machine, findings, name, primary)
    return findings


def _port(machine: Machine, findings: Findings, name: str, primary: str) -> None:
    path = f"{_NET}/{name}"
    try:
        driver = machine.link_name(f"{path}/device/driver")
    except OSError as error:
        driver = ""
        findings.miss(f"net.{name}.driver", error)
    virtual = driver in HOT_PLUGGED_DRIVERS or machine.exists(f"{path}/device/physfn")
    hot_plugged = virtual and name != primary
    volatile = ReadingClass.VOLATILE if hot_plugged else None
    if driver:
        findings.add(f"net.{name}.driver", driver, volatile)
    machine.collect(findings, f"{path}/address", f"net.{name}.address", volatile)
    machine.collect(findings, f"{path}/mtu", f"net.{name}.mtu", volatile)
    machine.collect(findings, f"{path}/operstate", f"net.{name}.state")
    try:
        speed = machine.read(f"{path}/speed")
    except OSError:
        # The kernel refuses the question while the link is down.
        speed = ""
    if speed and speed != "-1":
        findings.add(f"net.{name}.speed_mbps", speed)


def _default_device(machine: Machine) -> str:
    """The device of the IPv4 default route; empty when there is none."""
    try:
        rows = [line.split() for line in machine.read("proc/net/route").splitlines()[1:]]
    except OSError:
        return ""
    return next((row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"), "")


def rdma(machine: Machine) -> Findings:
    """InfiniBand and RoCE devices; `rdma: none found` when there is none."""
    findings = Findings()
    try:
        names = machine.entries(_RDMA) if machine.exists(_RDMA) else []
    except OSError as error:
        findings.miss("rdma", error)
        return findings
    if not names:
        findings.add("rdma", "none found")
    for name in numeric_order(names):
        _rdma_device(machine, findings, name)
    return findings


def _rdma_device(machine: Machine, findings: Findings, name: str) -> None:
    path = f"{_RDMA}/{name}"
    # Virtual functions move into the pods that use them and come back.
    volatile = ReadingClass.VOLATILE if machine.exists(f"{path}/device/physfn") else None
    machine.collect(findings, f"{path}/node_guid", f"rdma.{name}.node_guid", volatile)
    machine.collect(findings, f"{path}/hca_type", f"rdma.{name}.type", volatile, required=False)
    machine.collect(findings, f"{path}/board_id", f"rdma.{name}.board", volatile, required=False)
    machine.collect(findings, f"{path}/fw_ver", f"rdma.{name}.firmware", volatile, required=False)
    try:
        ports = machine.entries(f"{path}/ports")
    except OSError as error:
        findings.miss(f"rdma.{name}.ports", error)
        return
    for port in numeric_order(ports):
        key = f"rdma.{name}.{port}"
        machine.collect(findings, f"{path}/ports/{port}/link_layer", f"{key}.link_layer", volatile)
        machine.collect(findings, f"{path}/ports/{port}/rate", f"{key}.rate")
        machine.collect(findings, f"{path}/ports/{port}/state", f"{key}.state")
