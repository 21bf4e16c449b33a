"""From log records and probes to open faults: the parser and the fault assembly of one node, held together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from muster.agent.sources import Probe
from muster.faults import assembly
from muster.faults.assembly import Sighting
from muster.read.kernel import KernelLogParser, to_sightings
from muster.resources.fault import EntityKind, Fault
from muster.resources.node_health import Gpu


class Diagnosis:
    """The open faults of one node, and what is needed to go on with them after a restart."""

    def __init__(self, boot_id: str, gpus: Iterable[Gpu], kept: bytes | None = None) -> None:
        """`kept` is what `document` gave; one that is not readable (of another version) is as good as none."""
        self._parser = KernelLogParser()
        self._boot_id = boot_id
        self._state = assembly.start(boot_id, _by_pci(gpus))
        self.unreadable = 0
        """Records that the parser could not take; each is skipped."""
        if kept is not None:
            try:
                self._state = msgspec.json.decode(kept, type=assembly.State)
            except msgspec.MsgspecError:
                pass

    def document(self) -> bytes:
        """Everything that must survive a restart, as JSON."""
        return msgspec.json.encode(self._state)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Open faults, sorted by key."""
        return tuple(sorted(assembly.open_faults(self._state), key=Fault.key))

    def read(self, records: Sequence[bytes], now: datetime) -> None:
        """Take records of the kernel log."""
        try:
            sightings = to_sightings(self._parser.feed(list(records)))
        except Exception:  # noqa: BLE001 - a record that breaks the parser must not stop the monitor
            sightings = [sighting for record in records for sighting in self._read_one(record)]
        self._observe(sightings, now)

    def _read_one(self, record: bytes) -> Sequence[Sighting]:
        try:
            return to_sightings(self._parser.feed([record]))
        except Exception:  # noqa: BLE001 - as above; this is the record
            self.unreadable += 1
            return ()
