"""Lines of the parts of a cluster that care for GPUs: device plugins, kubelet, node-problem-detector, API clients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from muster.read.fabric_ports.lines import Line


class Said(StrEnum):
    """What a line says."""

    CONFLICT = "write-conflict"
    XID = "xid"
    UNHEALTHY = "gpu-marked-unhealthy"
    HEALTHY = "gpu-marked-healthy"
    SKIPPED_XID = "xid-ignored"
    NO_DEVICES = "device-plugin-no-gpus"
    NVML_FAILED = "nvml-failed"
    ALLOCATION = "gpu-allocation-failed"
    NOT_READY = "node-not-ready"
    RUNTIME = "container-runtime-unhealthy"
    EVICTION = "eviction-pressure"
    PROBLEM = "problem-condition"
    STOPPED = "device-plugin-stopped"


@dataclass(frozen=True)
class Entry:
    """One finding of one line."""

    said: Said
    line: int
    text: str
    name: str = ""
    """GPU UUID, object, condition or resource, whatever the line is about."""
    code: int | None = None
    detail: str = ""


_UUID = r"(?P<name>(?:GPU|MIG)-[0-9A-Za-z-/]{4,80})"
_PATTERNS: tuple[tuple[Said, re.Pattern[str]], ...] = (
    (
        Said.CONFLICT,
        re.compile(r"Operation cannot be fulfilled on (?P<detail>[A-Za-z0-9./-]{1,100}) \"(?P<name>[^\"]{1,253})\""),
    ),
    (
        Said.SKIPPED_XID,
        re.compile(
            r"(?:[Ss]kipping|[Ii]gnoring) (?:event|health event|XID|Xid).{0,200}?(?:Xid|XID"
            r"|EventData:?)[ =:]{1,3}(?P<code>\d{1,4})"
        ),
    ),
    (Said.XID, re.compile(rf"XidCriticalError: Xid=(?P<code>\d{{1,4}}) on Device=?{_UUID}")),
    (
        Said.XID,
        re.compile(r"XidCriticalError: Xid=(?P<code>\d{1,4}) on (?P<detail>all devices|unknown device|GPU=\S{1,60})"),
    ),
    (Said.UNHEALTHY, re.compile(rf"device marked unhealthy: {_UUID}")),
    (Said.UNHEALTHY, re.compile(rf"(?:[Mm]arking (?:it|device)(?: {_UUID})? (?:as )?unhealthy)")),
    (Said.HEALTHY, re.compile(rf"device marked healthy: {_UUID}")),
    (
        Said.NO_DEVICES,
        re.compile(
            r"No devices found(?:\. Waiting indefinitely|; )|no (?:NVIDIA )?GPUs? (?:found|detected)", re.IGNORECASE
        ),
    ),
    (
        Said.NVML_FAILED,
        re.compile(
            r"(?:[Ff]ailed to initialize NVML|could not load NVML library|nvml init failed|error"
            r" starting NVML)(?:: ?(?P<detail>[^.\n]{1,120}))?"
        ),
    ),
    (
        Said.ALLOCATION,
        re.compile(
            r"(?:Allocate failed due to|requested number of devices unavailable for|cannot allocate"
            r" unhealthy devices) ?(?P<detail>.{0,200})"
        ),
    ),
    (
        Said.STOPPED,
        re.compile(
            r"(?:[Ee]ndpoint|device plugin).{0,60}(?:became unhealthy|stopped|has been"
            r" removed).{0,60}(?P<name>[a-z.]{3,40}/[a-z0-9.-]{2,40})?"
        ),
    ),
    (
        Said.RUNTIME,
        re.compile(
            r"PLEG is not healthy|container runtime is down|[Cc]ontainer runtime network not ready"
            r"|runtime network not ready"
        ),
    ),
    (
        Said.NOT_READY,
        re.compile(r"[Nn]ode became not ready|status is now: NodeNotReady|Kubelet stopped posting node status"),
    ),
    (
        Said.EVICTION,
        re.compile(
            r"[Ee]viction manager: (?:attempting to reclaim|must evict pod"
            r"|pods? .{0,100}evicted).{0,60}?(?:resourceName=\"?(?P<name>[a-z-]{3,40}))?"
        ),
    ),
    (
        Said.PROBLEM,
        re.compile(r"Type:(?P<name>[A-Za-z]{3,60}) Status:True .{0,200}?Reason:(?P<detail>[A-Za-z]{2,60})"),
    ),
    (
        Said.PROBLEM,
        re.compile(r"[Nn]ode condition (?P<name>[A-Za-z]{3,60}) is now: True, reason: (?P<detail>[A-Za-z0-9]{2,60})"),
    ),
)
_MAX_ENTRIES = 100_000


def parse(lines: Sequence[Line]) -> list[Entry]:
    """All findings in the order of the lines."""
    found: list[Entry] = []
    for line in lines:
        for said, pattern in _PATTERNS:
            match = pattern.search(line.text[:4000])
            if match is None:
                continue
            groups = match.groupdict()
            code = groups.get("code")
            found.append(
                Entry(
                    said,
                    line.number,
                    line.text.strip()[:300],
                    groups.get("name") or "",
                    int(code) if code else None,
                    (groups.get("detail") or "").strip(),
                )
            )
            break
        if len(found) >= _MAX_ENTRIES:
            break
    return found
