"""Operating system, kernel, firmware, modules and services."""

from __future__ import annotations

import re
import shlex

from muster.inventory.machine import Findings, Machine
from muster.inventory.readings import ON_DEMAND_MODULES
from muster.resources.fingerprint import ReadingClass

SYSCTLS = (
    "kernel/numa_balancing",
    "kernel/pid_max",
    "kernel/threads-max",
    "net/core/rmem_max",
    "net/core/somaxconn",
    "net/core/wmem_max",
    "net/ipv4/conf/all/arp_announce",
    "net/ipv4/conf/all/arp_ignore",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/ip_forward",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "vm/max_map_count",
    "vm/nr_hugepages",
    "vm/overcommit_memory",
    "vm/swappiness",
    "vm/zone_reclaim_mode",
)
"""Settings that workloads on GPU nodes depend on. Counters below /proc/sys are left out: they change by themselves.
`kernel/threads-max` is fixed at boot from the size of memory."""

_BOOT_ONLY = ("root", "initrd", "BOOT_IMAGE", "resume", "ostree", "boot", "rd.luks.uuid")
"""Parameters of the kernel that name a disk or an image: they differ between equal nodes and between boots."""

MODULES = re.compile(
    r"(nvidia\w*|gdrdrv|mlx5_\w+|mlx4_\w+|ib_\w+|rdma_\w+|efa|irdma|bnxt_\w+|ice|lustre|gpfs\w*|nvme\w*)"
)
UNITS = (
    "containerd.service",
    "crio.service",
    "docker.service",
    "kubelet.service",
    "nvidia-fabricmanager.service",
    "nvidia-imex.service",
    "nvidia-persistenced.service",
    "openibd.service",
    "opensm.service",
)


def os_release(machine: Machine) -> Findings:
    """`os.id`, `os.version_id`, `os.name` from os-release."""
    findings = Findings()
    try:
        path = "etc/os-release" if machine.exists("etc/os-release") else "usr/lib/os-release"
        text = machine.read(path)
    except OSError as error:
        findings.miss("os", error)
        return findings
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and re.fullmatch(r"[A-Z_]+", key):
            fields[key] = value.strip().strip("\"'")
    for key, name in (("ID", "os.id"), ("VERSION_ID", "os.version_id"), ("PRETTY_NAME", "os.name")):
        if fields.get(key):
            findings.add(name, fields[key])
        elif key == "ID":
            findings.miss(name, f"{path} has no {key}")
    return findings


def kernel(machine: Machine) -> Findings:
    """Kernel version, command line without what names the boot, the boot itself."""
    findings = Findings()
    machine.collect(findings, "proc/sys/kernel/osrelease", "kernel.version")
    machine.collect(findings, "proc/sys/kernel/random/boot_id", "boot.id")
    try:
        text = machine.read("proc/cmdline")
    except OSError as error:
        findings.miss("kernel.cmdline", error)
        return findings
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    kept = [word for word in words if word.partition("=")[0] not in _BOOT_ONLY]
    findings.add("kernel.cmdline", " ".join(kept))
    return findings


def sysctls(machine: Machine) -> Findings:
    """`sysctl.<name>` for SYSCTLS."""
    findings = Findings()
    for path in SYSCTLS:
        # A kernel without the setting has nothing to tell.
        machine.collect(findings, f"proc/sys/{path}", f"sysctl.{path.replace('/', '.')}", required=False)
    return findings


def modules(machine: Machine) -> Findings:
    """Loaded kernel modules that matter to GPUs, fabrics and storage, with the version that they state.

    Those that the first program loads are volatile: a node that begins to work is still the same node.
    """
    findings = Findings()
    try:
        text = machine.read("proc/modules")
    except OSError as error:
        built_in = isinstance(error, FileNotFoundError) and machine.exists("proc/sys/kernel/osrelease")
        if not built_in:  # a kernel without loadable modules has no such file
            findings.miss("modules", error)
        return findings
    for name in sorted({line.split()[0] for line in text.splitlines() if line.strip()}):
        if MODULES.fullmatch(name):
            try:
                version = machine.read(f"sys/module/{name}/version")
            except OSError:
                version = "loaded"
            volatile = ReadingClass.VOLATILE if name in ON_DEMAND_MODULES else None
            findings.add(f"module.{name}", version or "loaded", volatile)
    return findings


def firmware(machine: Machine) -> Findings:
    """What the firmware says about the machine; absent on virtual machines without DMI."""
    findings = Findings()
    for path, name in (
        ("sys_vendor", "system.vendor"),
        ("product_name", "system.product"),
        ("product_serial", "system.serial"),
        ("bios_version", "system.bios_version"),
    ):
        machine.collect(findings, f"sys/class/dmi/id/{path}", name, required=False)
    return findings


def units(machine: Machine) -> Findings:
    """Services: whether they start at boot (config) and whether they run right now (volatile)."""
    findings = Findings()
    if machine.run is None or not machine.exists("run/systemd/system"):
        findings.miss("systemd", "systemd does not run here")
        return findings
    try:
        text = machine.run(["systemctl", "show", "--property=Id,LoadState,UnitFileState,ActiveState", *UNITS])
    except OSError as error:
        findings.miss("systemd", error)
        return findings
    for block in text.split("\n\n"):
        fields = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        unit = fields.get("Id", "")
        if unit not in UNITS or fields.get("LoadState") != "loaded":
            continue
        findings.add(f"unit.{unit}.enabled", fields.get("UnitFileState") or "static")
        findings.add(f"unit.{unit}.active", fields.get("ActiveState", "unknown"))
    return findings
