"""What the network monitor remembers of each port, also over a restart of the agent."""

from __future__ import annotations

from datetime import datetime

import msgspec

from muster.agent.network.counters import Track, ends
from muster.resources.base import Model

FORMAT = 1
MAX_PORTS = 256
MAX_CHARACTERS = 200_000
"""Beyond this the baselines of counters are left out: one interval of rates is lost, and nothing else."""


class PortMemory(Model, frozen=True, kw_only=True):
    """One port so far. Everything but `up_before` and `told` is of the present boot."""

    device: str
    port: int | None = None
    pci: str = ""
    fabric: bool = False
    up: bool = False
    """It was up in this boot."""
    up_before: bool = False
    """It was up in an earlier boot."""
    told: bool = False
    """It was told to be down and not to be well since."""
    missing: bool = False
    """The last look did not show it: its driver is being replaced, or it was lent to a pod."""
    back_at: datetime | None = None
    """It came back then and was not up since."""
    best_rate_gbps: float = 0.0
    down_looks: int = 0
    gone_looks: int = 0
    """So many looks in a row its address was not on the bus."""
    slow_looks: int = 0
    losses: int | None = None
    flaps: Track = ()
    """When links were lost (`at_s`), and how many (`value`)."""
    tracks: dict[str, Track] = {}
    """By counter and window."""
    alarms: dict[str, int] = {}
    """Code of each counter fault that is on -> calm looks so far."""


class NetworkMemory(Model, frozen=True, kw_only=True):
    format: int = FORMAT
    boot_id: str = ""
    ports: dict[str, PortMemory] = {}


def encode(memory: NetworkMemory) -> str:
    """As JSON text of at most MAX_CHARACTERS; counters that never counted are left out."""
    slim = {
        key: msgspec.structs.replace(
            port, tracks={name: ends(track) for name, track in port.tracks.items() if track and track[-1].value}
        )
        for key, port in memory.ports.items()
    }
    text = msgspec.json.encode(msgspec.structs.replace(memory, ports=slim)).decode()
    if len(text) > MAX_CHARACTERS:
        bare = {key: msgspec.structs.replace(port, tracks={}, flaps=()) for key, port in memory.ports.items()}
        text = msgspec.json.encode(msgspec.structs.replace(memory, ports=bare)).decode()
    return text


def decode(text: str) -> NetworkMemory:
    """What `encode` wrote; an empty memory for anything else."""
    try:
        memory = msgspec.json.decode(text, type=NetworkMemory)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return NetworkMemory()
    return memory if memory.format == FORMAT and len(memory.ports) <= MAX_PORTS else NetworkMemory()


def in_boot(memory: NetworkMemory, boot_id: str) -> NetworkMemory:
    """The memory for the boot `boot_id`: of an older one only remains which ports were up."""
    if memory.boot_id == boot_id:
        return memory
    ports = {
        key: PortMemory(
            device=p.device, port=p.port, pci=p.pci, fabric=p.fabric, up_before=p.up or p.up_before, told=p.told
        )
        for key, p in memory.ports.items()
    }
    return NetworkMemory(boot_id=boot_id, ports=ports)
