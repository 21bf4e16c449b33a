"""The truth about the simulated fleet. The fleet plays it, tests compare with it; nothing else in Muster knows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from muster.resources.repair import Rung
from muster.sim.defects import Appears, Defect, DefectKind, cures
from muster.sim.draws import draw_uuid, rng
from muster.sim.kernel_messages import boot_messages, init_failed_messages, kmsg_record, reset_message, xid_messages

GPUS_PER_NODE = 8
PRODUCT = "NVIDIA-H100-80GB-HBM3"
PRODUCT_NAME = "NVIDIA H100 80GB HBM3"
PCI_BUSES = ("19", "3b", "4c", "5d", "9b", "bb", "cb", "db")
"""Bus numbers of the eight GPUs, as they are usual on eight-GPU HGX H100 boards."""
KERNEL = "5.15.0-1063-generic"
VBIOS = "96.00.A5.00.01"
MAX_LOG_RECORDS = 4096
"""The kernel's ring buffer is bounded; so is ours, per boot."""


@dataclass(frozen=True)
class GpuTruth:
    """One GPU. `pci` is `dddd:bb:dd.f` in lower case."""

    index: int
    uuid: str
    serial: str
    pci: str


@dataclass
class NodeTruth:
    """One machine. `up` is false from the moment it goes down until its kubelet is back."""

    name: str
    domain: str
    gpus: tuple[GpuTruth, ...]
    driver: str
    kernel: str
    boot_id: str
    booted_at: datetime
    boots: int = 1
    parts: int = 1
    """How many sets of GPUs the machine has had."""
    up: bool = True
    resets: int = 0
    """GPU resets and driver restarts during this boot."""
    log_start: int = 0
    """Sequence number of the oldest record that `log` still holds."""
    log: list[bytes] = field(default_factory=list)

    def log_end(self) -> int:
        """Sequence number that the next record will get."""
        return self.log_start + len(self.log)


@dataclass(frozen=True)
class Truth:
    """What an honest observer should end up with. Names are sorted."""

    faulty_nodes: tuple[str, ...]
    """Nodes with a defect of their own that has appeared by now, cured or not."""
    bad_links: tuple[tuple[str, str], ...]
    incurable_nodes: tuple[str, ...]
    """Faulty nodes that nothing the provider can do brings back."""


class World:
    """Machines, links and defects, all drawn from `seed`. `started` is the time at which the fleet came up."""

    def __init__(self, *, seed: int, nodes: int, domains: int, started: datetime, driver: str) -> None:
        self.seed = seed
        self.started = started
        self.nodes: dict[str, NodeTruth] = {}
        self.appeared: list[Defect] = []
        self.active: list[Defect] = []
        self.on_log: list[Callable[[str], None]] = []
        self.on_power: list[Callable[[str], None]] = []
        self.on_gpu_fault: list[Callable[[str], None]] = []
        self.on_gpu_hang: list[Callable[[str], None]] = []
        for name, domain in zip(node_names(nodes), domain_names(nodes, domains), strict=True):
            self.nodes[name] = NodeTruth(
                name=name,
                domain=domain,
                gpus=self._gpus(name, 1),
                driver=driver,
                kernel=KERNEL,
                boot_id=draw_uuid(seed, "boot", name, 1),
                booted_at=started - timedelta(seconds=120),
            )
            self._boot_log(self.nodes[name], started)

    def _gpus(self, name: str, parts: int) -> tuple[GpuTruth, ...]:
        return tuple(
            GpuTruth(
                index=index,
                uuid=f"GPU-{draw_uuid(self.seed, 'gpu', name, parts, index)}",
                serial=f"165{rng(self.seed, 'serial', name, parts, index).randrange(10**10):010d}",
                pci=f"0000:{PCI_BUSES[index]}:00.0",
            )
            for index in range(GPUS_PER_NODE)
        )

    # Defects

    def appear(self, defect: Defect, now: datetime) -> None:
        """From now on `defect` is real: the driver logs what it would log, and what runs there may crash or hang."""
        self.active.append(defect)
        if defect not in self.appeared:
            self.appeared.append(defect)
        if defect.kind is DefectKind.XID:
            self.raise_xid(defect, now)
        elif defect.kind is DefectKind.NEEDS_REPLACEMENT:
            self._log_failed_start(defect, now)
            for callback in self.on_gpu_fault:
                callback(defect.node)

    def _log_failed_start(self, defect: Defect, now: datetime) -> None:
        self.log(defect.node, now, init_failed_messages(self.nodes[defect.node].gpus[defect.gpu]))

    def raise_xid(self, defect: Defect, now: datetime) -> None:
        """The driver logs the XID of `defect` (once more)."""
        node = self.nodes[defect.node]
        pid = rng(self.seed, "pid", defect.node, node.boots, node.log_end()).randrange(20_000, 90_000)
        self.log(defect.node, now, xid_messages(defect.xid, node.gpus[defect.gpu], pid))
        for callback in self.on_gpu_hang if defect.hangs() else self.on_gpu_fault:
            callback(defect.node)

    def defects_of(self, name: str) -> tuple[Defect, ...]:
        """Active defects of the node itself (its links are not its own)."""
        return tuple(d for d in self.active if d.blames_node() and d.node == name)

    def link_defect(self, a: str, b: str) -> Defect | None:
        """The active defect of the path between `a` and `b`, in either direction."""
        for defect in self.active:
            if not defect.blames_node() and sorted(defect.nodes()) == sorted((a, b)):
                return defect
        return None

    def cure(self, name: str, rung: Rung, gpus: Sequence[int]) -> tuple[Defect, ...]:
        """Remove what `rung`, applied to the GPUs with these indices, cures on the node, and return it.

        A defect of the whole node needs all GPUs.
        """
        whole = (DefectKind.SLOW_NODE, DefectKind.FLAKY_NODE)
        reached = {d: len(gpus) == GPUS_PER_NODE if d.kind in whole else d.gpu in gpus for d in self.defects_of(name)}
        cured = tuple(d for d in self.defects_of(name) if cures(rung, d) and reached[d])
        self.active = [d for d in self.active if d not in cured]
        return cured

    def truth(self, refused: Sequence[tuple[str, Rung]] = ()) -> Truth:
        """The truth so far. `refused` holds what the provider will not do, as (node, rung)."""
        own = [d for d in self.appeared if d.blames_node()]
        offered = [rung for rung in Rung if rung is not Rung.TICKET]
        incurable = {d.node for d in own if not any(cures(r, d) and (d.node, r) not in refused for r in offered)}
        links = {(min(d.nodes()), max(d.nodes())) for d in self.appeared if not d.blames_node()}
        return Truth(tuple(sorted({d.node for d in own})), tuple(sorted(links)), tuple(sorted(incurable)))

    # Machines

    def go_down(self, name: str) -> None:
        """The machine stops: kubelet, agent and every container with it."""
        self.nodes[name].up = False
        for callback in self.on_power:
            callback(name)

    def come_up(self, name: str, now: datetime) -> None:
        """The machine is back after a boot: a new boot ID and an empty kernel log with the usual lines of a start."""
        node = self.nodes[name]
        node.boots += 1
        node.boot_id = draw_uuid(self.seed, "boot", name, node.boots)
        node.booted_at = now
        node.resets = 0
        node.log.clear()
        node.log_start = 0
        node.up = True
        self._boot_log(node, now)
        for callback in self.on_power:
            callback(name)

    def swap_gpus(self, name: str) -> None:
        """New GPUs in the machine: new UUIDs and serial numbers at the same addresses."""
        node = self.nodes[name]
        node.parts += 1
        node.gpus = self._gpus(name, node.parts)

    def install_driver(self, name: str, version: str, now: datetime) -> None:
        """A new driver is loaded without a reboot."""
        node = self.nodes[name]
        node.driver = version
        self.log(name, now, boot_messages(version))

    def reset_gpus(self, name: str, now: datetime, indices: Sequence[int]) -> None:
        """The driver resets the GPUs with these indices."""
        node = self.nodes[name]
        node.resets += 1
        self.log(name, now, [reset_message(node.gpus[index]) for index in indices], 6)

    def log(self, name: str, now: datetime, lines: Sequence[str], priority: int = 4) -> None:
        """Append lines to the kernel log of the node, as records of /dev/kmsg. Lost while the machine is down."""
        node = self.nodes[name]
        if not node.up:
            return
        since_boot_us = int((now - node.booted_at) / timedelta(microseconds=1))
        for line in lines:
            node.log.append(kmsg_record(line, priority, node.log_end(), since_boot_us))
        surplus = len(node.log) - MAX_LOG_RECORDS
        if surplus > 0:
            del node.log[:surplus]
            node.log_start += surplus
        for callback in self.on_log:
            callback(name)

    def _boot_log(self, node: NodeTruth, now: datetime) -> None:
        self.log(node.name, now, boot_messages(node.driver), 5)
        for defect in self.defects_of(node.name):
            if defect.kind is DefectKind.NEEDS_REPLACEMENT:
                self._log_failed_start(defect, now)


def node_names(nodes: int) -> tuple[str, ...]:
    """`gpu-001` and so on."""
    return tuple(f"gpu-{number:03d}" for number in range(1, nodes + 1))


def domain_names(nodes: int, domains: int) -> tuple[str, ...]:
    """The domain of each node: contiguous blocks, as equal as they can be."""
    return tuple(f"domain-{index * domains // nodes + 1}" for index in range(nodes))


def appearing(defects: Sequence[Defect], appears: Appears) -> tuple[Defect, ...]:
    """The defects that appear in this way, in the order of the plant."""
    return tuple(d for d in defects if d.appears is appears)
