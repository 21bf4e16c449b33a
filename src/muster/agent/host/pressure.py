"""Memory pressure, killed processes, tasks that hang in I/O: from the kernel's figures to probes. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from muster.agent.host.config import PressureConfig
from muster.agent.sources import Probe
from muster.resources.base import Model
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity

SOURCE = "host-pressure"
CHECK = "pressure"
MEMORY, LOW, BLOCKED, KILLED = "memory-pressure", "memory-low", "tasks-blocked", "oom-kills"
_FULL = re.compile(r"^full avg10=[0-9.]+ avg60=([0-9]+\.[0-9]+)", re.MULTILINE)
_NUMBER = 10**18


@dataclass(frozen=True)
class PressureReading:
    """Each None: the kernel does not tell."""

    memory_full_percent: float | None = None
    available_percent: float | None = None
    blocked_tasks: int | None = None
    oom_kills: int | None = None
    """Since the boot."""


class PressureMemory(Model, frozen=True, kw_only=True):
    boot_id: str = ""
    oom_kills: int | None = None
    raised: dict[str, int] = {}
    """Code -> looks in a row above its limit."""
    calm: dict[str, int] = {}
    """Code of each alarm that is on -> looks in a row below its limit."""


def parse(pressure: str, meminfo: str, stat: str, vmstat: str) -> PressureReading:
    """Read `/proc/pressure/memory`, `/proc/meminfo`, `/proc/stat` and `/proc/vmstat`; empty text is not known."""
    full = _FULL.search(pressure)
    total, available = _value(meminfo, "MemTotal:"), _value(meminfo, "MemAvailable:")
    share = 100 * available / total if total and available is not None else None
    return PressureReading(
        memory_full_percent=float(full[1]) if full else None,
        available_percent=share,
        blocked_tasks=_value(stat, "procs_blocked"),
        oom_kills=_value(vmstat, "oom_kill"),
    )


def _value(text: str, name: str) -> int | None:
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0] == name and fields[1].isascii() and fields[1].isdigit():
            return min(int(fields[1][:19]), _NUMBER)
    return None


def judge(
    before: PressureMemory, reading: PressureReading, config: PressureConfig, boot_id: str
) -> tuple[PressureMemory, tuple[Probe, ...]]:
    """The memory after this look, and a probe for each figure that the kernel tells."""
    known = before if before.boot_id == boot_id else PressureMemory(boot_id=boot_id)
    raised, calm = dict(known.raised), dict(known.calm)
    probes: list[Probe] = []
    full, available, blocked = reading.memory_full_percent, reading.available_percent, reading.blocked_tasks
    if full is not None:
        high, low = full >= config.memory_full_percent, full < config.memory_full_percent / 2
        words = f"all tasks waited for memory in {full:.0f} % of the last minute"
        probes += _alarm(MEMORY, high, low, words, raised, calm, config)
    if available is not None:
        high, low = available < config.available_percent, available >= 2 * config.available_percent
        words = f"{available:.1f} % of the memory is available"
        probes += _alarm(LOW, high, low, words, raised, calm, config)
    if blocked is not None:
        high, low = blocked >= config.blocked_tasks, blocked < config.blocked_tasks / 2
        probes += _alarm(BLOCKED, high, low, f"{blocked} tasks hang in I/O", raised, calm, config)
    kills = reading.oom_kills
    if kills is not None:
        # A first look knows no kills of before: they are in the log.
        new = kills - known.oom_kills if known.oom_kills is not None and kills > known.oom_kills else 0
        if new:
            calm[KILLED] = 0
        elif KILLED in calm:
            calm[KILLED] += 1
            if calm[KILLED] >= config.clear_looks:
                del calm[KILLED]
        words = "the kernel killed processes for want of memory within the last minutes; its log names them"
        probes.append(_probe(KILLED, KILLED not in calm, words, Severity.INFO))
    memory = msgspec.structs.replace(
        known, oom_kills=kills if kills is not None else known.oom_kills, raised=raised, calm=calm
    )
    return memory, tuple(probes)


def _alarm(
    code: str,
    high: bool,
    low: bool,
    message: str,
    raised: dict[str, int],
    calm: dict[str, int],
    config: PressureConfig,
) -> list[Probe]:
    """Hysteresis in looks; while an alarm that is off is being raised it is unknown."""
    raised[code] = min(raised.get(code, 0) + 1, config.confirm_looks) if high else 0
    if code in calm:
        calm[code] = calm[code] + 1 if low else 0
        if calm[code] >= config.clear_looks:
            del calm[code]
    elif raised[code] >= config.confirm_looks:
        calm[code] = 0
    elif high:
        return [_probe(code, None, f"{message}, and that is not confirmed yet", Severity.WARNING)]
    return [_probe(code, code not in calm, message, Severity.WARNING)]


def _probe(code: str, healthy: bool | None, message: str, severity: Severity) -> Probe:
    return Probe(
        source=SOURCE,
        check=CHECK,
        code=code,
        entity=Entity(kind=EntityKind.NODE),
        healthy=healthy,
        severity=severity,
        scope=Scope.NODE,
        hint=Hint.INSPECT if severity is Severity.WARNING else Hint.NONE,
        message="" if healthy else message,
    )
