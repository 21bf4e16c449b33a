"""GPUs and NVSwitches through PCI sysfs and /proc/driver/nvidia; no vendor library is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.inventory.machine import Findings, Machine
from muster.read.pci import normalise

NVIDIA_VENDOR = "0x10de"
NOT_LOADED = "not loaded"
"""The driver version of a machine without a loaded driver."""
NOT_INITIALISED = "the driver has not initialised the GPU"
_GPU_CLASSES = ("0x0300", "0x0302")
"""PCI class and subclass of display and 3D controllers."""
_BRIDGE_CLASS = "0x0680"
"""Other bridge: NVSwitch."""
_DEVICES = "sys/bus/pci/devices"
_DRIVER_GPUS = "proc/driver/nvidia/gpus"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DRIVER = re.compile(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d+(?:\.\d+)+)")
_UNKNOWN = "?"
"""The driver fills in question marks for what it does not know before it initialised a GPU."""
_INFORMATION = (("Model", "product"), ("GPU UUID", "uuid"), ("Video BIOS", "vbios"), ("GPU Firmware", "gsp_firmware"))


def gpus(machine: Machine) -> Findings:
    """One group of readings per GPU (`gpu.<index by PCI address>.*`); `gpu: none found` when there is none.

    GPUs are those of the PCI bus and those that the driver lists. One that the driver lost keeps its number as long
    as the bus shows it.
    """
    findings = Findings()
    folders = _driver_folders(machine)
    try:
        names = machine.entries(_DEVICES)
    except OSError as error:
        no_bus = isinstance(error, FileNotFoundError) and machine.exists("sys/bus")
        if not folders and not no_bus:
            findings.miss("gpu", error)
            return findings
        names = []
    found = dict.fromkeys(folders, "")
    switches = 0
    for name in names:
        if not _ADDRESS.fullmatch(name):
            continue
        try:
            if machine.read(f"{_DEVICES}/{name}/vendor") != NVIDIA_VENDOR:
                continue
            pci_class = machine.read(f"{_DEVICES}/{name}/class")[:6]
        except OSError as error:
            # A GPU may hide behind it, so the number of GPUs is not known either.
            findings.miss("gpu.count", f"the PCI device {name}: {error.strerror or type(error).__name__}")
            continue
        if pci_class in _GPU_CLASSES:
            found[normalise(name) or name] = f"{_DEVICES}/{name}"
        elif pci_class == _BRIDGE_CLASS:
            switches += 1
    if not any(unknown.name == "gpu.count" for unknown in findings.unknown):
        findings.add("gpu.count", str(len(found)))
        if not found:
            findings.add("gpu", "none found")
    if not found:
        return findings
    findings.add("nvswitch.count", str(switches))
    for index, address in enumerate(sorted(found)):
        _gpu(machine, findings, index, address, found[address], folders)
    return findings


def addresses(findings: Findings) -> tuple[str, ...]:
    """The PCI addresses that `gpus` found; the position is the number of the GPU."""
    values = findings.values()
    found: list[str] = []
    while (address := values.get(f"gpu.{len(found)}.pci")) is not None:
        found.append(address)
    return tuple(found)


def _driver_folders(machine: Machine) -> dict[str, str]:
    """PCI address -> folder of the driver about the GPU."""
    try:
        names = machine.entries(_DRIVER_GPUS)
    except OSError:
        return {}
    return {normalise(name) or name: f"{_DRIVER_GPUS}/{name}" for name in names}


def _gpu(
    machine: Machine, findings: Findings, index: int, address: str, device: str, folders: Mapping[str, str]
) -> None:
    findings.add(f"gpu.{index}.pci", address)
    for path, name in (
        ("device", "device_id"),
        ("subsystem_device", "subsystem_id"),
        ("max_link_speed", "pcie_max_speed"),
        ("max_link_width", "pcie_max_width"),
        ("numa_node", "numa_node"),
        ("current_link_speed", "pcie_speed"),
        ("current_link_width", "pcie_width"),
    ):
        if device:
            machine.collect(findings, f"{device}/{path}", f"gpu.{index}.{name}", required=False)
    try:
        text = machine.read(f"{folders[address]}/information")
    except (KeyError, OSError) as error:
        reason = "the NVIDIA driver does not list the GPU" if isinstance(error, KeyError) else error
        for _, name in _INFORMATION:
            findings.miss(f"gpu.{index}.{name}", reason)
        return
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    for key, name in _INFORMATION:
        value = fields.get(key, "")
        if value and _UNKNOWN not in value:
            findings.add(f"gpu.{index}.{name}", value)
        elif name == "uuid" or value:
            findings.miss(f"gpu.{index}.{name}", NOT_INITIALISED)


def driver(machine: Machine) -> Findings:
    """`driver.version` of the loaded NVIDIA driver, or `not loaded`."""
    findings = Findings()
    try:
        text = machine.read("proc/driver/nvidia/version")
    except FileNotFoundError:
        findings.add("driver.version", NOT_LOADED)
        return findings
    except OSError as error:
        findings.miss("driver.version", error)
        return findings
    match = _DRIVER.search(text)
    if match:
        findings.add("driver.version", match[1])
    else:
        findings.miss("driver.version", "/proc/driver/nvidia/version has an unknown form")
    return findings
