"""What a node says in each family of faults: log lines and readings, through the real way to `muster node`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from msgspec.structs import replace as with_fields

from muster.agent.diagnosis import Diagnosis
from muster.agent.sources import Probe
from muster.faults import catalogue
from muster.faults.runbooks import Runbook
from muster.operate.correlation.model import Correlated, Correlations
from muster.operate.explain import explain
from muster.operate.explain_text import render
from muster.operate.model import NodeView, Refusal
from muster.operate.policy import FULL_AUTOMATION, effective_policy, with_provider
from muster.resources.base import ObjectMeta
from muster.resources.certification import NodeVerdict
from muster.resources.fault import Entity, EntityKind, Fault
from muster.resources.fault_policy import Disposition
from muster.resources.node_health import (
    Gpu,
    NodeHealth,
    NodeHealthStatus,
    Notice,
    NoticeKind,
    NoticeStatus,
)
from muster.resources.repair import RepairPhase
from tests.demo.samples import failed_certification
from tests.operate.worlds import START, World, pod

NODE = "gpu-017"
WIDTH = 116
SAFE = effective_policy([], {})
AUTOMATED = effective_policy([with_provider(FULL_AUTOMATION, "site")], {})
GPUS = tuple(
    Gpu(index=i, uuid=f"GPU-{i}0aa51c3-77d2-4f0e-9d3b-5a1c0d9e2b4{i}", pci=f"0000:{bus}:00.0")
    for i, bus in enumerate(("1b", "3b", "4c", "5d", "9b", "bb", "cb", "db"))
)
GPU = Entity(kind=EntityKind.GPU, uuid=GPUS[3].uuid, pci=GPUS[3].pci, index=3)
LINK = Entity(kind=EntityKind.NVLINK, uuid=GPUS[3].uuid, pci=GPUS[3].pci, link=7)
HOST = Entity(kind=EntityKind.NODE)
PORT = Entity(kind=EntityKind.NIC, device="mlx5_4", port=1)


def fresh(automated: bool = False) -> World:
    """A node with a certificate that takes work."""
    node = NodeView(name=NODE, uid="uid-1", agent_seen=START)
    world = World(policy=AUTOMATED if automated else SAFE, node=node)
    world.certify()
    world.pass_time(9000)
    return world


def faults(world: World, *lines: str, probes: tuple[Probe, ...] = ()) -> tuple[Fault, ...]:
    """The open faults after these lines of the kernel log and these readings."""
    diagnosis = Diagnosis("boot-1")
    now = world.now
    booted = now - timedelta(hours=4)
    diagnosis.know_node("boot-1", booted, GPUS, now)
    at = (now - booted).total_seconds() - 30
    records = [f"4,{i},{int((at + i) * 1e6)},-;{line}".encode() for i, line in enumerate(lines)]
    diagnosis.read(records, now)
    diagnosis.finish_record(now)
    for probe in probes:
        diagnosis.probe(probe, now)
    return diagnosis.faults


def reading(source: str, code: str, entity: Entity, message: str) -> Probe:
    known = catalogue.condition(code)
    return Probe(
        source=source,
        check=known.check,
        code=code,
        entity=entity,
        healthy=False,
        severity=known.severity,
        scope=known.scope,
        hint=known.hint,
        message=message,
    )


def seen(*lines: str, probes: tuple[Probe, ...] = (), automated: bool = False) -> World:
    """The node a minute after it saw that."""
    world = fresh(automated)
    world.observe(*faults(world, *lines, probes=probes))
    world.settle()
    world.pass_time(60)
    world.settle()
    return world


XID79 = "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID119 = (
    "NVRM: Xid (PCI:0000:5d:00): 119, pid=2411, name=python3, Timeout after 6s of waiting for RPC response from GPU3 "
    "GSP! Expected function 76 (GSP_RM_CONTROL)."
)


def _drain() -> World:
    world = fresh(automated=True)
    world.node = replace(world.node, pods=(pod("train-0", node=NODE),))
    world.observe(*faults(world, XID119))
    world.settle()
    refusal = (
        "Cannot evict pod as it would violate the pod's disruption budget.: "
        "The disruption budget train needs 8 healthy pods and has 8 currently"
    )
    world.node = replace(world.node, refusals=(Refusal("uid-train-0", refusal, world.now),))
    world.pass_time(1500)
    world.settle()
    return world


def _exhausted() -> World:
    world = fresh(automated=True)
    found = faults(world, XID79)
    world.observe(*found)
    world.settle()
    for boot in range(2, 6):
        if not world.node.repairs or world.node.repairs[-1].status.phase is not RepairPhase.PENDING:
            break
        world.repair(RepairPhase.DONE)
        again = tuple(with_fields(f, last_seen=world.now, boot_id=f"boot-{boot}") for f in found)
        world.observe(*again, boot=f"boot-{boot}")
        world.settle()
        world.pass_time(15000)
        world.observe(*again, boot=f"boot-{boot}")
        world.settle()
    return world


def _many() -> World:
    world = fresh(automated=True)
    held = Correlated(
        correlation="many-in-domain",
        group="rack7",
        kind="xid/119",
        nodes=(NODE, "gpu-018", "gpu-021"),
        since=world.now,
        change="driver.version 580.65.06 -> 580.95.05",
        disposition=Disposition.CONDITION,
        message="XID 119 on 3 of 8 nodes of rack7 within 10 min, after driver.version 580.65.06 -> 580.95.05.",
    )
    world.correlations = Correlations(by_node={NODE: {"xid/119": held}})
    world.observe(*faults(world, XID119))
    world.settle()
    return world


def _silent() -> World:
    world = fresh()
    world.now += timedelta(seconds=900)
    world.settle()
    world.now += timedelta(seconds=300)
    return world


def _announced() -> World:
    world = fresh()
    notice = Notice(
        id="vm-event-4471",
        source="aws",
        kind=NoticeKind.REBOOT,
        status=NoticeStatus.SCHEDULED,
        not_before=world.now + timedelta(hours=30),
        ends_at=world.now + timedelta(hours=32),
        message="The instance is scheduled for a reboot.",
    )
    world.observe(notices=(notice,))
    world.settle()
    return world


def _failed() -> World:
    world = World(policy=SAFE, node=NodeView(name="node-02", uid="uid-1", agent_seen=START))
    world.certify(NodeVerdict.FAILED)
    return world


SAMPLES: dict[Runbook, Callable[[], World]] = {
    Runbook.APPLICATION: lambda: seen(
        "NVRM: Xid (PCI:0000:5d:00): 31, pid=2411, name=python3, Ch 00000010, intr 00000000. MMU Fault: ENGINE "
        "GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2a_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    ),
    Runbook.GPU_MEMORY: lambda: seen(
        "NVRM: Xid (PCI:0000:5d:00): 95, pid=2411, name=python3, Uncontained: FBHUB. RST: Yes, D-RST: No",
        probes=(reading("gpu", "gpu-remap-pending", GPU, "A row remap is pending; 1 uncorrectable."),),
    ),
    Runbook.GPU_GONE: lambda: seen(XID79),
    Runbook.GPU_FIRMWARE: lambda: seen(XID119, automated=True),
    Runbook.NVLINK: lambda: seen(probes=(reading("gpu", "nvlink-down", LINK, "NVLink 7 was up and is down."),)),
    Runbook.PCIE: lambda: seen(probes=(reading("gpu", "gpu-pcie-width", GPU, "PCIe runs at x8 of x16."),)),
    Runbook.THERMAL_POWER: lambda: seen(
        probes=(reading("gpu", "gpu-thermal-throttle", GPU, "Slowed down by heat at 3 looks in a row, 89 C."),)
    ),
    Runbook.NETWORK: lambda: seen(
        probes=(reading("network", "port-down", PORT, "Port 1 of mlx5_4 is Down; it was Active in this boot."),)
    ),
    Runbook.HOST: lambda: seen("EXT4-fs (nvme0n1p2): Remounting filesystem read-only"),
    Runbook.SERVICES: lambda: seen(
        probes=(
            reading(
                "services",
                "service-down",
                Entity(kind=EntityKind.NODE, name="kubelet"),
                "kubelet.service is failed (exit-code), for 2 min.",
            ),
        )
    ),
    Runbook.DRIVER: lambda: seen("NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x62:0xffff:2477)"),
    Runbook.MAINTENANCE: _announced,
    Runbook.UNKNOWN: lambda: seen("NVRM: Xid (PCI:0000:5d:00): 999, pid=2411, name=python3, something new"),
    Runbook.SILENT_AGENT: _silent,
    Runbook.DRAIN: _drain,
    Runbook.REPAIRS_EXHAUSTED: _exhausted,
    Runbook.MANY_NODES: _many,
    Runbook.CERTIFICATION_FAILED: _failed,
}


def screen(page: Runbook) -> str:
    """What `muster node` prints in the family of `page`, without its history; long lines are folded."""
    world = SAMPLES[page]()
    health = NodeHealth(
        metadata=ObjectMeta(name=world.node.name),
        spec=world.node.spec,
        status=NodeHealthStatus(observed=world.node.observed, lifecycle=world.life),
    )
    certifications = [failed_certification()] if page is Runbook.CERTIFICATION_FAILED else []
    text = render(explain(health, certifications, world.node.repairs, now=world.now))
    text = text.replace(": 0 tests passed", ": 9 tests passed")  # the builders of nodes leave the tests out
    return "\n".join(_folded(line) for line in text.split("\nHistory")[0].splitlines())


def _folded(line: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
