"""GPUs and NVSwitches through PCI sysfs and /proc/driver/nvidia; no vendor library is needed."""

from __future__ import annotations

import re

from muster.configure.snapshot.machine import Findings, Machine
from muster.resources.fingerprint import ReadingClass

NVIDIA_VENDOR = "0x10de"
_GPU_CLASSES = ("0x0300", "0x0302")
"""PCI class and subclass of display and 3D controllers."""
_BRIDGE_CLASS = "0x0680"
"""Other bridge: NVSwitch."""
_DEVICES = "sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DRIVER = re.compile(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d+(?:\.\d+)+)")


def gpus(machine: Machine) -> Findings:
    """One group of readings per GPU (`gpu.<index by PCI address>.*`); `gpu: none found` when there is none."""
    findings = Findings()
    try:
        addresses = [name for name in machine.entries(_DEVICES) if _ADDRESS.fullmatch(name)]
    except OSError as error:
        findings.miss("gpu", error)
        return findings
    found: list[str] = []
    switches = 0
    for address in addresses:
        try:
            if machine.read(f"{_DEVICES}/{address}/vendor") != NVIDIA_VENDOR:
                continue
            pci_class = machine.read(f"{_DEVICES}/{address}/class")[:6]
        except OSError as error:
            findings.miss(f"pci.{address}", error)
            continue
        if pci_class in _GPU_CLASSES:
            found.append(address)
        elif pci_class == _BRIDGE_CLASS:
            switches += 1
    if not found:
        findings.add("gpu", "none found", ReadingClass.IDENTITY)
        return findings
    findings.add("gpu.count", str(len(found)), ReadingClass.IDENTITY)
    findings.add("nvswitch.count", str(switches), ReadingClass.IDENTITY)
    for index, address in enumerate(found):
        _gpu(machine, findings, index, address)
    return findings


def _gpu(machine: Machine, findings: Findings, index: int, address: str) -> None:
    findings.add(f"gpu.{index}.pci", address, ReadingClass.IDENTITY)
    for path, name, reading_class in (
        ("device", "device_id", ReadingClass.IDENTITY),
        ("subsystem_device", "subsystem_id", ReadingClass.IDENTITY),
        ("max_link_speed", "pcie_max_speed", ReadingClass.IDENTITY),
        ("max_link_width", "pcie_max_width", ReadingClass.IDENTITY),
        ("numa_node", "numa_node", ReadingClass.CONFIG),
        # Idle GPUs lower the speed of their link, and it comes back under load.
        ("current_link_speed", "pcie_speed", ReadingClass.VOLATILE),
        ("current_link_width", "pcie_width", ReadingClass.VOLATILE),
    ):
        machine.collect(
            findings, f"{_DEVICES}/{address}/{path}", f"gpu.{index}.{name}", reading_class, required=False
        )
    try:
        text = machine.read(f"proc/driver/nvidia/gpus/{address}/information")
    except OSError as error:
        findings.miss(f"gpu.{index}.uuid", error)
        return
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    for key, name, reading_class in (
        ("Model", "model", ReadingClass.IDENTITY),
        ("GPU UUID", "uuid", ReadingClass.IDENTITY),
        ("Video BIOS", "vbios", ReadingClass.STACK),
        ("GPU Firmware", "gsp_firmware", ReadingClass.STACK),
    ):
        value = fields.get(key, "")
        # The driver fills in question marks before the GPU was initialised once.
        if value and "?" not in value:
            findings.add(f"gpu.{index}.{name}", value, reading_class)
        elif name == "uuid":
            findings.miss(f"gpu.{index}.uuid", "the driver has not initialised the GPU yet")


def driver(machine: Machine) -> Findings:
    """`driver.version` of the loaded NVIDIA driver, or `not loaded`."""
    findings = Findings()
    try:
        text = machine.read("proc/driver/nvidia/version")
    except FileNotFoundError:
        findings.add("driver.version", "not loaded", ReadingClass.STACK)
        return findings
    except OSError as error:
        findings.miss("driver.version", error)
        return findings
    match = _DRIVER.search(text)
    if match:
        findings.add("driver.version", match[1], ReadingClass.STACK)
    else:
        findings.miss("driver.version", "/proc/driver/nvidia/version has an unknown form")
    return findings
