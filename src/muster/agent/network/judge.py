"""From a look at the ports and the memory of earlier looks to probes. Pure.

A port is expected to be up when this boot saw it up, an earlier boot did, the configuration says so, or all its peers
are up. Only the first of these makes a port that is down fatal, and only in the compute fabric: a port that never was
up says more about cabling than about health.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import msgspec

from muster.agent.network.config import NetworkConfig
from muster.agent.network.counter_faults import counter_probes
from muster.agent.network.counters import Point, Track
from muster.agent.network.memory import MAX_PORTS, NetworkMemory, PortMemory, in_boot
from muster.agent.network.peers import fabric_kinds, peers_of, rate_of_peers
from muster.agent.network.ports import PortReading, PortState, Snapshot
from muster.agent.sources import Probe
from muster.moments import is_recent
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity

SOURCE = "network"
CHECK = "nic-port"
DOWN, NEVER_UP, SLOW = "port-down", "port-never-up", "port-rate-low"
FLAPPING, LOST, GONE = "port-link-flapping", "port-link-lost", "nic-gone"
MAX_FLAPS = 64


def judge(
    before: NetworkMemory,
    snapshot: Snapshot,
    config: NetworkConfig,
    boot_id: str,
    booted_at: datetime | None,
    gpus: int,
    now: datetime,
) -> tuple[NetworkMemory, tuple[Probe, ...]]:
    """The memory after this look, and a probe for each thing that can be told now, sorted.

    What is not confirmed yet is unknown: that neither opens nor closes a fault. Of a port of which nothing was ever
    told there is no probe until then.
    """
    memory = in_boot(before, boot_id)
    young = booted_at is not None and now < booted_at + timedelta(seconds=config.boot_grace_s)
    fabric = fabric_kinds(snapshot.ports, gpus)
    ports = dict(memory.ports)
    probes: list[Probe] = []
    for reading in snapshot.ports:
        known = ports.get(reading.key)
        if known is None or known.pci != reading.pci:
            known = PortMemory(device=reading.device, port=reading.port, pci=reading.pci)
        named = bool(config.fabric) and re.fullmatch(config.fabric, reading.device) is not None
        member = known.fabric or named or (not config.fabric and reading.kind in fabric)
        known = msgspec.structs.replace(known, fabric=member and not reading.management)
        if known.missing:
            known = msgspec.structs.replace(known, missing=False, back_at=now, down_looks=0)
        peers = peers_of(reading, snapshot.ports)
        resting = known.back_at is not None and is_recent(known.back_at, now, timedelta(seconds=config.boot_grace_s))
        known, state = _state(reading, known, peers, config, resting or (young and not known.up))
        known, rate = _rate(reading, known, peers, config)
        known, flaps = _flaps(reading, known, config, now)
        known, counters = counter_probes(reading, known, config, now, _entity(reading), _place(reading))
        ports[reading.key] = known
        probes += [*state, *rate, *flaps, *counters]
    probes += _presence(ports, snapshot, config)
    if not snapshot.unknown:
        seen = {reading.key for reading in snapshot.ports}
        ports |= {k: msgspec.structs.replace(p, missing=True) for k, p in ports.items() if k not in seen}
    kept = {key: ports[key] for key in sorted(ports)[:MAX_PORTS]}
    return NetworkMemory(boot_id=boot_id, ports=kept), tuple(sorted(probes, key=_order))


def _order(probe: Probe) -> tuple[str, str, str]:
    return (probe.check, probe.code, probe.entity.key())


def _entity(reading: PortReading) -> Entity:
    return Entity(kind=EntityKind.NIC, device=reading.device, port=reading.port, pci=reading.pci or None)


def _place(reading: PortReading) -> str:
    """The port in words: a person must find its card and rail."""
    where = [reading.pci] if reading.pci else []
    if reading.numa_node is not None and reading.numa_node >= 0:
        where.append(f"NUMA node {reading.numa_node}")
    name = reading.device if reading.port is None else f"{reading.device} port {reading.port}"
    return f"{name} ({', '.join(where)})" if where else name


def _probe(
    reading: PortReading,
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
        entity=_entity(reading),
        healthy=healthy,
        severity=severity,
        scope=Scope.LINK,
        hint=hint,
        message="" if healthy else f"{_place(reading)}: {message}",
    )


def _state(
    reading: PortReading,
    known: PortMemory,
    peers: tuple[PortReading, ...],
    config: NetworkConfig,
    young: bool,
) -> tuple[PortMemory, list[Probe]]:
    """`young`: the node, or the driver of the port, began not long ago, and links take minutes to train."""
    if reading.state is PortState.UP:
        known = msgspec.structs.replace(known, up=True, told=False, down_looks=0, back_at=None)
        return known, [_probe(reading, DOWN, True), _probe(reading, NEVER_UP, True)]
    looks = min(known.down_looks + 1, config.confirm_looks)
    known = msgspec.structs.replace(known, down_looks=looks)
    if looks < config.confirm_looks or young:
        if not (known.up or known.up_before or known.told):
            return known, []
        words = f"the port is down ({reading.told}), and that is not confirmed yet"
        return known, [_probe(reading, code, None, words) for code in (DOWN, NEVER_UP)]
    why, severity = _expectation(reading, known, peers, config)
    if why:
        known = msgspec.structs.replace(known, told=True)
        down = _probe(reading, DOWN, False, f"the port is down ({reading.told}); {why}", severity)
        return known, [down, _probe(reading, NEVER_UP, True)]
    up = [peer for peer in peers if peer.state is PortState.UP]
    if not up:
        # Nobody of its kind is up: not in use, or not set up yet.
        known = msgspec.structs.replace(known, told=False)
        return known, [_probe(reading, DOWN, True), _probe(reading, NEVER_UP, True)]
    known = msgspec.structs.replace(known, told=True)
    message = f"the port was never up in this boot; {len(up)} of its {len(peers)} peers are"
    never = _probe(reading, NEVER_UP, False, message, Severity.INFO, Hint.NONE)
    return known, [_probe(reading, DOWN, True), never]


def _expectation(
    reading: PortReading, known: PortMemory, peers: tuple[PortReading, ...], config: NetworkConfig
) -> tuple[str, Severity]:
    """Why a port that is down should be up, and how bad it is; no reason when nobody expects it."""
    if known.up:
        disabled = reading.state is PortState.DISABLED
        fatal = known.fabric and not disabled
        return "it was up in this boot", Severity.FATAL if fatal else Severity.WARNING
    if known.up_before:
        return "it was up before the node booted", Severity.WARNING
    if config.expect_up and re.fullmatch(config.expect_up, reading.device):
        return "the configuration expects it up", Severity.WARNING
    if len(peers) >= 2 and all(peer.state is PortState.UP for peer in peers):
        return f"all its {len(peers)} peers are up", Severity.WARNING
    return "", Severity.INFO


def _rate(
    reading: PortReading, known: PortMemory, peers: tuple[PortReading, ...], config: NetworkConfig
) -> tuple[PortMemory, list[Probe]]:
    rate = reading.rate_gbps
    if reading.state is not PortState.UP or rate is None:
        return msgspec.structs.replace(known, slow_looks=0), []
    best = max(known.best_rate_gbps, rate)
    of_peers = rate_of_peers(peers)
    configured = config.expected_rate_gbps if known.fabric else None
    wanted = configured if configured is not None else max(best, of_peers or 0.0)
    if rate >= wanted:
        return msgspec.structs.replace(known, best_rate_gbps=best, slow_looks=0), [_probe(reading, SLOW, True)]
    looks = min(known.slow_looks + 1, config.confirm_looks)
    known = msgspec.structs.replace(known, best_rate_gbps=best, slow_looks=looks)
    if configured is not None:
        basis = "as configured"
    else:
        basis = "that of its peers" if of_peers == wanted else "its own before"
    confirmed = looks >= config.confirm_looks
    words = f"the link runs at {rate:g} Gb/s instead of {wanted:g}, {basis}"
    return known, [_probe(reading, SLOW, False if confirmed else None, words)]


def _flaps(
    reading: PortReading, known: PortMemory, config: NetworkConfig, now: datetime
) -> tuple[PortMemory, list[Probe]]:
    if reading.losses is None:
        return known, []
    at_s = now.timestamp()
    since = at_s - config.flap_window_s
    flaps: Track = tuple(flap for flap in known.flaps if since < flap.at_s <= at_s)
    lost = reading.losses - known.losses if known.losses is not None else 0
    if lost > 0:
        flaps = (*flaps, Point(at_s, lost))[-MAX_FLAPS:]
    total = sum(flap.value for flap in flaps)
    was_on = FLAPPING in known.alarms
    on = total >= config.flaps or (was_on and total > config.flaps // 2)
    alarms = {code: calm for code, calm in known.alarms.items() if code != FLAPPING} | ({FLAPPING: 0} if on else {})
    first = known.losses is None
    earlier = known.up_before
    known = msgspec.structs.replace(known, losses=reading.losses, flaps=flaps, alarms=alarms)
    if first:
        words = "losses of the link are counted from now on"
        return known, [_probe(reading, code, None, words) for code in (FLAPPING, LOST)] if earlier else []
    message = f"the link was lost {total} times within {config.flap_window_s:g} s"
    once = f"the link was lost within the last {config.flap_window_s:g} s"
    return known, [
        _probe(reading, FLAPPING, not on, message),
        _probe(reading, LOST, on or total == 0, once, Severity.INFO, Hint.NONE),
    ]


def _presence(ports: dict[str, PortMemory], snapshot: Snapshot, config: NetworkConfig) -> list[Probe]:
    """Adapters that are gone from the bus. One that is still there may have moved into a pod: nothing is said.

    Notes in `ports` for how long: an adapter whose firmware is reset leaves the bus for some seconds.
    """
    if snapshot.pci_addresses is None:
        return []
    seen = {reading.pci: reading for reading in snapshot.ports if reading.pci}
    probes = [_gone(pci, seen[pci].device, True, False) for pci in sorted(seen)]
    missing: dict[str, PortMemory] = {}
    for key, port in sorted(ports.items()):
        off = bool(port.pci) and port.pci not in seen and port.pci not in snapshot.pci_addresses
        looks = min(port.gone_looks + 1, config.confirm_looks) if off else 0
        if looks != port.gone_looks:
            ports[key] = msgspec.structs.replace(port, gone_looks=looks)
        if off and (port.up or port.up_before):
            missing[port.pci] = ports[key]
    for pci, port in sorted(missing.items()):
        sure = port.gone_looks >= config.confirm_looks
        probes.append(_gone(pci, port.device, False if sure else None, port.fabric and port.up))
    return probes


def _gone(pci: str, device: str, healthy: bool | None, fatal: bool) -> Probe:
    return Probe(
        source=SOURCE,
        check=CHECK,
        code=GONE,
        entity=Entity(kind=EntityKind.NIC, device=device, pci=pci),
        healthy=healthy,
        severity=Severity.FATAL if fatal else Severity.WARNING,
        scope=Scope.NODE,
        hint=Hint.REBOOT if fatal else Hint.INSPECT,
        message="" if healthy else f"{device} ({pci}) was there and is gone from the PCI bus",
    )
