"""The agents' eyes on the simulated fleet: a kernel log to read and an inventory, both taken from the truth."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence

from muster.agent.sources import LogBatch, NodeReadings, Probe
from muster.inventory.readings import class_of
from muster.resources.fault import Entity, EntityKind
from muster.resources.fingerprint import Reading
from muster.resources.node_health import Gpu
from muster.sim.defects import DefectKind
from muster.sim.nodes import INSTANCE_TYPE, OS_IMAGE
from muster.sim.tests_model import ALL_LINKS
from muster.sim.world import PRODUCT_NAME, VBIOS, NodeTruth, World

BATCH_RECORDS = 512
NVSWITCHES = 4
GPU_DEVICE_ID = "0x2330"
NICS = 8
NIC_TYPE = "MT4129"
NIC_BOARD = "MT_0000000838"
NIC_FIRMWARE = "28.43.2566"
NIC_LINK_LAYER = "InfiniBand"
OS_ID, OS_VERSION = "ubuntu", "22.04"
VENDOR, BIOS_VERSION = "Amazon EC2", "1.0"
KERNEL_SETTINGS = "ro console=tty0 iommu=pt pci=realloc=off"
SYSCTLS = {
    "net.core.rmem_max": "134217728",
    "vm.max_map_count": "1048576",
    "vm.zone_reclaim_mode": "0",
}


class SimulatedLogSource:
    """The kernel log of one node. A cursor is `<boot id>:<sequence number of the next record>`."""

    def __init__(self, world: World, node: str) -> None:
        self._world = world
        self._node = node
        self._written = asyncio.Event()
        self._written.set()
        world.on_log.append(self._on_log)
        world.on_power.append(self._on_log)

    def close(self) -> None:
        """Stop listening to the world."""
        self._world.on_log.remove(self._on_log)
        self._world.on_power.remove(self._on_log)

    def _on_log(self, name: str) -> None:
        if name == self._node:
            self._written.set()

    async def read(self, cursor: str | None) -> LogBatch:
        """The next records after `cursor`; waits for one. A cursor of an older boot starts at this boot's first."""
        while True:
            batch = self._next(cursor)
            if batch is not None:
                return batch
            self._written.clear()
            await self._written.wait()

    def _next(self, cursor: str | None) -> LogBatch | None:
        node = self._world.nodes[self._node]
        if not node.up:
            return None
        boot_id, _, sequence = (cursor or "").partition(":")
        wanted = int(sequence) if boot_id == node.boot_id and sequence.isdecimal() else 0
        first = max(wanted, node.log_start)
        records = node.log[first - node.log_start : first - node.log_start + BATCH_RECORDS]
        if not records:
            return None
        cursor = f"{node.boot_id}:{first + len(records)}"
        return LogBatch(records=tuple(records), cursor=cursor, lost=first - wanted)


class SimulatedInventory:
    """What an agent reads about one node. Returns the same value while nothing changed."""

    def __init__(self, world: World, node: str, node_uids: Mapping[str, str]) -> None:
        """`node_uids` is a live view: a Node that was deleted registers again with another UID."""
        self._world = world
        self._node = node
        self._node_uids = node_uids
        self._seen: tuple[object, ...] | None = None
        self._last: NodeReadings | None = None

    async def read(self) -> NodeReadings:
        """The readings of this moment."""
        node = self._world.nodes[self._node]
        broken = (DefectKind.XID, DefectKind.NEEDS_REPLACEMENT)
        hurt = tuple(d.gpu for d in self._world.defects_of(self._node) if d.kind in broken)
        uid = self._node_uids[self._node]
        seen = (uid, node.boot_id, node.driver, node.parts, node.resets, hurt)
        if self._last is None or seen != self._seen:
            self._seen = seen
            self._last = NodeReadings(
                node_uid=uid,
                boot_id=node.boot_id,
                booted_at=node.booted_at,
                readings=readings_of(node),
                gpus=tuple(
                    Gpu(index=gpu.index, uuid=gpu.uuid, pci=gpu.pci, product=PRODUCT_NAME) for gpu in node.gpus
                ),
                probes=probes_of(node, hurt),
            )
        return self._last


def probes_of(node: NodeTruth, hurt: Sequence[int]) -> tuple[Probe, ...]:
    """What a look at the GPUs tells after a reset in this boot: those that work are clean, with all their links.

    `hurt` holds the indices of GPUs that do not work; nothing is told about them, their log speaks for itself.
    """
    if node.resets == 0:
        return ()
    entities: list[Entity] = []
    for gpu in node.gpus:
        if gpu.index not in hurt:
            entities.append(Entity(kind=EntityKind.GPU, uuid=gpu.uuid, pci=gpu.pci, index=gpu.index))
            entities.extend(
                Entity(kind=EntityKind.NVLINK, uuid=gpu.uuid, pci=gpu.pci, link=link) for link in range(ALL_LINKS)
            )
    return tuple(Probe(source="gpu-probe", check="xid", code="", entity=entity, healthy=True) for entity in entities)


def readings_of(node: NodeTruth) -> tuple[Reading, ...]:
    """What the agent reads from the files of the machine (`machine_files`): the same names and values."""
    values = {
        **_system(node),
        "driver.version": node.driver,
        "module.nvidia": node.driver,
        "gpu.count": str(len(node.gpus)),
        "nvswitch.count": str(NVSWITCHES),
    }
    for gpu in node.gpus:
        key = f"gpu.{gpu.index}"
        values[f"{key}.pci"] = gpu.pci
        values[f"{key}.device_id"] = GPU_DEVICE_ID
        values[f"{key}.uuid"] = gpu.uuid
        values[f"{key}.product"] = PRODUCT_NAME
        values[f"{key}.vbios"] = VBIOS
        values[f"{key}.gsp_firmware"] = node.driver
    for index in range(NICS):
        key = f"rdma.mlx5_{index}"
        values[f"{key}.node_guid"] = guid_of(node, index)
        values[f"{key}.type"] = NIC_TYPE
        values[f"{key}.board"] = NIC_BOARD
        values[f"{key}.firmware"] = NIC_FIRMWARE
        values[f"{key}.1.link_layer"] = NIC_LINK_LAYER
    return tuple(Reading(name=name, value=values[name], reading_class=class_of(name)) for name in sorted(values))


def _system(node: NodeTruth) -> dict[str, str]:
    return {
        "os.id": OS_ID,
        "os.version_id": OS_VERSION,
        "os.name": OS_IMAGE,
        "kernel.version": node.kernel,
        "kernel.cmdline": KERNEL_SETTINGS,
        **{f"sysctl.{name}": value for name, value in SYSCTLS.items()},
        "system.vendor": VENDOR,
        "system.product": INSTANCE_TYPE,
        "system.serial": serial_of(node),
        "system.bios_version": BIOS_VERSION,
    }


def guid_of(node: NodeTruth, nic: int) -> str:
    """The GUID of a network card, as sysfs writes it; every card of the fleet has another one."""
    number = zlib.crc32(node.name.encode())
    return f"b83f:d203:{number >> 16:04x}:{(number & 0xFFF0) + nic:04x}"


def serial_of(node: NodeTruth) -> str:
    """The serial number of the machine."""
    return f"ec2-{zlib.crc32(node.name.encode()):08x}"
