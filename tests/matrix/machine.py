"""The machine of the matrix: its hardware, what truly is broken, and its agent with the real assembly of faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from muster.faults import assembly
from muster.faults.assembly import Assembly, Sighting
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fingerprint import Fingerprint, Reading, ReadingClass, fingerprint

HEALS_AFTER_S = 90.0
"""When a finding that ends by itself ends."""


@dataclass
class Hardware:
    """The truth about one node. `broken` has the indices of GPUs that do not work."""

    gpus: list[tuple[str, str]] = field(
        default_factory=lambda: [("GPU-0000", "0000:1b:00.0"), ("GPU-0001", "0000:43:00.0")]
    )
    boot: int = 1
    broken: set[int] = field(default_factory=set)
    changes: str = "same"
    """What the next boot does to GPU 0: `uuid` (another one is there), `pci` (it has another address)."""
    boots: list[datetime] = field(default_factory=list)

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    def reboot(self, now: datetime, *, cures: bool) -> None:
        self.boot += 1
        self.boots.append(now)
        if cures:
            self.broken.clear()
        uuid, pci = self.gpus[0]
        if self.changes == "uuid":
            self.gpus[0] = ("GPU-9999", pci)
        elif self.changes == "pci":
            self.gpus[0] = (uuid, "0000:9b:00.0")

    def fingerprint(self) -> Fingerprint:
        readings = [Reading(name="driver.version", value="580.65", reading_class=ReadingClass.STACK)]
        readings += [
            Reading(name=f"gpu.{n}.uuid", value=uuid, reading_class=ReadingClass.IDENTITY)
            for n, (uuid, _) in enumerate(self.gpus)
        ]
        return fingerprint(readings)


class Eyes:
    """The agent of the machine: the kernel log of the present boot, and a monitor of states."""

    def __init__(self, hardware: Hardware, finding: str) -> None:
        self._hardware = hardware
        self._finding = finding
        self._log: list[tuple[int, datetime, str]] = []
        self._read = 0
        self._heals_at: datetime | None = None
        self._state: Assembly = self._fresh()

    def _fresh(self) -> Assembly:
        return assembly.start(self._hardware.boot_id, {pci: uuid for uuid, pci in self._hardware.gpus})

    def restart(self) -> None:
        """The agent comes up without its memory and reads the kernel log of this boot from its beginning."""
        self._state = self._fresh()
        self._read = 0

    def strike(self, now: datetime) -> None:
        """The finding happens."""
        boot = self._hardware.boot
        match self._finding:
            case "fatal" | "other":
                self._log.append((boot, now, "79"))
                self._hardware.broken.add(0)
            case "unknown":
                self._log.append((boot, now, "999"))
            case "healthy":
                self._hardware.broken.add(0)
                self._heals_at = now + timedelta(seconds=HEALS_AFTER_S)
            case "partly":
                self._hardware.broken.update((0, 1))
                self._heals_at = now + timedelta(seconds=HEALS_AFTER_S)
            case _:
                raise AssertionError(f"no finding {self._finding}")

    def look(self, now: datetime) -> tuple[Fault, ...]:
        """One look of all monitors; returns the open faults."""
        if self._heals_at is not None and now >= self._heals_at:
            self._heals_at = None
            self._hardware.broken.discard(0 if self._finding == "healthy" else 1)
        state = self._state
        if state.boot_id != self._hardware.boot_id:
            state, _ = assembly.new_boot(state, self._hardware.boot_id, now)
            self._log = [entry for entry in self._log if entry[0] == self._hardware.boot]
            self._read = 0
        state, _ = assembly.identify(state, {pci: uuid for uuid, pci in self._hardware.gpus})
        fresh, self._read = self._log[self._read :], len(self._log)
        state, _ = assembly.observe(state, [self._xid(at, code) for _, at, code in fresh], now)
        state, _ = assembly.clean(state, "xid", None, now)
        states_seen = self._finding in ("healthy", "partly")
        for index, (uuid, pci) in enumerate(self._hardware.gpus):
            if states_seen and index in self._hardware.broken:
                state, _ = assembly.observe(state, [self._lost(uuid, pci, now)], now)
            else:
                # Of its own check: it says nothing of what the kernel log told.
                state, _ = assembly.clear(state, "gpu", Entity(kind=EntityKind.GPU, uuid=uuid).key(), now)
        if states_seen:
            gone = [f for f in assembly.stale_faults(state) if f.check == "gpu"]
            for fault in gone:
                if fault.entity.uuid not in [uuid for uuid, _ in self._hardware.gpus]:
                    state, _ = assembly.clean(state, "gpu", fault.entity.key(), now)
        self._state = state
        return assembly.open_faults(state)

    def _xid(self, at: datetime, code: str) -> Sighting:
        known = code == "79"
        return Sighting(
            source="kernel-log",
            check="xid",
            code=code,
            entity=Entity(kind=EntityKind.GPU, pci=self._hardware.gpus[0][1]),
            severity=Severity.FATAL if known else Severity.UNKNOWN,
            scope=Scope.GPU,
            hint=Hint.REBOOT if known else Hint.NONE,
            message="GPU has fallen off the bus" if known else "not in the catalogue",
            at=at,
        )

    def _lost(self, uuid: str, pci: str, now: datetime) -> Sighting:
        return Sighting(
            source="gpu",
            check="gpu",
            code="lost",
            entity=Entity(kind=EntityKind.GPU, uuid=uuid, pci=pci),
            severity=Severity.FATAL,
            scope=Scope.GPU,
            hint=Hint.REBOOT,
            message="GPU does not answer",
            at=now,
            standing=True,
        )
