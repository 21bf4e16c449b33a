"""Which transport NCCL really used between and inside nodes, as its own log tells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster.read.collectives.lines import nccl_line

MAX_NAMES = 64
_CHANNEL = re.compile(
    r"Channel \d{1,5}(?:/\d{1,5})? ?: (?P<from>\d{1,7})\[[0-9a-fx]{1,16}\] -> (?P<to>\d{1,7})\[[0-9a-fx]{1,16}\]"
    r"(?: \[(?P<side>send|receive)\])? via (?P<via>[\w. /()-]{2,80})"
)
_NETWORK = re.compile(r"Using network (?P<name>[\w. -]{1,40})")
_PROVIDER = re.compile(r"[Ss]elected [Pp]rovider is (?P<name>[\w;-]{1,40})")
_ADAPTER = re.compile(r"\[\d{1,3}\](?P<device>[\w.-]{1,64}):(?P<port>\d{1,3})/(?P<layer>IB|RoCE)\b", re.I)
_MULTICAST = ("NVLS multicast support is available", "Connected NVLS tree", "NVLS comm ")


@dataclass
class Transports:
    """`between`: name of a transport between nodes -> number of channel lines. `inside`: the same within a node."""

    between: Counter[str] = field(default_factory=Counter)
    inside: Counter[str] = field(default_factory=Counter)
    networks: list[str] = field(default_factory=list)
    provider: str | None = None
    adapters: dict[str, str] = field(default_factory=dict)
    """Device -> link layer (`IB`, `RoCE`)."""
    direct: int = 0
    """Channel lines between nodes that reach GPU memory directly."""
    multicast: bool = False
    cut: int = 0

    def take(self, message: str) -> bool:
        """Learn from one message (without prefix). True when it was about transports."""
        if " via " in message and "Channel" in message:
            return self._channel(message)
        if message.startswith("Using network "):
            found = _NETWORK.match(message)
            if (
                found
                and (name := _network_name(found["name"])) not in self.networks
                and len(self.networks) < MAX_NAMES
            ):
                self.networks.append(name)
            return found is not None
        if "rovider is" in message and (found := _PROVIDER.search(message)):
            self.provider = found["name"].lower()
            return True
        if "NET/IB" in message and "Using" in message:
            for found in _ADAPTER.finditer(message):
                if len(self.adapters) < MAX_NAMES:
                    self.adapters[found["device"]] = "RoCE" if found["layer"].lower() == "roce" else "IB"
            return True
        if any(words in message for words in _MULTICAST):
            self.multicast = True
        return False

    def _channel(self, message: str) -> bool:
        found = _CHANNEL.search(message)
        if found is None:
            return False
        name, direct = _via(found["via"])
        if name.startswith("NET/") or name == "P2P/MNNVL":
            self._count(self.between, name)
            self.direct += direct
        else:
            self._count(self.inside, name)
        return True

    def _count(self, counter: Counter[str], name: str) -> None:
        if name in counter or len(counter) < MAX_NAMES:
            counter[name] += 1

    def used(self) -> str:
        """Transports between nodes, sorted and joined by a plus sign; empty when the log does not tell.

        A log that lists channels but none between nodes tells of one node alone. Without any channel line the network
        that NCCL says it uses is the best there is.
        """
        names = sorted(self.between)
        if not names and not self.inside:
            names = [f"NET/{name}" for name in sorted(self.networks)]
        named = [self._with_provider(name) for name in names]
        return "+".join(dict.fromkeys(named))

    def _with_provider(self, name: str) -> str:
        if "ibfabric" in name and self.provider:
            return f"{name}/{self.provider}"
        return name

    @property
    def link_layer(self) -> str | None:
        """`IB` or `RoCE` when all adapters agree."""
        layers = set(self.adapters.values())
        return layers.pop() if len(layers) == 1 else None


def _network_name(name: str) -> str:
    name = name.strip()
    return "IB" if re.fullmatch(r"IB(?:ext)?(?:_v\d{1,2})?", name) else name


def _via(text: str) -> tuple[str, bool]:
    """(name, whether GPU memory is reached directly): `NET/IB/3/GDRDMA` gives (`NET/IB`, True)."""
    parts = [part.strip() for part in text.split("/")]
    direct = any(part.startswith("GDRDMA") for part in parts)
    first = parts[0].split()[0] if parts[0] else ""
    if first in ("NET", "COLLNET", "COLLNETDIRECT", "COLLNETCHAIN"):
        name = _network_name(parts[1]) if len(parts) > 1 else ""
        return f"NET/{name}", direct
    if first == "P2P":
        how = parts[1].split("(")[0].split()[0] if len(parts) > 1 and parts[1] else ""
        return (f"P2P/{how}" if how else "P2P"), direct
    return first, direct


def transport_used(lines: Iterable[str]) -> str:
    """The transport between nodes that a log tells, as NCCL names it; empty when it does not.

    >>> transport_used(["node-1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2/GDRDMA"])
    'NET/IB'
    """
    transports = Transports()
    for text in lines:
        line = nccl_line(text)
        if line is not None and line.level == "INFO":
            transports.take(line.message)
    return transports.used()


_SOCKETS = frozenset({"socket", "tcp"})
_WORDS: Mapping[str, frozenset[str]] = {
    "efa": frozenset({"efa", "ofi", "libfabric"}),
    "ib": frozenset({"ib", "infiniband"}),
    "infiniband": frozenset({"ib", "infiniband"}),
    "roce": frozenset({"roce", "ib", "gib"}),
    "gib": frozenset({"gib"}),
    "tcpxo": frozenset({"fastrak", "tcpxo"}),
    "tcpx": frozenset({"gpudirecttcpx", "gpudirecttcpx_v7", "tcpx"}),
    "mnnvl": frozenset({"mnnvl"}),
    "socket": _SOCKETS,
    "tcp": _SOCKETS,
}
"""Expected transport -> words with which NCCL and its plugins name it. RoCE runs through NCCL's IB transport."""
KNOWN = tuple(sorted(_WORDS))
"""What may be expected by a name of its own."""


def is_expected(expected: str, used: str) -> bool:
    """Whether the used transport is the expected one. Sockets beside it are a fallback, unless sockets were expected.

    >>> is_expected("EFA", "NET/AWS Libfabric/efa"), is_expected("IB", "NET/IB+NET/Socket")
    (True, False)
    """
    words = set(re.split(r"[+/ ;-]", used.casefold()))
    key = expected.casefold().removeprefix("net/").removeprefix("gpudirect-")
    wanted = _WORDS.get(key, frozenset({key}))
    fell_back = bool(words & _SOCKETS) and not wanted & _SOCKETS
    return bool(words & wanted) and not fell_back
