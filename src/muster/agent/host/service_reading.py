"""Reads what a node shows of its services: unit files, cgroups, processes, NVSwitches. Blocking; bounded."""

from __future__ import annotations

import os

from muster.agent.host.config import ServiceConfig, ServicesConfig
from muster.agent.host.processes import GONE, Process, by_name
from muster.agent.host.services import MachineReading, ServiceReading
from muster.inventory.machine import Machine

_UNITS = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
_CGROUPS = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/unified/system.slice")
_NVIDIA, _BRIDGE = "0x10de", "0x0680"


def read_services(machine: Machine, config: ServicesConfig) -> MachineReading:
    """All services of the configuration.

    Raises OSError when the node's processes or units cannot be seen: then they are neither down nor unexpected.
    """
    names = frozenset(service.process for service in config.services)
    processes = by_name(machine, names)
    links = _links(machine)
    return MachineReading(
        nvswitches=_nvswitches(machine),
        driver_loaded=machine.exists("proc/driver/nvidia/version"),
        services=tuple(
            (service.name, _service(machine, service, processes[service.process], links))
            for service in config.services
        ),
    )


def _service(
    machine: Machine, service: ServiceConfig, processes: list[Process], links: frozenset[str]
) -> ServiceReading:
    unit = next((unit for unit in service.units if _files(machine, unit)), "")
    masked = any(_is_masked(machine, path) for path in _files(machine, unit)) if unit else False
    main = next((process for process in processes if _is_its(service, process, unit)), None)
    return ServiceReading(
        installed=bool(unit),
        enabled=unit in links and not masked,
        masked=masked,
        process=main.identity if main is not None else "",
        oom_kills=_oom_kills(machine, unit) if unit else None,
        configured=_is_configured(machine, service.config) if service.config else False,
    )


def _is_its(service: ServiceConfig, process: Process, unit: str) -> bool:
    """Whether a process of the right name is the node's: pods may run programs of any name."""
    if any(f"/{name}" in process.cgroup for name in service.units):
        return True
    if service.in_container:
        return True
    return not unit and not process.in_pod


def _files(machine: Machine, unit: str) -> list[str]:
    return [f"{folder}/{unit}" for folder in _UNITS if os.path.lexists(machine.root / folder / unit)]


def _is_masked(machine: Machine, path: str) -> bool:
    try:
        return str((machine.root / path).readlink()) == "/dev/null"
    except OSError:
        return False


def _links(machine: Machine) -> frozenset[str]:
    """Units that something starts at boot. Only asked whether a unit is among them."""
    found: set[str] = set()
    for folder in _UNITS:
        for entry in _entries(machine, folder):
            if entry.endswith((".wants", ".requires")):
                found.update(_entries(machine, f"{folder}/{entry}"))
    return frozenset(found)


def _oom_kills(machine: Machine, unit: str) -> int | None:
    for folder in _CGROUPS:
        for line in _text(machine, f"{folder}/{unit}/memory.events").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.isascii() and value.isdigit():
                return int(value[:18])
    return None


def _is_configured(machine: Machine, path: str) -> bool:
    lines = _text(machine, path).splitlines()
    return any(line.strip() and not line.strip().startswith("#") for line in lines)


def _nvswitches(machine: Machine) -> int:
    """NVSwitches on the PCI bus, which this node has to set up itself."""
    count = 0
    for address in _entries(machine, "sys/bus/pci/devices"):
        path = f"sys/bus/pci/devices/{address}"
        if _text(machine, f"{path}/vendor") == _NVIDIA and _text(machine, f"{path}/class").startswith(_BRIDGE):
            count += 1
    return count


def _entries(machine: Machine, path: str) -> list[str]:
    try:
        return machine.entries(path)
    except OSError as error:
        if error.errno not in GONE:
            raise
        return []


def _text(machine: Machine, path: str) -> str:
    try:
        return machine.read(path)
    except OSError as error:
        if error.errno not in GONE:
            raise
        return ""
