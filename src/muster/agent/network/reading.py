"""Reads the network ports of a node from sysfs below a root folder. Blocking; bounded; writes nothing."""

from __future__ import annotations

import re

from muster.agent.network.config import NetworkConfig
from muster.agent.network.counter_faults import wanted
from muster.agent.network.ports import PortReading, PortState, Snapshot
from muster.inventory.machine import Machine, numeric_order
from muster.inventory.readings import HOT_PLUGGED_DRIVERS
from muster.plain_text import plain

_NET = "sys/class/net"
_RDMA = "sys/class/infiniband"
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) *Gb/sec")
_REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+(vf|sf)[0-9]+")
_IFF_UP = 0x1
_ETHER = "1"
"""ARPHRD_ETHER in `type`."""
_STATISTICS = {"rx_crc_errors": "rx_crc_errors_phy"}
"""Statistics of network devices that are counters of the table under another name."""
MAX_PORTS = 128
MAX_UNKNOWN = 16
MAX_COUNT = 2**64 - 1


def read_ports(machine: Machine, config: NetworkConfig) -> Snapshot:
    """All ports that the configuration and their kind let in. Raises OSError when sysfs itself cannot be read."""
    names = machine.entries(_NET)
    unknown: list[str] = []
    default = _behind_default_route(machine)
    ports: list[PortReading] = []
    for device in numeric_order(machine.entries(_RDMA) if machine.exists(_RDMA) else []):
        if _is_watched_rdma(machine, config, device):
            ports += _rdma_ports(machine, config, device, default, unknown)
    for name in numeric_order(names):
        if _is_watched_net(machine, config, name, default):
            found = _net_port(machine, name, unknown)
            if found is not None:
                ports.append(found)
    if len(ports) > MAX_PORTS:
        unknown.append(f"{len(ports) - MAX_PORTS} ports beyond the first {MAX_PORTS}")
    try:
        addresses: frozenset[str] | None = frozenset(machine.entries("sys/bus/pci/devices"))
    except OSError:
        addresses = None
    return Snapshot(ports=tuple(ports[:MAX_PORTS]), pci_addresses=addresses, unknown=tuple(unknown[:MAX_UNKNOWN]))


def _chosen(config: NetworkConfig, name: str) -> bool | None:
    """What the configuration says of a device; None: its kind decides."""
    if config.exclude and re.fullmatch(config.exclude, name):
        return False
    return True if config.include and re.fullmatch(config.include, name) else None


def _is_watched_rdma(machine: Machine, config: NetworkConfig, device: str) -> bool:
    chosen = _chosen(config, device)
    if chosen is not None:
        return chosen
    # A virtual function belongs to whoever it is lent to; what has no PCI address is software.
    return bool(_pci(machine, f"{_RDMA}/{device}")) and not machine.exists(f"{_RDMA}/{device}/device/physfn")


def _is_watched_net(machine: Machine, config: NetworkConfig, name: str, default: tuple[str, ...]) -> bool:
    path = f"{_NET}/{name}"
    if not machine.exists(f"{path}/operstate") or machine.exists(f"{path}/device/infiniband"):
        # A file of the bonding driver, or the other face of an RDMA device, which tells more.
        return False
    chosen = _chosen(config, name)
    if chosen is not None:
        return chosen
    if not _pci(machine, path) or machine.exists(f"{path}/device/physfn") or name in default:
        return False
    if machine.exists(f"{path}/master") or machine.exists(f"{path}/wireless"):
        return False
    if _text(machine, f"{path}/type") != _ETHER or _REPRESENTOR.fullmatch(_text(machine, f"{path}/phys_port_name")):
        return False
    return _driver(machine, path) not in HOT_PLUGGED_DRIVERS


def _rdma_ports(
    machine: Machine, config: NetworkConfig, device: str, default: tuple[str, ...], unknown: list[str]
) -> list[PortReading]:
    path = f"{_RDMA}/{device}"
    try:
        numbers = [name for name in machine.entries(f"{path}/ports") if name.isascii() and name.isdigit()]
    except OSError as error:
        unknown.append(f"ports of {device}: {_why(error)}")
        return []
    netdevs = _entries(machine, f"{path}/device/net")
    found: list[PortReading] = []
    for number in numeric_order(numbers[:16]):
        port = f"{path}/ports/{number}"
        try:
            told = plain(f"{machine.read(f'{port}/state')}, {machine.read(f'{port}/phys_state')}", 80)
        except OSError as error:
            unknown.append(f"state of {device} port {number}: {_why(error)}")
            continue
        ethernet = _text(machine, f"{port}/link_layer") == "Ethernet"
        counters = _counters(machine, port, wanted(config.limits), unknown)
        for name in netdevs if ethernet else []:
            counters |= _statistics(machine, name)
        rate = _RATE.match(_text(machine, f"{port}/rate"))
        found.append(
            PortReading(
                device=plain(device, 64),
                port=int(number),
                state=_rdma_state(machine, told, netdevs if ethernet else []),
                told=told,
                rdma=True,
                management=any(name in default for name in netdevs),
                link_layer=plain(_text(machine, f"{port}/link_layer"), 32),
                hardware=_hardware(machine, path),
                pci=_pci(machine, path),
                numa_node=_number(machine, f"{path}/device/numa_node"),
                rate_gbps=float(rate[1]) if rate else None,
                losses=_losses(machine, port, netdevs),
                counters=counters,
            )
        )
    return found


def _rdma_state(machine: Machine, told: str, netdevs: list[str]) -> PortState:
    state, _, physical = told.partition(", ")
    if state.endswith("ACTIVE") and physical.endswith("LinkUp"):
        return PortState.UP
    if physical.endswith("Disabled") and not netdevs:
        return PortState.DISABLED
    # A RoCE port is also Disabled without a cable; the network device tells whether a person switched it off.
    switched_off = bool(netdevs) and all(not _is_administratively_up(machine, name) for name in netdevs)
    return PortState.DISABLED if switched_off else PortState.DOWN


def _losses(machine: Machine, port: str, netdevs: list[str]) -> int | None:
    """Losses of the link: of the port, or of its network device where the port does not count them."""
    counted = _number(machine, f"{port}/counters/link_downed")
    if counted:
        return counted
    of_netdevs = [losses for name in netdevs if (losses := _carrier_losses(machine, name)) is not None]
    return max(of_netdevs) if of_netdevs else counted


def _carrier_losses(machine: Machine, name: str) -> int | None:
    exact = _number(machine, f"{_NET}/{name}/carrier_down_count")
    if exact is not None:
        return exact
    changes = _number(machine, f"{_NET}/{name}/carrier_changes")
    return None if changes is None else changes // 2


def _net_port(machine: Machine, name: str, unknown: list[str]) -> PortReading | None:
    path = f"{_NET}/{name}"
    try:
        operstate = plain(machine.read(f"{path}/operstate"), 32)
    except OSError as error:
        unknown.append(f"state of {name}: {_why(error)}")
        return None
    carrier = _text(machine, f"{path}/carrier")
    up = operstate == "up" or (operstate == "unknown" and carrier == "1")
    down = PortState.DOWN if _is_administratively_up(machine, name) else PortState.DISABLED
    speed = _number(machine, f"{path}/speed")
    return PortReading(
        device=plain(name, 64),
        port=None,
        state=PortState.UP if up else down,
        told=f"operstate {operstate}",
        rdma=False,
        link_layer="Ethernet",
        hardware=_hardware(machine, path),
        pci=_pci(machine, path),
        numa_node=_number(machine, f"{path}/device/numa_node"),
        rate_gbps=speed / 1000 if speed is not None and speed > 0 else None,
        losses=_carrier_losses(machine, name),
        counters=_statistics(machine, name),
    )


def _statistics(machine: Machine, name: str) -> dict[str, int]:
    found = {of_table: _number(machine, f"{_NET}/{name}/statistics/{file}") for file, of_table in _STATISTICS.items()}
    return {counter: value for counter, value in found.items() if value is not None and value >= 0}


def _counters(machine: Machine, port: str, names: frozenset[str], unknown: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for folder in ("counters", "hw_counters"):
        for name in _entries(machine, f"{port}/{folder}"):
            if name not in names:
                continue
            try:
                text = machine.read(f"{port}/{folder}/{name}")
                value = int(text, 0)
            except FileNotFoundError:
                continue
            except OSError as error:
                if len(unknown) < MAX_UNKNOWN:
                    unknown.append(f"{port}/{folder}/{name}: {_why(error)}")
                continue
            except ValueError:
                value = -1
            if 0 <= value <= MAX_COUNT:
                found[name] = value
            elif len(unknown) < MAX_UNKNOWN:
                unknown.append(f"{port}/{folder}/{name} is no count")
    return found


def _behind_default_route(machine: Machine) -> tuple[str, ...]:
    """The network devices of the default routes, and those below them (bonds, bridges, VLANs)."""
    # The first process shows the node's own network; /proc/net is that of whoever reads, so of the agent's pod.
    table = _text(machine, "proc/1/net/route") or _text(machine, "proc/net/route")
    rows = [line.split() for line in table.splitlines()[1:]]
    found = sorted({row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"})
    for name in found:
        # The list grows while it is walked: what is below a device has devices below it.
        below = [
            entry.removeprefix("lower_") for entry in _entries(machine, f"{_NET}/{name}") if "lower_" in entry[:6]
        ]
        found += [other for other in below if other not in found and len(found) < 64]
    return tuple(found)


def _hardware(machine: Machine, path: str) -> str:
    board = _text(machine, f"{path}/board_id") or _text(machine, f"{path}/hca_type")
    vendor, model = _text(machine, f"{path}/device/vendor"), _text(machine, f"{path}/device/device")
    return plain(board or f"{vendor} {model}".strip(), 64)


def _pci(machine: Machine, path: str) -> str:
    try:
        name = machine.link_name(f"{path}/device")
    except OSError:
        return ""
    return name if _PCI.fullmatch(name) else ""


def _driver(machine: Machine, path: str) -> str:
    try:
        return machine.link_name(f"{path}/device/driver")
    except OSError:
        return ""


def _is_administratively_up(machine: Machine, name: str) -> bool:
    flags = _number(machine, f"{_NET}/{name}/flags")
    return flags is None or bool(flags & _IFF_UP)


def _number(machine: Machine, path: str) -> int | None:
    try:
        value = int(_text(machine, path), 0)
    except ValueError:
        return None
    return value if -1 <= value <= MAX_COUNT else None


def _text(machine: Machine, path: str) -> str:
    """The text of a file that may be missing; empty when it cannot be read."""
    try:
        return machine.read(path)
    except OSError:
        return ""


def _entries(machine: Machine, path: str) -> list[str]:
    try:
        return machine.entries(path)
    except OSError:
        return []


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
