"""The inventory of a real Linux node: the collectors of `muster.inventory` that read files; no process is started.

NVML is not asked: it can hang, and the driver's own files tell what identifies a GPU. Readings that only NVML has
(serial number, ECC mode) are therefore no part of the fingerprint; a snapshot on the machine has them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from muster.agent.sources import NodeReadings
from muster.errors import BadInputError
from muster.inventory import gpu
from muster.inventory.collect import AGENT_COLLECTORS, collect
from muster.inventory.machine import Findings, Machine
from muster.resources.fingerprint import ReadingClass
from muster.resources.node_health import Gpu


class LinuxInventory:
    """Reads the node whose file system is mounted at `root`."""

    def __init__(self, root: Path = Path("/"), *, node_uid: str = "") -> None:
        self._machine = Machine(root)
        self._node_uid = node_uid

    async def read(self) -> NodeReadings:
        """The readings of this moment. Raises BadInputError when the node shows no boot ID."""
        boot_id = self._text("proc/sys/kernel/random/boot_id")
        if not boot_id:
            raise BadInputError(
                f"Cannot read the boot ID below {self._machine.root}; is /proc of the node mounted there?"
            )
        found = collect(self._machine, AGENT_COLLECTORS)
        kept = {r.name: r for r in reversed(found.readings) if r.reading_class is not ReadingClass.VOLATILE}
        return NodeReadings(
            node_uid=self._node_uid,
            boot_id=boot_id,
            booted_at=self._booted_at(),
            readings=tuple(kept[name] for name in sorted(kept)),
            gpus=_gpus(found),
            unread=tuple(sorted({unknown.name for unknown in found.unknown} - kept.keys())),
        )

    def _booted_at(self) -> datetime | None:
        for line in self._text("proc/stat").splitlines():
            name, _, value = line.partition(" ")
            if name == "btime" and value.strip().isdecimal():
                return datetime.fromtimestamp(int(value), UTC)
        return None

    def _text(self, path: str) -> str:
        try:
            return self._machine.read(path)
        except OSError:
            return ""


def _gpus(found: Findings) -> tuple[Gpu, ...]:
    values = found.values()
    return tuple(
        Gpu(
            index=index,
            uuid=values.get(f"gpu.{index}.uuid", ""),
            pci=address,
            product=values.get(f"gpu.{index}.product", ""),
        )
        for index, address in enumerate(gpu.addresses(found))
    )
