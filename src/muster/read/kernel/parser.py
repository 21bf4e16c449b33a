"""From lines to findings: framing, detectors, records over several lines, and what a PCI address is called.

`KernelLogParser` is incremental: the agent feeds it lines of /dev/kmsg as they come, `muster read` the candidates of
a file. It keeps little, bounded state: an unfinished record, PCI -> UUID, the driver's version, recent messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import msgspec

from muster.read import pci
from muster.read.kernel import driver, fabric, host, nic, pcie, xid
from muster.read.kernel.finding import Detection, Finding, condition
from muster.read.kernel.framing import Frame, frame, plain
from muster.read.kernel.prefilter import interesting
from muster.read.moment import Basis
from muster.read.source import MAX_LINE_BYTES, printable
from muster.resources.fault import EntityKind

EVIDENCE_CHARACTERS = 400
MAX_MESSAGE_CHARACTERS = 4096
_MAX_GPUS = 1024
_MAX_MEMORY = 2048
_MAX_RECORD_GAP = 8
"""Lines that may stand between the parts of one record."""

_STARTING = re.compile(r"Linux version \d")
_OFF_BUS_HEAD = re.compile(rf"NVRM: The NVIDIA GPU (?P<pci>{pci.PATTERN})(?P<rest>.*)")
_PCI_ID = re.compile(r"\(PCI ID: (?P<id>[0-9a-f]{4}:[0-9a-f]{4})\)", re.IGNORECASE)
_INSTALLED = re.compile(r"(?:NVRM: )?(?:\(PCI ID: \S+\) )?installed in this system has\b")
_OFF_BUS_TAIL = re.compile(r"fallen off the bus and is not responding")
_INIT_FAILED = re.compile(
    rf"NVRM: (?:GPU (?:at )?(?:PCI:)?(?P<pci>{pci.PATTERN}): )?RmInitAdapter failed!(?: \((?P<status>[^)]*)\))?"
)
_INIT_DEVICE = re.compile(
    rf"NVRM: (?:GPU (?:at )?(?:PCI:)?(?P<pci>{pci.PATTERN}): )?rm_init_adapter failed"
    r"(?: for device bearing minor number|, device minor number)? ?(?:(?P<minor>\d{1,6})(?!\d))?"
)
_GPU_KINDS = (EntityKind.GPU, EntityKind.NVLINK)


class _Record:
    """Parts of one record over several lines, while they arrive."""

    __slots__ = ("detection", "first", "last", "lines", "number")

    def __init__(self, detection: Detection, origin: Frame, number: int, line: str) -> None:
        self.detection = detection
        self.first = self.last = origin
        self.lines = [(number, line)]
        self.number = number

    def add(self, origin: Frame, number: int, line: str) -> None:
        self.last = origin if origin.moment is not None else self.last
        if len(self.lines) < 8 and self.lines[-1][0] != number:
            self.lines.append((number, line))
        self.number = number


class KernelLogParser:
    """Reads kernel and service log lines in any of the known framings, one after the other."""

    def __init__(self, era: int = 0) -> None:
        self.era = era
        """Number of the boot that is read; a kernel that starts anew begins the next one."""
        self.uuids: dict[str, str] = {}
        """PCI address -> GPU UUID, as announced by the driver."""
        self.driver_version: str | None = None
        self._off_bus: _Record | None = None
        self._init: _Record | None = None
        self._memory: dict[tuple[str, str | None, bool], Detection | None] = {}
        self._previous: tuple[Frame, bool] | None = None
        self._skipped = b""
        self._number = 0

    def feed(self, lines: list[bytes]) -> list[Finding]:
        """Findings of the next lines. A record of /dev/kmsg may be one item with its dictionary behind line feeds."""
        found: list[Finding] = []
        for item in lines:
            for line in item.split(b"\n"):
                self._number += 1
                if interesting(line) or line.split(b";", 1)[0].endswith((b",c", b",+")):
                    found += self.line(self._number, line)
                elif line[:1].isdigit():
                    self._skipped, self._previous = line[:MAX_LINE_BYTES], None
        return found

    def line(self, number: int, line: bytes, cut: bool = False) -> list[Finding]:
        """Findings of line `number`. `cut`: the line may end in the middle of a word."""
        text = plain(line[:MAX_LINE_BYTES].replace(b"\0", b"").decode("utf-8", "replace").rstrip("\r\n"))
        origin = frame(text)
        if origin.moment is not None and origin.moment.basis is Basis.BOOT:
            if _STARTING.match(origin.message):
                self.era += 1
            if self.era:
                origin = replace(origin, moment=replace(origin.moment, era=self.era))
        shown = printable(text.strip(), EVIDENCE_CHARACTERS)
        if origin.continues:
            if self._previous is None and self._skipped:
                self._previous = (frame(self._skipped.decode("utf-8", "replace")), False)
            if self._previous is not None:
                return self._continued(origin, number, shown, cut)
        found = self._messages(origin, number, shown, cut)
        self._previous = (origin, bool(found)) if origin.seq is not None else None
        return found

    def flush(self) -> list[Finding]:
        """Findings of records whose last part has not come; call at the end of the input or when the log is idle."""
        found = self._finish_init()
        off_bus, self._off_bus = self._off_bus, None
        if off_bus is not None and off_bus.detection.details.get("installed"):
            # The only message with these words ends in "fallen off the bus".
            detection = self._without(off_bus.detection, "installed").changed(confidence="low")
            found.append(self._finding(off_bus, detection))
        return found

    def _continued(self, origin: Frame, number: int, shown: str, cut: bool) -> list[Finding]:
        """A fragment: read together with the record before it, which counts once."""
        assert self._previous is not None  # noqa: S101 - checked by the caller
        before, had = self._previous
        joined = Frame(before.message + origin.message, before.moment, True, before.tag, before.host, seq=origin.seq)
        found = self._messages(joined, number, shown, cut)
        self._previous = (joined, had or bool(found))
        if not had:
            return found
        return [
            Finding(f.detection.changed(companion=True), f.first, f.last, f.lines, f.host, f.boot_id, f.cut)
            for f in found
        ]

    def _messages(self, origin: Frame, number: int, shown: str, cut: bool) -> list[Finding]:
        found: list[Finding] = []
        for message in origin.message.split("\n") if "\n" in origin.message else (origin.message,):
            # Patterns stay fast on hostile lines only if what they see is bounded.
            short = message[:MAX_MESSAGE_CHARACTERS].strip()
            found += self._message(origin, short, number, shown, cut or len(message) > MAX_MESSAGE_CHARACTERS)
        return found

    def _message(self, origin: Frame, message: str, number: int, shown: str, cut: bool) -> list[Finding]:
        if message.startswith("NVRM: ") and origin.kernel:
            parts = self._parts(origin, message, number, shown)
            if parts is not None:
                return parts
        key = (message, origin.level if origin.tag != "kernel" else None, origin.kernel)
        if cut:
            detection = self._detect(origin, message, cut)
        elif key in self._memory:
            detection = self._memory[key]
        else:
            detection = self._detect(origin, message, cut)
            detection = self._named(detection) if detection is not None else None
            if len(self._memory) >= _MAX_MEMORY:
                self._memory.clear()
            self._memory[key] = detection
        if detection is None:
            return []
        self._learn(detection)
        record = _Record(detection, origin, number, shown)
        return [self._finding(record, detection, cut)]

    def _detect(self, origin: Frame, message: str, cut: bool) -> Detection | None:
        if message.startswith("NVRM: ") and origin.kernel:
            branch = int(self.driver_version.split(".")[0]) if self.driver_version else None
            return xid.detect(message, cut, branch) or driver.detect(message, cut)
        if origin.tag is not None and "fabricmanager" in origin.tag.replace("-", "").replace("_", "").lower():
            return fabric.detect_fabric_manager(message, origin.level, cut)
        if not origin.kernel:
            return driver.detect_reset_marker(message)
        for needle, detect in _DETECTORS:
            if needle in message:
                found = detect(message, cut)
                if found is not None:
                    return found
        return None

    def _parts(self, origin: Frame, message: str, number: int, shown: str) -> list[Finding] | None:
        """Records over several lines; None when this line is no part of one."""
        if self._off_bus is not None and number - self._off_bus.number > _MAX_RECORD_GAP:
            self._off_bus = None
        if match := _OFF_BUS_HEAD.match(message):
            self._off_bus = _Record(driver.off_bus(match["pci"]), origin, number, shown)
            return self._off_bus_part(match["rest"])
        tail = _OFF_BUS_TAIL.search(message)
        if tail or (self._off_bus is not None and (_PCI_ID.search(message) or _INSTALLED.match(message))):
            if self._off_bus is None:
                self._off_bus = _Record(driver.off_bus(None), origin, number, shown)
            self._off_bus.add(origin, number, shown)
            return self._off_bus_part(message)
        if match := _INIT_FAILED.match(message):
            done = self._finish_init()
            entity = driver.gpu(match["pci"])
            detection = condition("gpu-init-failed", entity, {"status": match["status"]}, {"minor": None})
            self._init = _Record(detection, origin, number, shown)
            return done
        if match := _INIT_DEVICE.match(message):
            return self._init_device(match, origin, number, shown)
        return None

    def _off_bus_part(self, text: str) -> list[Finding]:
        record = self._off_bus
        assert record is not None  # noqa: S101 - set by the caller
        if match := _PCI_ID.search(text):
            record.detection = record.detection.changed(about={"pci_id": match["id"].lower()})
        if "installed in this system has" in text:
            record.detection = record.detection.changed(details={**record.detection.details, "installed": True})
        if not _OFF_BUS_TAIL.search(text):
            return []
        self._off_bus = None
        return [self._finding(record, self._without(record.detection, "installed"))]

    def _init_device(self, match: re.Match[str], origin: Frame, number: int, shown: str) -> list[Finding]:
        record = self._init
        address = pci.normalise(match["pci"]) if match["pci"] else None
        if record is None or (address and record.detection.entity.pci not in (None, address)):
            done = self._finish_init()
            record = _Record(condition("gpu-init-failed", driver.gpu(match["pci"])), origin, number, shown)
        else:
            done = []
            record.add(origin, number, shown)
        self._init = None
        minor = int(match["minor"]) if match["minor"] else None
        entity = record.detection.entity if record.detection.entity.pci else driver.gpu(match["pci"])
        detection = record.detection.changed(entity=entity, about={"minor": minor})
        return [*done, self._finding(record, detection)]

    def _finish_init(self) -> list[Finding]:
        record, self._init = self._init, None
        return [] if record is None else [self._finding(record, record.detection)]

    @staticmethod
    def _without(detection: Detection, name: str) -> Detection:
        return detection.changed(details={key: value for key, value in detection.details.items() if key != name})

    def _learn(self, detection: Detection) -> None:
        entity = detection.entity
        if detection.check == "gpu-identity" and entity.pci and entity.uuid and len(self.uuids) < _MAX_GPUS:
            if self.uuids.get(entity.pci) != entity.uuid:
                self.uuids[entity.pci] = entity.uuid
                self._memory.clear()
        elif detection.check == "driver-version":
            self.driver_version = str(detection.details["driver_version"])
            self._memory.clear()

    def _named(self, detection: Detection) -> Detection:
        """The detection with the UUID of its GPU, where the driver has announced it."""
        entity = detection.entity
        if entity.kind not in _GPU_KINDS or entity.uuid is not None or entity.pci not in self.uuids:
            return detection
        return detection.changed(entity=msgspec.structs.replace(entity, uuid=self.uuids[entity.pci]))

    def _finding(self, record: _Record, detection: Detection, cut: bool = False) -> Finding:
        return Finding(
            detection=self._named(detection),
            first=record.first.moment,
            last=record.last.moment,
            lines=tuple(record.lines),
            host=record.first.host,
            boot_id=record.first.boot_id,
            cut=cut,
        )


def _any(detect: Callable[[str], Detection | None]) -> Callable[[str, bool], Detection | None]:
    return lambda message, cut: detect(message)  # noqa: ARG005 - complete patterns need no care for a cut


_DETECTORS: tuple[tuple[str, Callable[[str, bool], Detection | None]], ...] = (
    ("SXid (", fabric.detect_sxid),
    ("available PCIe bandwidth", pcie.detect),
    ("AER:", _any(host.detect_pcie)),
    ("PCIe Bus Error", _any(host.detect_pcie)),
    ("WATCHDOG", _any(nic.detect_watchdog)),
    ("mlx5_core", nic.detect_mlx5),
    ("peermem", _any(driver.detect_peermem)),
    ("GPU reset executed", _any(driver.detect_reset_marker)),
    ("NVSwitch", lambda message, cut: fabric.detect_fabric_manager(message, None, cut)),
    ("multicast team", lambda message, cut: fabric.detect_fabric_manager(message, None, cut)),
    ("]: segfault at ", _any(host.detect_segfault)),
    ("EXT4-fs", _any(host.detect_filesystem)),
    ("XFS (", _any(host.detect_filesystem)),
    ("error, dev ", _any(host.detect_disk)),
    ("nvme nvme", _any(host.detect_disk)),
    ("EDAC MC", _any(host.detect_memory)),
    ("mce: ", _any(host.detect_memory)),
    ("[Hardware Error]", _any(host.detect_memory)),
    ("", _any(host.detect_kernel)),
)
"""Which detector reads a message with this text in it, first match first; the last is asked for every line left."""
