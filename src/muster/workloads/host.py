"""Program `host`: what the node is made of, against what it should be made of.

What is expected comes in the parameters: `expected_gpus`, `expected_nics`, `min_link_gbps`, `mtu`, `sysctls` (name ->
value), `max_clock_offset_ms`, `min_free_gb` (of `disk_path`), `full_pcie` (every link as wide and NICs as fast as
they can), `ecc`. What is not expected is reported and not judged, except what is broken on its own account: failed
row remapping, uncorrected memory errors, an NVLink that is down while others are up (`judge_faults`, true by
default). An expectation about something that cannot be read is neither kept nor broken: the run is a `harness`
failure then."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

from muster.workloads import host_readings, nvidia_smi
from muster.workloads.context import RankContext
from muster.workloads.host_readings import Nic, PciLink, RdmaPort, Unreadable
from muster.workloads.nvidia_smi import Gpus
from muster.workloads.params import Params
from muster.workloads.rank import RankResult

PARAMS = [
    "expected_gpus",
    "expected_nics",
    "min_link_gbps",
    "mtu",
    "sysctls",
    "max_clock_offset_ms",
    "min_free_gb",
    "disk_path",
    "full_pcie",
    "ecc",
    "judge_faults",
]
USUAL_SYSCTLS = (
    "kernel.numa_balancing",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "vm.max_map_count",
    "vm.nr_hugepages",
)


@dataclass(frozen=True)
class Readings:
    """Everything that was read. `gpus` None: no nvidia-smi."""

    gpus: Gpus | None
    nics: tuple[Nic, ...]
    ports: tuple[RdmaPort, ...]
    links: tuple[PciLink, ...]
    sysctls: dict[str, str | None]
    clock_offset_s: float | None
    clock_synchronized: bool | None
    free_bytes: int | None
    unreadable: tuple[str, ...]


@dataclass
class Judgement:
    """`broken`: expectations that are not met. `unknown`: expectations about what cannot be read."""

    broken: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def run(context: RankContext) -> RankResult:
    """The program."""
    params = context.params
    params.refuse_others(*PARAMS)
    context.inject.before_step(0)
    readings = read(params, Path("/"))
    judgement = judge(params, readings)
    spoken = [*judgement.broken, *(f"cannot be read: {name}" for name in judgement.unknown)]
    reason = "hardware" if judgement.broken else "harness" if judgement.unknown else ""
    if not spoken and readings.unreadable:
        spoken = [f"not judged, cannot be read: {', '.join(readings.unreadable)}"]
    return RankResult(
        ok=not reason,
        reason=reason,
        message="; ".join(spoken),
        suspects=(context.node,) if judgement.broken else (),
        versions=_versions(readings),
        facts=facts(readings),
    )


def read(params: Params, root: Path) -> Readings:
    """Reads the host below `root`."""
    unreadable = Unreadable()
    names = sorted({*USUAL_SYSCTLS, *params.mapping("sysctls")})
    synchronized = host_readings.clock_synchronized()
    return Readings(
        gpus=nvidia_smi.read_gpus(unreadable),
        nics=tuple(host_readings.nics(root)),
        ports=tuple(host_readings.rdma_ports(root)),
        links=tuple(host_readings.pci_links(root)),
        sysctls={name: host_readings.sysctl(root, name) for name in names},
        clock_offset_s=host_readings.clock_offset_s(unreadable),
        clock_synchronized=synchronized,
        free_bytes=host_readings.free_disk_bytes(params.text("disk_path", "/")),
        unreadable=tuple(unreadable.names),
    )


def judge(params: Params, readings: Readings) -> Judgement:
    """Readings against the expectations in the parameters. Pure."""
    found = Judgement()
    _judge_gpus(params, readings, found)
    _judge_network(params, readings, found)
    _judge_system(params, readings, found)
    if params.flag("full_pcie"):
        for link in readings.links:
            if link.width is None or link.most_width is None:
                found.unknown.append(f"PCIe width of {link.kind} {link.address}")
            elif link.narrow:
                found.broken.append(f"PCIe of {link.kind} {link.address} is x{link.width} of x{link.most_width}")
            elif link.slow and link.kind == "nic":
                found.broken.append(f"PCIe of nic {link.address} runs at {link.speed:g} of {link.most_speed:g} GT/s")
        if not readings.links:
            found.unknown.append("PCIe links")
    return found


def _judge_gpus(params: Params, readings: Readings, found: Judgement) -> None:
    gpus = readings.gpus
    if params.has("expected_gpus"):
        wanted = params.whole("expected_gpus", 0, most=nvidia_smi.GPU_LIMIT)
        if gpus is None or "GPUs" in readings.unreadable:
            found.unknown.append("number of GPUs")
        elif len(gpus.gpus) != wanted:
            found.broken.append(f"{len(gpus.gpus)} GPUs of {wanted}")
    if params.has("ecc"):
        wished = params.flag("ecc")
        for gpu in gpus.gpus if gpus else ():
            if gpu.ecc is None:
                found.unknown.append(f"ECC of GPU {gpu.index}")
            elif gpu.ecc is not wished:
                found.broken.append(f"ECC of GPU {gpu.index} is {'on' if gpu.ecc else 'off'}")
        if gpus is None:
            found.unknown.append("ECC")
    if gpus is None or not params.flag("judge_faults", True):
        return
    found.broken += [f"row remapping of GPU {each.bus_id} has failed" for each in gpus.remaps if each.failure]
    found.broken += [
        f"row remapping of GPU {each.bus_id} is pending: reset it" for each in gpus.remaps if each.pending
    ]
    found.broken += [
        f"GPU {each.index} counts {each.uncorrected} uncorrected memory errors since the driver started"
        for each in gpus.gpus
        if each.uncorrected
    ]
    found.broken += [f"NVLink {link} of GPU {gpu} is down" for gpu, link in gpus.inactive_links]


def _judge_network(params: Params, readings: Readings, found: Judgement) -> None:
    active = [port for port in readings.ports if port.active]
    if params.has("expected_nics"):
        wanted = params.whole("expected_nics", 0, most=256)
        count = len(active) if readings.ports else sum(nic.up for nic in readings.nics)
        if count != wanted:
            found.broken.append(f"{count} active {'RDMA ports' if readings.ports else 'NICs'} of {wanted}")
    rates = [(port.name, port.gbps) for port in active] or [(nic.name, nic.gbps) for nic in readings.nics if nic.up]
    if params.has("min_link_gbps"):
        least = params.number("min_link_gbps", 0.0)
        found.unknown += [f"link rate of {name}" for name, rate in rates if rate is None]
        found.broken += [
            f"{name} runs at {rate:g} of {least:g} Gbit/s"
            for name, rate in rates
            if rate is not None and rate < least
        ]
        if not rates:
            found.unknown.append("link rate: no NIC is up")
    if params.has("mtu"):
        wished = params.whole("mtu", 0)
        up = [nic for nic in readings.nics if nic.up]
        found.unknown += [f"MTU of {nic.name}" for nic in up if nic.mtu is None]
        found.broken += [
            f"MTU of {nic.name} is {nic.mtu}, not {wished}" for nic in up if nic.mtu not in (None, wished)
        ]
        if not up:
            found.unknown.append("MTU: no NIC is up")


def _judge_system(params: Params, readings: Readings, found: Judgement) -> None:
    for name, value in sorted(params.mapping("sysctls").items()):
        is_ = readings.sysctls.get(name)
        if is_ is None:
            found.unknown.append(f"sysctl {name}")
        elif is_ != " ".join(str(value).split()):
            found.broken.append(f"sysctl {name} is {is_[:60]}, not {str(value)[:60]}")
    if params.has("max_clock_offset_ms"):
        most_s = params.number("max_clock_offset_ms", 0.0) / 1000.0
        if readings.clock_offset_s is None:
            found.unknown.append("clock offset")
        elif readings.clock_offset_s > most_s:
            found.broken.append(
                f"the clock is {readings.clock_offset_s * 1000:.3g} ms off, at most {most_s * 1000:g} ms"
            )
    if params.has("min_free_gb"):
        least = params.number("min_free_gb", 0.0)
        if readings.free_bytes is None:
            found.unknown.append("free disk space")
        elif readings.free_bytes < least * 1e9:
            found.broken.append(f"{readings.free_bytes / 1e9:.1f} GB of disk free, at least {least:g} GB")


def facts(readings: Readings) -> dict[str, float]:
    """The readings as numbers, keyed with their unit. What is not known is missing."""
    found: dict[str, float] = {"cpus": float(os.cpu_count() or 0)}
    if readings.gpus is not None:
        found["gpus"] = float(len(readings.gpus.gpus))
        found["nvlinks_active"] = float(readings.gpus.active_links)
        found["nvlinks_down"] = float(len(readings.gpus.inactive_links))
        temperatures = [gpu.temperature_c for gpu in readings.gpus.gpus if gpu.temperature_c is not None]
        if temperatures:
            found["hottest_gpu_c"] = max(temperatures)
    found["nics_up"] = float(sum(nic.up for nic in readings.nics))
    found["rdma_ports_active"] = float(sum(port.active for port in readings.ports))
    found["pcie_links_narrow"] = float(sum(link.narrow for link in readings.links))
    named = [port.gbps for port in readings.ports] + [nic.gbps for nic in readings.nics]
    rates = [rate for rate in named if rate is not None]
    if rates:
        found["slowest_link_gbps"] = min(rates)
    if readings.clock_offset_s is not None:
        found["clock_offset_ms"] = readings.clock_offset_s * 1000.0
    if readings.clock_synchronized is not None:
        found["clock_synchronized"] = float(readings.clock_synchronized)
    if readings.free_bytes is not None:
        found["disk_free_gb"] = readings.free_bytes / 1e9
    return found


def _versions(readings: Readings) -> dict[str, str]:
    found = {"kernel": platform.release(), "python": platform.python_version()}
    if readings.gpus is not None and readings.gpus.gpus:
        found["driver"] = readings.gpus.gpus[0].driver
        found["gpu"] = readings.gpus.gpus[0].name
    for name, value in readings.sysctls.items():
        found[f"sysctl {name}"] = "not readable" if value is None else value[:80]
    return found
