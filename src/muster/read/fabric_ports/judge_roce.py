"""RDMA over Ethernet: is the traffic in the lossless class, are packets lost, does somebody pause for too long."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from muster.read.fabric_ports import thresholds
from muster.read.fabric_ports.expectation import Expected
from muster.read.fabric_ports.finding import Finding
from muster.read.fabric_ports.judge_counters import LOSS
from muster.read.fabric_ports.port import Port
from muster.read.fabric_ports.roce import RoceSettings
from muster.read.report import Result, Value, Verdict
from muster.resources.fault import Scope, Severity

_PRIORITY = re.compile(r"(rx|tx)_prio(\d)_(bytes|packets|pause|discards|buf_discard|pause_duration)")
USED_SHARE = 0.001
"""A priority with less than this share of the bytes carries control traffic only. Ours."""
_CLASSES = (
    "Compare the traffic class of the job (NCCL_IB_TC), cma_roce_tos and the trust mode of the port"
    " with the priority "
    "that switch and host keep lossless (PFC)."
)


def bytes_by_priority(port: Port) -> dict[int, dict[str, int]]:
    """Bytes received and sent in each priority that the text shows."""
    found: dict[int, dict[str, int]] = {}
    for name, counter in port.last.items():
        match = _PRIORITY.fullmatch(name)
        if match and match[3] == "bytes":
            found.setdefault(int(match[2]), {})[match[1]] = counter.value
    return dict(sorted(found.items()))


def in_use(traffic: dict[int, dict[str, int]]) -> list[int]:
    """Priorities with any bytes, lowest first."""
    return [priority for priority, counts in traffic.items() if sum(counts.values())]


def _busy(traffic: dict[int, dict[str, int]]) -> list[int]:
    total = sum(sum(counts.values()) for counts in traffic.values())
    return [n for n, counts in traffic.items() if total and sum(counts.values()) >= USED_SHARE * total]


def values(ports: Sequence[Port], settings: RoceSettings) -> dict[str, Value]:
    """Traffic by priority of the first port that tells it, and the settings."""
    found: dict[str, Value] = {}
    for port in ports:
        traffic = bytes_by_priority(port)
        if traffic and "bytes_by_priority" not in found:
            found["bytes_by_priority"] = Value(traffic, "B")
            found["priorities_in_use"] = Value(in_use(traffic))
    for name, value in (
        ("priority_trust", settings.trust),
        ("roce_tos", settings.tos),
        ("roce_version", settings.mode),
    ):
        if value is not None:
            found[name] = Value(value)
    if settings.pfc_priorities is not None:
        found["pfc_priorities"] = Value(list(settings.pfc_priorities))
    if (priority := settings.priority_of_tos()) is not None:
        found["priority_of_tos"] = Value(priority)
    if settings.gids:
        found["gids"] = Value(len(settings.gids))
        found["gid_index_roce_v2"] = Value(_best_index(settings))
    return found


def judge(
    ports: Sequence[Port], settings: RoceSettings, want: Expected, cut: bool
) -> tuple[list[Finding], list[Verdict]]:
    """Findings and verdicts of all that concerns RDMA over Ethernet. `cut`: what is missing may follow."""
    findings = [*_classes(ports, settings, want), *_settings(settings), *([] if cut else _gids(settings, want))]
    verdicts: list[Verdict] = []
    for port in ports:
        findings += [*_pauses(port), *_discards(port), *_reporters(port)]
    if settings.told and not cut and not any(finding.scope is Scope.CONFIG for finding in findings):
        verdicts.append(Verdict("roce-settings", Result.PASS, "consistent"))
    return findings, verdicts


def _loss(port: Port) -> dict[str, int]:
    return {name: port.last[name].value for name in LOSS if name in port.last and port.last[name].value}


def _classes(ports: Sequence[Port], settings: RoceSettings, want: Expected) -> list[Finding]:
    """Traffic outside the lossless priority. Without the PFC setting only loss beside it makes it worth a word."""
    lossless = settings.pfc_priorities
    if lossless is None and want.lossless_priority is not None:
        lossless = (want.lossless_priority,)
    found: list[Finding] = []
    lossy = [port for port in ports if _loss(port)]
    for port in ports:
        traffic = bytes_by_priority(port)
        busy = _busy(traffic)
        if not busy:
            continue
        outside = bool(lossless) and set(lossless or ()) <= set(traffic) and not set(busy) & set(lossless or ())
        default = lossless is None and busy == [0] and (len(traffic) > 1 or bool(lossy))
        if (default or outside) and lossy:
            found += [_default_class(port, other, busy, lossless) for other in lossy]
        elif outside:
            found.append(
                Finding(
                    port.id.label,
                    Result.WARN,
                    "traffic-outside-lossless-class",
                    f"The traffic runs in priority {_listed(busy)}, flow control protects {_listed(lossless or ())}.",
                    port.id.entity(),
                    _CLASSES,
                    code="roce-priority-mismatch",
                    scope=Scope.CONFIG,
                    confidence="low",
                    at=tuple(port.where(name) for name in port.last if name.endswith(f"prio{busy[0]}_bytes")),
                    details={"priorities_in_use": busy, "pfc_priorities": list(lossless or ())},
                )
            )
    return found


def _default_class(port: Port, lossy: Port, busy: list[int], lossless: tuple[int, ...] | None) -> Finding:
    loss = _loss(lossy)
    acks = loss.get("local_ack_timeout_err", 0)
    main = "local_ack_timeout_err" if acks else next(iter(loss))
    words = f"{loss[main]} acknowledgement timeouts" if acks else f"{main} stands at {loss[main]}"
    return Finding(
        lossy.id.label,
        Result.WARN,
        "ack-timeouts-in-default-class" if acks else "loss-in-default-class",
        f"All traffic runs in priority {_listed(busy)}, and packets were lost: {words}.",
        lossy.id.entity(),
        _CLASSES,
        code="roce-default-priority-with-loss",
        scope=Scope.CONFIG,
        confidence="low" if lossless is None else None,
        count=loss[main],
        at=(lossy.where(main), *(port.where(name) for name in port.last if name.endswith(f"prio{busy[0]}_bytes"))),
        details={"priorities_in_use": busy, "loss": loss, "interface": port.id.interface},
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _settings(settings: RoceSettings) -> list[Finding]:
    priority = settings.priority_of_tos()
    if priority is None or not settings.pfc_priorities or priority in settings.pfc_priorities:
        if settings.tos and settings.trust == "pcp":
            return [
                _setting(
                    settings, "trust-ignores-tos", f"Type of service {settings.tos} has no effect: trust is pcp."
                )
            ]
        return []
    return [
        _setting(
            settings,
            "tos-outside-lossless-class",
            f"Type of service {settings.tos} leads to priority {priority}; PFC is on for "
            f"{_listed(settings.pfc_priorities)}.",
        )
    ]


def _setting(settings: RoceSettings, reason: str, message: str) -> Finding:
    return Finding(
        "roce-settings",
        Result.WARN,
        reason,
        message,
        {"kind": "node"},
        _CLASSES,
        code="roce-priority-mismatch",
        scope=Scope.CONFIG,
        at=((settings.file, settings.line, ""),),
    )


def _best_index(settings: RoceSettings) -> dict[str, int | None]:
    """For each device the GID index of RoCE v2 that leads beyond its own segment; IPv4 before IPv6."""
    best: dict[str, int | None] = {}
    for device in dict.fromkeys(gid.device for gid in settings.gids):
        usable = [gid for gid in settings.gids if gid.device == device and gid.routable]
        usable.sort(key=lambda gid: (not gid.address.startswith("0000:0000:0000:0000:0000:ffff"), gid.index))
        best[device] = usable[0].index if usable else None
    return best


def _gids(settings: RoceSettings, want: Expected) -> list[Finding]:
    roce = [gid for gid in settings.gids if gid.version is not None]
    best = {device: index for device, index in _best_index(settings).items() if any(g.device == device for g in roce)}
    found: list[Finding] = []
    for device, index in best.items():
        if index is None:
            found.append(
                _gid(
                    device,
                    "no-routable-gid",
                    f"{device} has no RoCE v2 address beyond its own segment.",
                    "Give the interface of the adapter an IP address.",
                )
            )
        elif want.gid_index is not None:
            chosen = next((gid for gid in roce if gid.device == device and gid.index == want.gid_index), None)
            if chosen is None or not chosen.routable:
                what = "does not exist" if chosen is None else f"is RoCE v{chosen.version} {chosen.address}"
                found.append(
                    _gid(
                        device,
                        "gid-index-wrong",
                        f"GID index {want.gid_index} of {device} {what}.",
                        f"Use index {index} (NCCL_IB_GID_INDEX), or let the library choose.",
                    )
                )
    known = Counter(index for index in best.values() if index is not None)
    if len(known) > 1 and not found:
        usual = max(known.items(), key=lambda pair: (pair[1], -pair[0]))[0]
        odd = [device for device, index in best.items() if index not in (None, usual)]
        message = f"{', '.join(odd)} need another GID index than {usual}, which the others use."
        found.append(_gid(odd[0], "gid-index-differs", message, "Do not set one fixed NCCL_IB_GID_INDEX for all."))
    return found


def _gid(device: str, reason: str, message: str, advice: str) -> Finding:
    entity = {"kind": "nic", "device": device, "name": device}
    return Finding(f"{device} gid", Result.WARN, reason, message, entity, advice, code="roce-gid", scope=Scope.CONFIG)


def _pauses(port: Port) -> list[Finding]:
    """Pause frames beyond what flow control needs. Received: the network is full. Sent: this host is slow."""
    found: list[Finding] = []
    for name, counter in port.last.items():
        match = _PRIORITY.fullmatch(name)
        if match is None or match[3] != "pause" or not counter.value:
            continue
        side = match[1]
        other = "tx" if side == "rx" else "rx"
        packets = port.last.get(f"{other}_prio{match[2]}_packets")
        pauses, moved = counter.value, packets.value if packets is not None else None
        if port.repeated and packets is not None:
            pauses = port.increase(name) or 0
            moved = port.increase(f"{other}_prio{match[2]}_packets")
        if moved is None or pauses < 1000 or pauses < thresholds.PAUSE_SHARE * max(moved, 1):
            continue
        who = "the network held this port up" if side == "rx" else "this host held the network up"
        found.append(
            Finding(
                port.id.label,
                Result.WARN,
                f"pause-{side}-high",
                f"{pauses} pause frames for {moved} packets in priority {match[2]}: {who}.",
                port.id.entity(),
                "Look for the slow receiver: congestion further on."
                if side == "rx"
                else "Look at this host: PCIe width, memory, ACS and IOMMU slow its adapter down.",
                code="roce-pause-high",
                scope=Scope.FABRIC if side == "rx" else Scope.NODE,
                count=pauses,
                confidence=None if port.repeated else "low",
                at=(port.where(name),),
                more={"priority": int(match[2])},
                details={"pause_frames": pauses, "packets": moved},
            )
        )
    return found


def _discards(port: Port) -> list[Finding]:
    if port.repeated:
        return []  # judged by their rate
    packets = port.last.get("rx_packets_phy") or port.last.get("rx_packets")
    found: list[Finding] = []
    for name in ("rx_discards_phy", "rx_out_of_buffer", "rx_dropped", "rx_missed"):
        counter = port.last.get(name)
        share = thresholds.KERNEL_DROP_SHARE if name == "rx_dropped" else thresholds.DISCARD_SHARE
        if counter is None or packets is None or counter.value <= share * max(packets.value, 1):
            continue
        found.append(
            Finding(
                port.id.label,
                Result.WARN,
                "discards",
                f"{name}: {counter.value} of {packets.value} packets.",
                port.id.entity(),
                "Look at flow control and at the receive buffers of the port.",
                code="port-discards",
                scope=Scope.CONFIG,
                count=counter.value,
                confidence="low",
                at=(port.where(name),),
                more={"value": counter.value},
                details={"packets": packets.value},
            )
        )
        break
    return found


def _reporters(port: Port) -> list[Finding]:
    reporters: dict[str, dict[str, Any]] = port.fact("reporters") or {}
    found: list[Finding] = []
    for name, entry in reporters.items():
        bad = entry["state"] != "healthy"
        if not bad and not entry["errors"]:
            continue
        file = port.readings[-1].file
        text = port.readings[-1].text.get(entry["line"], "")
        found.append(
            Finding(
                f"{port.id.label} {name}",
                Result.FAIL if bad else Result.WARN,
                "reporter-error" if bad else "errors-recovered",
                f"Reporter {name} is in state {entry['state']} after {entry['errors']} errors,"
                f" {entry['recovered']} recovered.",
                {"kind": "nic", "pci": port.id.pci, "name": port.id.label},
                "Take the node out of service and look at the adapter's firmware (devlink health dump)."
                if bad
                else "Look at the kernel log for when it happened.",
                code=f"nic-{name.replace('_', '-')}",
                kind="nic",
                scope=Scope.NODE,
                count=max(entry["errors"], 1),
                severity=Severity.FATAL if bad else Severity.WARNING,
                at=((file, entry["line"], text),),
                confidence=None if bad else "low",
            )
        )
    return found
