"""Services of the node: down, restarting again and again, out of memory. Pure.

A service is expected when it starts by itself at boot, ran in this boot, or the machine needs it. Down is told only
after several looks and some time; a service that nobody can tell anything of is unknown and no fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from muster.agent.host.config import Expectation, ServiceConfig, ServicesConfig
from muster.agent.sources import Probe
from muster.resources.base import Model
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity

SOURCE = "host-services"
CHECK = "service"
DOWN, MISSING, FLAPPING, OUT_OF_MEMORY = "service-down", "service-missing", "service-flapping", "service-oom"
MAX_RESTARTS = 64


@dataclass(frozen=True, kw_only=True)
class ServiceReading:
    """What one look shows of one service."""

    installed: bool
    """A unit file exists."""
    enabled: bool
    """It starts at boot."""
    masked: bool
    """An administrator made it impossible to start."""
    process: str
    """Identity of its main process (ID and start time); empty: none."""
    oom_kills: int | None = None
    """Processes of its cgroup that the kernel killed for want of memory, since it was started."""
    configured: bool = False
    """Its configuration lists something."""


@dataclass(frozen=True, kw_only=True)
class MachineReading:
    """What decides whether services are needed here."""

    nvswitches: int
    driver_loaded: bool
    services: tuple[tuple[str, ServiceReading], ...]
    """By name of the service, in the order of the configuration."""


class ServiceMemory(Model, frozen=True, kw_only=True):
    """One service so far, in the present boot."""

    ran: bool = False
    enabled: bool = False
    """It started by itself at boot at some look."""
    process: str = ""
    """The last main process."""
    down_since: datetime | None = None
    down_looks: int = 0
    restarts: tuple[datetime, ...] = ()
    flapping: bool = False
    oom_kills: int | None = None
    oom_at: datetime | None = None


class ServicesMemory(Model, frozen=True, kw_only=True):
    boot_id: str = ""
    services: dict[str, ServiceMemory] = {}


def judge(
    before: ServicesMemory,
    reading: MachineReading,
    config: ServicesConfig,
    boot_id: str,
    booted_at: datetime | None,
    now: datetime,
) -> tuple[ServicesMemory, tuple[Probe, ...]]:
    """The memory after this look, and the probes of what can be told now."""
    memory = before if before.boot_id == boot_id else ServicesMemory(boot_id=boot_id)
    young = booted_at is not None and now < booted_at + timedelta(seconds=config.boot_grace_s)
    found = dict(reading.services)
    services: dict[str, ServiceMemory] = {}
    probes: list[Probe] = []
    for service in config.services:
        seen = found.get(service.name)
        known = memory.services.get(service.name, ServiceMemory())
        if seen is not None:
            known, restarts = _restarts(service, seen, known, config, now)
            known, state = _state(service, seen, known, reading, config, young, now)
            known, killed = _killed(service, seen, known, config, now)
            probes += [*state, *restarts, *killed]
        services[service.name] = known
    return ServicesMemory(boot_id=boot_id, services=services), tuple(probes)


def is_expected(service: ServiceConfig, seen: ServiceReading, known: ServiceMemory, machine: MachineReading) -> bool:
    """Whether the service must run now."""
    if seen.masked or (service.in_container and not machine.driver_loaded):
        # What serves the driver cannot run without it; that the driver is missing is told elsewhere.
        return False
    # Other units may start what does not start by itself; only a change tells that a person wants it stopped.
    wanted = seen.enabled or (known.ran and not known.enabled)
    match service.expected:
        case Expectation.WHEN_ENABLED:
            return wanted
        case Expectation.WITH_NVSWITCH:
            return wanted or _is_needed(service, machine)
        case Expectation.WHEN_CONFIGURED:
            return wanted and seen.configured


def _is_needed(service: ServiceConfig, machine: MachineReading) -> bool:
    """Whether the hardware cannot do without it, whatever is enabled."""
    return service.expected is Expectation.WITH_NVSWITCH and machine.nvswitches > 0


def _state(
    service: ServiceConfig,
    seen: ServiceReading,
    known: ServiceMemory,
    machine: MachineReading,
    config: ServicesConfig,
    young: bool,
    now: datetime,
) -> tuple[ServiceMemory, list[Probe]]:
    well = [_probe(service, DOWN, True), _probe(service, MISSING, True)]
    known = msgspec.structs.replace(known, enabled=known.enabled or seen.enabled)
    if seen.process or not is_expected(service, seen, known, machine):
        ran = known.ran or bool(seen.process)
        return msgspec.structs.replace(known, ran=ran, down_since=None, down_looks=0), well
    since = min(known.down_since or now, now)
    known = msgspec.structs.replace(known, down_since=since, down_looks=min(known.down_looks + 1, 10_000))
    confirmed = known.down_looks >= config.confirm_looks and now >= since + timedelta(seconds=config.confirm_s)
    if not confirmed or (young and not known.ran):
        words = f"{service.name} is not running, and that is not confirmed yet"
        return known, [_probe(service, code, None, words) for code in (DOWN, MISSING)]
    if not seen.installed and not known.ran:
        words = (
            f"the machine has {machine.nvswitches} NVSwitches, and {service.name} is neither installed nor running"
        )
        return known, [_probe(service, DOWN, True), _probe(service, MISSING, False, words, Severity.WARNING)]
    minutes = (now - since).total_seconds() / 60
    words = f"{service.name} has not been running for {minutes:.0f} minutes"
    severity = service.severity
    if not known.ran and not _is_needed(service, machine):
        # A unit that is enabled and never starts may be a leftover; the kubelet that runs our pod does without.
        words, severity = f"{service.name} starts at boot and has not run in this one", Severity.WARNING
    return known, [
        _probe(service, DOWN, False, words, severity, service.hint),
        _probe(service, MISSING, True),
    ]


def _restarts(
    service: ServiceConfig, seen: ServiceReading, known: ServiceMemory, config: ServicesConfig, now: datetime
) -> tuple[ServiceMemory, list[Probe]]:
    restarts = _recent(known.restarts, config, now)
    if seen.process and known.process and seen.process != known.process:
        restarts = (*restarts, now)[-MAX_RESTARTS:]
    on = len(restarts) >= config.flaps or (known.flapping and len(restarts) > config.flaps // 2)
    known = msgspec.structs.replace(known, process=seen.process or known.process, restarts=restarts, flapping=on)
    words = f"{service.name} was started anew {len(restarts)} times within {config.flap_window_s:g} s"
    return known, [_probe(service, FLAPPING, not on, words, Severity.WARNING)]


def _recent(times: Sequence[datetime], config: ServicesConfig, now: datetime) -> tuple[datetime, ...]:
    since = now - timedelta(seconds=config.flap_window_s)
    return tuple(at for at in times if since < at <= now)


def _killed(
    service: ServiceConfig, seen: ServiceReading, known: ServiceMemory, config: ServicesConfig, now: datetime
) -> tuple[ServiceMemory, list[Probe]]:
    kills = seen.oom_kills
    if kills is None:
        return known, []
    # The count begins anew with the service; what it shows then is new as well.
    before = known.oom_kills
    new = before is not None and kills != before and kills > 0
    at = now if new else known.oom_at
    recent = at is not None and bool(_recent((at,), config, now))
    known = msgspec.structs.replace(known, oom_kills=kills, oom_at=at if recent else None)
    words = f"the kernel killed processes of {service.name} for want of memory"
    return known, [_probe(service, OUT_OF_MEMORY, not recent, words, Severity.WARNING)]


def _probe(
    service: ServiceConfig,
    code: str,
    healthy: bool | None,
    message: str = "",
    severity: Severity = Severity.WARNING,
    hint: Hint = Hint.INSPECT,
) -> Probe:
    return Probe(
        source=SOURCE,
        check=CHECK,
        code=code,
        entity=Entity(kind=EntityKind.SERVICE, name=service.name),
        healthy=healthy,
        severity=severity,
        scope=Scope.NODE,
        hint=hint,
        message="" if healthy else message,
    )
