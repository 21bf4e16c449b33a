"""Network devices: physical Ethernet ports, and InfiniBand or RoCE devices with their ports."""

from __future__ import annotations

from muster.configure.snapshot.machine import Findings, Machine, numeric_order
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
        findings.add("net", "none found", ReadingClass.IDENTITY)
    for name in numeric_order(names):
        path = f"{_NET}/{name}"
        machine.collect(findings, f"{path}/address", f"net.{name}.address", ReadingClass.IDENTITY)
        machine.collect(findings, f"{path}/mtu", f"net.{name}.mtu", ReadingClass.CONFIG)
        machine.collect(findings, f"{path}/operstate", f"net.{name}.state", ReadingClass.VOLATILE)
        try:
            findings.add(f"net.{name}.driver", machine.link_name(f"{path}/device/driver"), ReadingClass.STACK)
        except OSError as error:
            findings.miss(f"net.{name}.driver", error)
        try:
            speed = machine.read(f"{path}/speed")
        except OSError:
            # The kernel refuses the question while the link is down.
            speed = ""
        if speed and speed != "-1":
            findings.add(f"net.{name}.speed_mbps", speed, ReadingClass.VOLATILE)
    return findings


def rdma(machine: Machine) -> Findings:
    """InfiniBand and RoCE devices; `rdma: none found` when there is none."""
    findings = Findings()
    try:
        names = machine.entries(_RDMA) if machine.exists(_RDMA) else []
    except OSError as error:
        findings.miss("rdma", error)
        return findings
    if not names:
        findings.add("rdma", "none found", ReadingClass.IDENTITY)
    for name in numeric_order(names):
        path = f"{_RDMA}/{name}"
        machine.collect(findings, f"{path}/node_guid", f"rdma.{name}.node_guid", ReadingClass.IDENTITY)
        machine.collect(findings, f"{path}/hca_type", f"rdma.{name}.type", ReadingClass.IDENTITY, required=False)
        machine.collect(findings, f"{path}/board_id", f"rdma.{name}.board", ReadingClass.IDENTITY, required=False)
        machine.collect(findings, f"{path}/fw_ver", f"rdma.{name}.firmware", ReadingClass.STACK, required=False)
        try:
            ports = machine.entries(f"{path}/ports")
        except OSError as error:
            findings.miss(f"rdma.{name}.ports", error)
            continue
        for port in numeric_order(ports):
            key = f"rdma.{name}.{port}"
            machine.collect(findings, f"{path}/ports/{port}/link_layer", f"{key}.link_layer", ReadingClass.CONFIG)
            machine.collect(findings, f"{path}/ports/{port}/rate", f"{key}.rate", ReadingClass.VOLATILE)
            machine.collect(findings, f"{path}/ports/{port}/state", f"{key}.state", ReadingClass.VOLATILE)
    return findings
