"""The inventory of a real Linux node: the collectors of `muster.inventory` that read files; no process is started.

NVML is not asked: it can hang, and the driver's own files tell what identifies a GPU. Readings that only NVML has
(serial number, ECC mode) are therefore no part of the fingerprint; a snapshot on the machine has them.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from muster.agent.host.blocking import Blocking
from muster.agent.sources import NodeReadings
from muster.clock import Clock
from muster.errors import BadInputError, DeadlineError, UnreachableError
from muster.inventory import gpu
from muster.inventory.collect import AGENT_COLLECTORS, Collector, collect
from muster.inventory.machine import Findings, Machine
from muster.resources.fingerprint import ReadingClass
from muster.resources.node_health import Gpu

DEADLINE_S = 10.0
"""Files of /proc and /sys answer within milliseconds, those of a driver that is busy within seconds."""
_OF_DRIVERS = ("gpu", "driver", "rdma")
"""Collectors whose files a driver answers: one that is stuck holds whoever reads them."""


class LinuxInventory:
    """Reads the node whose file system is mounted at `root`.

    With a clock, files that do not come back within `deadline_s` cost one thread and not the agent: what they told
    before stands, and is told as unread. Without one they are read at once, on the caller's own thread.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        node_uid: str = "",
        clock: Clock | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._machine = Machine(root)
        self._node_uid = node_uid
        self._clock = clock
        self._deadline_s = deadline_s
        self._last: dict[str, Findings] = {}
        self._threads: dict[str, Blocking] = {}
        if clock is not None:
            self._threads = {name: Blocking(f"the look at {name}", clock) for name, _ in _groups()}

    async def boot_id(self) -> str:
        """The boot ID alone. Raises BadInputError when the node shows none."""
        boot_id = self._text("proc/sys/kernel/random/boot_id")
        if not boot_id:
            raise BadInputError(
                f"Cannot read the boot ID below {self._machine.root}; is /proc of the node mounted there?"
            )
        return boot_id

    async def read(self) -> NodeReadings:
        """The readings of this moment. Raises BadInputError when the node shows no boot ID."""
        boot_id = await self.boot_id()
        found = await self._collect()
        kept = {r.name: r for r in reversed(found.readings) if r.reading_class is not ReadingClass.VOLATILE}
        return NodeReadings(
            node_uid=self._node_uid,
            boot_id=boot_id,
            booted_at=self._booted_at(),
            readings=tuple(kept[name] for name in sorted(kept)),
            gpus=_gpus(found),
            unread=tuple(sorted({unknown.name for unknown in found.unknown} - kept.keys())),
        )

    async def _collect(self) -> Findings:
        if self._clock is None:
            return collect(self._machine, AGENT_COLLECTORS)
        found = Findings()
        for name, collectors in _groups():
            try:
                self._last[name] = await self._in_time(self._clock, name, collectors)
                found.extend(self._last[name])
            except (DeadlineError, UnreachableError) as error:
                found.extend(self._last.get(name, Findings()))
                for collector, _ in collectors:
                    found.miss(collector, str(error))
        return found

    async def _in_time(self, clock: Clock, name: str, collectors: tuple[Collector, ...]) -> Findings:
        """What the collectors find. Raises DeadlineError when they do not come back."""
        reading = asyncio.ensure_future(self._threads[name].run(lambda: collect(self._machine, collectors)))
        late = asyncio.ensure_future(clock.sleep(self._deadline_s))
        try:
            await asyncio.wait((reading, late), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise DeadlineError(f"The look at {name} did not come back within {self._deadline_s:g} s.")
            return reading.result()
        finally:
            late.cancel()
            reading.cancel()

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


def _groups() -> tuple[tuple[str, tuple[Collector, ...]], ...]:
    """The collectors by what may hang apart from the others."""
    system = tuple(c for c in AGENT_COLLECTORS if c[0] not in _OF_DRIVERS)
    return (("system", system), *((c[0], (c,)) for c in AGENT_COLLECTORS if c[0] in _OF_DRIVERS))


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
