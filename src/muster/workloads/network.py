"""Which network the collectives may use, and which one they did use."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from muster.workloads.params import Params
from muster.workloads.rank import RankFailure

LOG_LIMIT_BYTES = 8 * 1024 * 1024
"""So much of NCCL's log is read. It names every channel while it connects, in the first part."""
INFINIBAND = Path("/sys/class/infiniband")

_CHANNEL = re.compile(r"NCCL INFO Channel \d+(?:/\d+)? ?: .{1,120}? via ([A-Za-z0-9_]+)(?:/([A-Za-z0-9_. ]+))?")
_ADAPTER = re.compile(r"\[\d{1,3}\][\w.-]{1,64}:\d{1,3}/(IB|RoCE)\b")
_NETWORK = re.compile(r"NCCL INFO Using network ([A-Za-z0-9_. -]{1,40})")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([A-Za-z0-9_-]{1,40})")
_NODES = re.compile(r"\bnNodes (\d{1,6})\b")
_VERSION = re.compile(r"NCCL version ([0-9][0-9.]{0,20})")
_NVLS = re.compile(r"NCCL INFO (?:NVLS comm 0x|Connected NVLS tree)")
_PROVIDERS = {"efa": "EFA"}


@dataclass(frozen=True)
class NcclLog:
    """What NCCL's own log says. Empty words: the log does not say."""

    between_nodes: str = ""
    """`IB`, `RoCE`, `EFA`, `Socket`, `MNNVL`, or the name of another network plugin as the log has it."""
    inside_node: str = ""
    """`P2P`, `SHM` or `NVLS`."""
    channels: tuple[tuple[str, int], ...] = ()
    """How many channels went which way (`NET/IB`, `P2P/CUMEM`), by name."""
    version: str = ""

    def transport(self, nodes: int) -> str:
        """What carried the traffic between nodes, or inside the only one. A rank with neighbours on its own node
        alone has nothing to say of the network between several nodes."""
        return self.between_nodes if nodes > 1 else self.inside_node or self.between_nodes


def is_transport(wanted: str, used: str) -> bool:
    """Whether all that was used is what was wanted, whatever the case of the letters."""
    return {part.casefold() for part in used.split("+")} == {wanted.casefold()}


def read_nccl_log(text: str) -> NcclLog:
    """Pure. The log has `NCCL_DEBUG=INFO` with the subsystems INIT, NET, P2P, SHM and NVLS."""
    ways: Counter[str] = Counter()
    for match in _CHANNEL.finditer(text):
        # What follows the way on the line (`comm 0x55 nRanks 16`) is no part of its name.
        detail = (match.group(2) or "").split(" comm ")[0].strip()
        ways["/".join(filter(None, (match.group(1), detail)))[:40]] += 1
    version = _VERSION.search(text)
    return NcclLog(
        between_nodes=_between_nodes(text, ways),
        inside_node=_inside_node(text, ways),
        channels=tuple(sorted(ways.items())),
        version=version.group(1).rstrip(".") if version else "",
    )


def _between_nodes(text: str, ways: Mapping[str, int]) -> str:
    """Several networks are joined by a plus sign: one channel over sockets holds up all others."""
    networks = {way.split("/")[1] for way in ways if way.startswith("NET/") and way.count("/")}
    if not ways and any(int(found) > 1 for found in _NODES.findall(text)):
        # Some versions list no channels: the network that NCCL chose is the best there is.
        networks = {found.strip() for found in _NETWORK.findall(text)}
    names = {_named(network, text) for network in networks}
    if any(way.startswith("P2P/MNNVL") for way in ways):
        names.add("MNNVL")
    return "+".join(sorted(names))


def _named(network: str, text: str) -> str:
    """The name of a network as people say it; that of a plugin as it stands in the log."""
    if re.fullmatch(r"IB(?:ext)?(?:_v\d{1,2})?", network):
        layers = set(_ADAPTER.findall(text))
        return "RoCE" if layers == {"RoCE"} else "IB"
    if "libfabric" in network.lower() or network == "OFI":
        provider = _PROVIDER.search(text)
        return network if provider is None else _PROVIDERS.get(provider.group(1).lower(), provider.group(1).lower())
    return network


def _inside_node(text: str, ways: Mapping[str, int]) -> str:
    if _NVLS.search(text):
        return "NVLS"
    for kind in ("SHM", "P2P"):
        if any(way.split("/")[0] == kind and not way.startswith("P2P/MNNVL") for way in ways):
            return kind
    return ""


def log_to_file(environ: MutableMapping[str, str]) -> Path | None:
    """Has NCCL of this process log to a file of its own, and gives that file. None when the user's environment asks
    for a log elsewhere: what the user sets wins."""
    if environ.get("NCCL_DEBUG_FILE"):
        return None
    handle, name = tempfile.mkstemp(prefix="nccl-", suffix=".log")
    os.close(handle)
    environ.setdefault("NCCL_DEBUG", "INFO")
    environ.setdefault("NCCL_DEBUG_SUBSYS", "INIT,NET,P2P,SHM,NVLS")
    environ["NCCL_DEBUG_FILE"] = name
    return Path(name)


def taken_from(path: Path | None) -> NcclLog:
    """Reads the log and removes it."""
    if path is None:
        return NcclLog()
    try:
        with path.open("rb") as file:
            text = file.read(LOG_LIMIT_BYTES).decode("utf-8", "replace")
        path.unlink()
    except OSError:
        return NcclLog()
    return read_nccl_log(text)


def choose(params: Params, environ: MutableMapping[str, str], *, device: str, root: Path = INFINIBAND) -> None:
    """Sets NCCL's environment for `algo` (ring or tree), `mnnvl` (false: no NVLink between nodes) and `rails` (only
    these NICs, counted from 0 in the order of their names). On CPUs there is nothing to choose from."""
    algo = params.text("algo", "", among=("", "ring", "tree"))
    mnnvl = params.flag("mnnvl", True)
    rails = params.wholes("rails")
    if device != "cuda":
        return
    if algo:
        environ.setdefault("NCCL_ALGO", algo.capitalize())
    if not mnnvl:
        environ.setdefault("NCCL_MNNVL_ENABLE", "0")
    if rails:
        cards = rdma_cards(root)
        if any(card.startswith(("rdmap", "efa")) for card in cards):
            raise RankFailure("harness", "single rails cannot be chosen with EFA: its plugin uses all NICs")
        if max(rails) >= len(cards):
            raise RankFailure("hardware", f"rail {max(rails)} has no NIC: active are {', '.join(cards) or 'none'}")
        # The equal sign asks for exact names: mlx5_1 would mean mlx5_10 too.
        environ.setdefault("NCCL_IB_HCA", "=" + ",".join(cards[rail] for rail in rails))


def rdma_cards(root: Path = INFINIBAND) -> list[str]:
    """RDMA devices with at least one active port, mlx5_2 before mlx5_10."""
    found = []
    for card in sorted(
        root.glob("*"),
        key=lambda path: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)],
    ):
        states = [port.read_text(errors="replace") for port in sorted(card.glob("ports/*/state"))]
        if any("ACTIVE" in state for state in states):
            found.append(card.name)
    return found
