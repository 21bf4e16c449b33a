"""Findings as sightings for the assembly of open faults."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from muster.faults.assembly import Sighting
from muster.read.kernel.finding import Detection, Finding
from muster.read.kernel.framing import frame
from muster.resources.fault import Entity, EntityKind, Scope, Severity

SOURCE = "kernel-log"
MESSAGE_CHARACTERS = 300
_DETAILS = (
    "gpc",
    "tpc",
    "sm",
    "unit",
    "decode_class",
    "engine",
    "fault_type",
    "recovery_action",
    "partition",
    "subpartition",
)
"""Details of a detection that patterns over history may ask for."""
_PROCESS_DETAILS = ("pid", "process")
_PROCESS_XIDS = (31,)
"""Codes where it matters whose fault it was: the same GPU under different programs, or one program on many GPUs."""
_MAX_REGISTERS = 7


def to_sightings(
    findings: Iterable[Finding], *, now: datetime, booted_at: datetime | None = None, boot_id: str = ""
) -> list[Sighting]:
    """Sightings of the findings that are faults; identities, versions and successful resets are none.

    Times are those of the lines where they tell one (`booted_at` gives a meaning to seconds since boot), else `now`.
    A record that names a fault in other words (the GPU is off the bus, GSP messages are rate-limited, the Fabric
    Manager's line of a switch error) becomes a sighting of that fault, so that one event opens one fault.
    """
    sightings = []
    for finding in findings:
        detection = finding.detection
        if detection.severity is None:
            continue
        check, code = _canonical(detection)
        moment = finding.last or finding.first
        at = moment.as_utc(booted_at) if moment is not None else None
        sightings.append(
            Sighting(
                source=SOURCE,
                check=check,
                code=code,
                entity=_entity(detection),
                severity=detection.severity,
                scope=detection.scope or Scope.NODE,
                hint=detection.hint,
                message=_message(finding),
                at=min(at, now) if at is not None else now,
                count=0 if detection.companion else detection.count,
                boot_id=finding.boot_id or boot_id,
                details=_details(detection),
                clears=tuple(f"{check}/{code}" for check, code in detection.clears),
            )
        )
    return sightings


def _details(detection: Detection) -> dict[str, str]:
    """What the record tells beside the entity, as text: the place of an exception, registers, link, process."""
    told = detection.details
    names = (*_DETAILS, *_PROCESS_DETAILS) if detection.code in _PROCESS_XIDS else _DETAILS
    found = {name: str(told[name]) for name in names if told.get(name) is not None}
    registers = told.get("registers")
    if isinstance(registers, list):
        found |= {f"reg{n}": str(value) for n, value in enumerate(registers[:_MAX_REGISTERS])}
    if detection.entity.link is not None:
        found["link"] = str(detection.entity.link)
    return found


def _canonical(detection: Detection) -> tuple[str, str]:
    if detection.code == "gpu-off-bus":
        return "xid", "79"
    if detection.check == "xid-companion":
        return "xid", str(detection.code)
    if detection.check == "gpu-reset-marker":
        return detection.check, "gpu-reset-failed"
    return detection.check, str(detection.code)


def _entity(detection: Detection) -> Entity:
    """The entity with what identifies it in one of `Entity`'s own fields; process numbers never do."""
    entity, about = detection.entity, detection.about
    if entity.kind is EntityKind.NVSWITCH and entity.link is not None:
        return Entity(kind=EntityKind.NVSWITCH_PORT, pci=entity.pci, port=entity.link)
    if entity.kind is EntityKind.GPU and entity.pci is None and about.get("minor") is not None:
        return Entity(kind=EntityKind.GPU, name=f"minor-{about['minor']}", uuid=entity.uuid)
    if entity.kind is EntityKind.NIC and about.get("interface"):
        return Entity(kind=entity.kind, pci=entity.pci, device=str(about["interface"]), port=entity.port)
    if entity.kind is EntityKind.NIC and about.get("module") is not None:
        return Entity(kind=entity.kind, pci=entity.pci, device=entity.device, port=entity.port)
    if entity.kind is EntityKind.GPU and entity.link is not None:
        return Entity(kind=entity.kind, pci=entity.pci, uuid=entity.uuid)
    return entity


def _message(finding: Finding) -> str:
    line = frame(finding.lines[0][1]).message if finding.lines else ""
    severity = finding.detection.severity
    text = f"{finding.detection.name}: {line}" if line and severity is not Severity.INFO else finding.detection.name
    return text[:MESSAGE_CHARACTERS]
