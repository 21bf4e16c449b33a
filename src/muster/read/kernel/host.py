"""Lines of the kernel itself: file systems, disks, memory, PCIe, lockups, out of memory, crashed processes."""

from __future__ import annotations

import re

from muster.read import pci
from muster.read.kernel.finding import NODE, Detection, condition
from muster.read.source import printable
from muster.resources.fault import Entity, EntityKind, Hint, Severity

_DEVICE = r"[A-Za-z0-9!_.:/-]{1,64}"
_EXT4_ERROR = re.compile(rf"EXT4-fs error \(device (?P<device>{_DEVICE})\)")
_EXT4_READONLY = re.compile(rf"EXT4-fs \((?P<device>{_DEVICE})\): Remounting filesystem read-only")
_XFS = re.compile(rf"XFS \((?P<device>{_DEVICE})\): (?P<text>.+)")
_XFS_DOWN = re.compile(r"shutting down filesystem|filesystem has been shut down|log I/O error", re.IGNORECASE)
_XFS_ERROR = re.compile(r"metadata I/O error|corruption (?:of|detected|warning)|metadata corruption", re.IGNORECASE)
_IO_ERROR = re.compile(
    rf"(?:blk_update_request: )?(?P<what>I/O|\b\w{{1,20}} \w{{1,20}}) error, dev (?P<device>{_DEVICE}), sector \d+"
)
_NVME = re.compile(r"nvme (?P<device>nvme\d+)(?:n\d+)?: (?P<text>.+)")
_NVME_DOWN = re.compile(
    r"controller is down|Device not ready|Removing after probe failure|Disabling device", re.IGNORECASE
)
_NVME_TIMEOUT = re.compile(r"\bI/O\b.*\btimeout\b|\btimeout, (?:aborting|completion polled|reset)", re.IGNORECASE)

_PANIC = re.compile(r"Kernel panic - not syncing: ?(?P<text>.*)")
_OOPS = re.compile(r"BUG: (?P<text>unable to handle .+|kernel NULL pointer .+|stack guard page .+)")
_SOFT = re.compile(
    r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#(?P<cpu>\d+) stuck for (?P<s>\d+)s!(?: \[(?P<task>[^\]]*)\])?"
)
_HARD = re.compile(
    r"(?:NMI )?watchdog: (?:CPU\d+: )?Watchdog detected hard LOCKUP on cpu (?P<cpu>\d+)", re.IGNORECASE
)
_RCU = re.compile(r"(?:rcu: )?(?:INFO: )?\w+ (?:self-)?detected stalls? on CPU")
_HUNG = re.compile(r"INFO: task (?P<name>.{1,64}?):(?P<pid>\d+) blocked for more than (?P<s>\d+) seconds")
_OOM = re.compile(
    r"(?P<cgroup>Memory cgroup )?[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d+)(?: \((?P<name>[^)]{0,64})\))?"
)

_EDAC = re.compile(
    r"EDAC MC(?P<controller>\d+): (?P<count>\d+) (?P<kind>CE|UE) (?P<what>.{0,120}?) on (?P<label>.{1,120}?)"
    r" \((?:channel:(?P<channel>\d+))?(?: ?slot:(?P<slot>\d+))?"
)
_SOCKET = re.compile(r"(?:CPU_SrcID|CPU|Socket|SrcID_?)#?(?P<socket>\d+)")
_CHANNEL = re.compile(r"Chan(?:nel)?#?(?P<channel>\d+)")
_DIMM = re.compile(r"DIMM#?(?P<dimm>\d+)")
_MCE_LOGGED = re.compile(r"mce: \[Hardware Error\]: Machine check events logged")
_MCE_EXCEPTION = re.compile(r"mce: \[Hardware Error\]: (?:CPU (?P<cpu>\d+): )?Machine Check Exception")
_MCE_MEMORY = re.compile(r"mce: Uncorrected hardware memory error")
_GHES = re.compile(r"\{\d+\}\[Hardware Error\]: event severity: (?P<severity>\w+)")
_AER = re.compile(
    rf"(?:pcieport|[\w-]+) (?P<by>{pci.PATTERN}): AER: (?:Multiple )?"
    rf"(?P<kind>Corrected|Correctable|Uncorrected|Uncorrectable)(?: \((?P<fatal>Fatal|Non-Fatal)\))? error"
    rf"(?: message)? received(?: from|:) (?P<pci>{pci.PATTERN})",
    re.IGNORECASE,
)
_BUS_ERROR = re.compile(
    rf"[\w-]+ (?P<pci>{pci.PATTERN}): (?:AER: )?PCIe Bus Error: severity=(?P<kind>Corrected|Uncorrected)"
    r"(?: \((?P<fatal>Fatal|Non-Fatal)\))?",
    re.IGNORECASE,
)
_SEGFAULT = re.compile(
    r"(?P<name>.{1,64}?)\[(?P<pid>\d+)\]: segfault at (?P<address>[0-9a-f]+) ip (?P<ip>[0-9a-f]+) sp [0-9a-f]+ "
    r"error (?P<error>\d+)(?: in (?P<module>[^\s\[]{1,120}))?"
)


def detect_filesystem(message: str) -> Detection | None:
    if match := _EXT4_ERROR.match(message):
        return condition("fs-error", _filesystem(match["device"]))
    if match := _EXT4_READONLY.match(message):
        return condition("fs-readonly", _filesystem(match["device"]))
    if match := _XFS.match(message):
        text = {"text": printable(match["text"], 200)}
        if _XFS_DOWN.search(match["text"]):
            return condition("fs-shutdown", _filesystem(match["device"]), text)
        if _XFS_ERROR.search(match["text"]):
            return condition("fs-error", _filesystem(match["device"]), text)
    return None


def _filesystem(device: str) -> Entity:
    return Entity(kind=EntityKind.FILESYSTEM, device=device)


def detect_disk(message: str) -> Detection | None:
    if match := _IO_ERROR.search(message):
        disk = Entity(kind=EntityKind.DISK, device=match["device"])
        return condition("disk-io-error", disk, {"error": match["what"]})
    if match := _NVME.match(message):
        disk = Entity(kind=EntityKind.DISK, device=match["device"])
        text = {"text": printable(match["text"], 200)}
        if _NVME_DOWN.search(match["text"]):
            return condition("nvme-controller-down", disk, text)
        if _NVME_TIMEOUT.search(match["text"]):
            return condition("nvme-timeout", disk, text)
    return None


def detect_kernel(message: str) -> Detection | None:
    if match := _PANIC.match(message):
        return condition("kernel-panic", NODE, {"text": printable(match["text"], 200) or None})
    if match := _SOFT.match(message):
        details = {"cpu": int(match["cpu"]), "stuck_s": int(match["s"]), "task": match["task"]}
        return condition("soft-lockup", NODE, details)
    if match := _HARD.match(message):
        return condition("hard-lockup", NODE, {"cpu": int(match["cpu"])})
    if match := _OOPS.match(message):
        return condition("kernel-oops", NODE, {"text": printable(match["text"], 200)})
    if _RCU.match(message):
        return condition("rcu-stall", NODE)
    if match := _HUNG.match(message):
        details = {"process": match["name"], "pid": int(match["pid"]), "blocked_s": int(match["s"])}
        return condition("hung-task", NODE, details)
    if match := _OOM.match(message):
        details = {"process": match["name"], "pid": int(match["pid"])}
        return condition("oom-kill-cgroup" if match["cgroup"] else "oom-kill", NODE, details)
    return None


def detect_memory(message: str) -> Detection | None:
    if match := _EDAC.match(message):
        return _edac(match)
    if _MCE_LOGGED.match(message):
        return condition("mce-logged", NODE)
    if match := _MCE_EXCEPTION.match(message):
        return condition("mce-exception", NODE, {"cpu": int(match["cpu"]) if match["cpu"] else None})
    if _MCE_MEMORY.match(message):
        return condition("mce-uncorrected", NODE)
    if match := _GHES.match(message):
        severity = match["severity"].lower()
        known = severity if severity in ("fatal", "recoverable", "corrected", "info") else "recoverable"
        return condition(f"ghes-{known}", NODE, {"severity_word": severity[:32]})
    return None


def _edac(match: re.Match[str]) -> Detection:
    """The label is the board vendor's; what it does not tell is taken from the parentheses or left out."""
    label = match["label"]
    socket, channel, dimm = _SOCKET.search(label), _CHANNEL.search(label), _DIMM.search(label)
    about = {
        "socket": int(socket["socket"]) if socket else None,
        "controller": int(match["controller"]),
        "channel": int(channel["channel"]) if channel else int(match["channel"]) if match["channel"] else None,
        "dimm": int(dimm["dimm"]) if dimm else int(match["slot"]) if match["slot"] else None,
    }
    entity = Entity(kind=EntityKind.DIMM, name=f"MC{match['controller']}/{label[:80]}")
    code = "edac-ue" if match["kind"] == "UE" else "edac-ce"
    details = {"text": printable(match["what"], 80)}
    return condition(code, entity, details, about, count=max(1, min(int(match["count"]), 10**9)))


def detect_pcie(message: str) -> Detection | None:
    """AER reports. The reporting port and the device at fault are two devices."""
    match = _AER.match(message)
    if match is not None:
        found = _aer(match["pci"], match["kind"], match["fatal"])
        return found.changed(about={"reported_by": pci.normalise(match["by"])})
    match = _BUS_ERROR.match(message)
    if match is not None:
        return _aer(match["pci"], match["kind"], match["fatal"]).changed(companion=True)
    return None


def _aer(address: str, kind: str, fatal: str | None) -> Detection:
    device = Entity(kind=EntityKind.PCI_DEVICE, pci=pci.normalise(address))
    if kind.lower().startswith("corr"):
        word, severity, hint = "correctable", Severity.INFO, Hint.NONE
    elif fatal is not None and fatal.lower() == "fatal":
        word, severity, hint = "uncorrectable-fatal", Severity.FATAL, Hint.INSPECT
    else:
        word, severity, hint = "uncorrectable-nonfatal", Severity.WARNING, Hint.INSPECT
    return condition("pcie-aer", device, {"aer": word}, severity=severity, hint=hint, group=word)


def detect_segfault(message: str) -> Detection | None:
    match = _SEGFAULT.match(message)
    if match is None:
        return None
    name = printable(match["name"].removeprefix("traps: "), 64)
    process = Entity(kind=EntityKind.PROCESS, name=name)
    details = {"module": match["module"], "address": f"0x{match['address']}", "error": int(match["error"])}
    return condition("segfault", process, details, {"pid": int(match["pid"])}, group=match["module"] or "")
