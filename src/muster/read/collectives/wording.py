"""What one line of NCCL says. Wordings of NCCL 2.9 to 2.31 and of the plugins that log through it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.read.collectives import kinds
from muster.read.collectives.faults import Kind
from muster.read.collectives.lines import NcclLine


@dataclass(frozen=True, slots=True)
class Event:
    """`subject`: `node`, `link`, `gpu` or `process`; a link's other end is `peer`. `listed` collects over lines."""

    kind: Kind
    subject: str
    peer: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    listed: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    port: int | None = None
    recovered: bool = False
    """Takes the fault of this kind, node and device back."""
    whole: bool = True
    """False: the line breaks off before what it should say."""


_PEER = re.compile(r"(?P<peer>[^\s<>]{1,255})<(?P<port>\d{1,5})>")
_COMPLETION = re.compile(r"Got completion (?:from peer|with|for|on)")
_STATUS = re.compile(r"\b(?:status|error)[= ](?:IBV_\w{1,40}\()?(\d{1,4})\b")
_VENDOR = re.compile(r"\bvendor[ _]err(?:or)?[= :]{1,2}(\d{1,10})\b")
_SIDE = re.compile(r"\((Send|Recv|Flush)\)|req_type=(\w{1,10})")
_LOCAL = re.compile(r"localGid(?:: | )?(?P<gid>[0-9A-Fa-f:.]{2,45})")
_REMOTE = re.compile(r"remoteGids?(?:: | )?(?P<gid>[0-9A-Fa-f:.]{2,45})")
_HCA = re.compile(r"\bhca (?P<hca>[\w.-]{1,64})")


def event_of(line: NcclLine, cut: bool = False) -> Event | None:
    """What the line reports, None when it reports nothing. `cut`: the text ends within the line."""
    text = line.message
    if line.level in ("INFO", "TRACE"):
        return _from_info(text)
    for mark, reader in _READERS:
        if mark in text:
            event = reader(line, text, cut)
            if event is not None:
                return event
    if any(mark in text for mark in CONSEQUENCES):
        return None
    return _unknown(line, text)


CONSEQUENCES = (
    "[Service thread]",
    "[Proxy Service",
    "Proxy Call to rank",
    "Socket recv failed while polling",
    "Failed to execute operation",
    "NCCL_",
    "NUMA auto balancing",
    "Could not receive type",
    "operation failed on the proxy",
)
"""Words of lines that pass on an error told before, or that are advice on the environment."""


def _unknown(line: NcclLine, text: str) -> Event | None:
    if not text:
        return None
    return Event(kinds.WARNING, "process", details={"file": line.file, "message": text[:200]})


def _completion(line: NcclLine, text: str, cut: bool) -> Event | None:  # noqa: ARG001 - the signature of a reader
    found = _COMPLETION.search(text)
    if found is None:
        return None
    peer = _PEER.search(text, found.start())
    status = _field(_STATUS, text, found.start(), cut)
    number = int(status) if status is not None else None
    name, kind = kinds.STATUS.get(number or 0, (None, kinds.COMPLETION_ERROR))
    vendor = _field(_VENDOR, text, found.start(), cut)
    side = _SIDE.search(text, found.start())
    local, remote = _gid(_LOCAL, text, cut), _gid(_REMOTE, text, cut)
    hca = _HCA.search(text, found.start())
    details: dict[str, Any] = {"status": number, "vendor_error": int(vendor) if vendor is not None else None}
    if name:
        details["status_name"] = name
    if side:
        details["side"] = (side[1] or side[2]).lower()
    if peer:
        details["peer_port"] = int(peer["port"])
    listed: dict[str, Any] = {}
    if local or remote:
        listed["gid_pairs"] = {"local": local, "remote": remote}
    if hca and not (cut and hca.end() == len(text)):
        listed["devices"] = hca["hca"]
    subject = "node" if kind is kinds.LOCAL_PROTECTION else "link"
    # The last field of every generation is the vendor's code, its side, or an address.
    whole = not cut or remote is not None or (vendor is not None and text.endswith(")"))
    return Event(kind, subject, peer=peer["peer"] if peer else None, details=details, listed=listed, whole=whole)


def _field(pattern: re.Pattern[str], text: str, start: int, cut: bool) -> str | None:
    """The first group; None when it touches the place where the text breaks off."""
    found = pattern.search(text, start)
    if found is None or (cut and found.end() == len(text)):
        return None
    return found[1]


def _gid(pattern: re.Pattern[str], text: str, cut: bool) -> str | None:
    found = pattern.search(text)
    if found is None:
        return None
    try:
        ipaddress.IPv6Address(found["gid"])
    except ValueError:
        return None
    # Eight groups written out may still lack their last digits.
    if cut and found.end() == len(text) and len(found["gid"].rsplit(":", 1)[-1]) < 4:
        return None
    return found["gid"]


_ASYNC = re.compile(
    r"(?:NET/IB[\w]{0,8} ?: ?)?(?:(?P<device>[\w.-]{1,64}):(?P<port>\d{1,3}) )?"
    r"(?:[Gg]ot (?:non-fatal |fatal )?async event|async fatal event)[^:]{0,80}: ?(?P<event>[\w /-]{2,80})"
)
_LINK_DOWN = re.compile(
    r"NET/IB ?: ?(?:(?P<device>[\w.-]{1,64}):(?P<port>\d{1,3}) )?.{0,60}\blink (?:is )?down", re.I
)
_EVENTS: tuple[tuple[str, Kind], ...] = (
    ("port error", kinds.PORT_ERROR),
    ("port down", kinds.PORT_ERROR),
    ("link down", kinds.PORT_ERROR),
    ("local catastrophic error", kinds.DEVICE_FATAL),
    ("device fatal", kinds.DEVICE_FATAL),
    ("gid table change", kinds.GID_CHANGE),
    ("gid change", kinds.GID_CHANGE),
    ("lid change", kinds.FABRIC_EVENT),
    ("p_key change", kinds.FABRIC_EVENT),
    ("pkey change", kinds.FABRIC_EVENT),
    ("sm change", kinds.FABRIC_EVENT),
    ("client reregistration", kinds.FABRIC_EVENT),
    ("cq error", kinds.QUEUE_ERROR),
    ("work queue", kinds.QUEUE_ERROR),
    ("srq catastrophic", kinds.QUEUE_ERROR),
    ("path migration", kinds.QUEUE_ERROR),
    ("qp ", kinds.QUEUE_ERROR),
)
_HARMLESS_EVENTS = ("communication established", "last wqe", "srq limit", "path migrated", "speed change")


def _async(line: NcclLine, text: str, cut: bool) -> Event | None:  # noqa: ARG001 - the signature of a reader
    found = _ASYNC.search(text)
    if found is None:
        return None
    said = found["event"].strip().lower()
    device, port = found["device"], int(found["port"]) if found["port"] else None
    if said.startswith("port active"):
        return Event(kinds.PORT_ERROR, "node", device=device, port=port, recovered=True)
    kind = next((kind for words, kind in _EVENTS if words in said), None)
    if kind is None:
        if any(words in said for words in _HARMLESS_EVENTS):
            return Event(kinds.FABRIC_EVENT, "node", device=device, port=port, details={"event": said})
        if cut and said:
            return Event(kinds.WARNING, "node", details={"event": said}, whole=False)
        return Event(kinds.WARNING, "node", device=device, port=port, details={"event": said})
    return Event(kind, "node", device=device, port=port, details={"event": said})


def _link_down(line: NcclLine, text: str, cut: bool) -> Event | None:  # noqa: ARG001 - the signature of a reader
    found = _LINK_DOWN.search(text)
    if found is None:
        return None
    port = int(found["port"]) if found["port"] else None
    return Event(kinds.PORT_ERROR, "node", device=found["device"], port=port, details={"event": "link down"})


_ERRNO: tuple[tuple[str, Kind], ...] = (
    ("Connection refused", kinds.SOCKET_REFUSED),
    ("Connection reset by peer", kinds.SOCKET_RESET),
    ("Broken pipe", kinds.SOCKET_RESET),
    ("Connection timed out", kinds.SOCKET_TIMEOUT),
    ("No route to host", kinds.SOCKET_UNREACHABLE),
    ("Network is unreachable", kinds.SOCKET_UNREACHABLE),
    ("losed by remote peer", kinds.PEER_CLOSED),
    ("closed the connection", kinds.PEER_CLOSED),
)
_VERBS = re.compile(
    r"Call to (?P<call>ibv_\w{1,40}) failed"
    r"(?: with(?: error)? (?:(?P<errno>\d{1,4}) )?(?P<text>[A-Za-z][\w .'-]{0,80}))?"
)
_ON_DEVICE = re.compile(r"on dev (?P<device>[\w.-]{1,64})(?::(?P<port>\d{1,3}))?")
_LOCAL_REMOTE_GID = re.compile(r"(local|remote) GID(?: index \d{1,4}, \1 GID)? ([0-9A-Fa-f:.]{2,45})")


def _socket(line: NcclLine, text: str, cut: bool) -> Event | None:
    if "ibv_" in text:
        return _verbs(line, text, cut)
    if any(mark in text for mark in ("[Service thread]", "[Proxy Service")):
        return None
    kind = next((kind for words, kind in _ERRNO if words in text), None)
    if kind is None:
        return None
    peer = _PEER.search(text)
    details = {"peer_port": int(peer["port"])} if peer else {}
    return Event(kind, "link" if peer else "process", peer=peer["peer"] if peer else None, details=details)


def _verbs(line: NcclLine, text: str, cut: bool) -> Event | None:  # noqa: ARG001 - the signature of a reader
    found = _VERBS.search(text)
    if found is None:
        return None
    details: dict[str, Any] = {"call": found["call"]}
    if found["errno"]:
        details["errno"] = int(found["errno"])
    if found["text"]:
        details["error"] = found["text"].strip()
    on = _ON_DEVICE.search(text)
    gids: dict[str, str] = dict(_LOCAL_REMOTE_GID.findall(text))
    listed = {"gid_pairs": {"local": gids.get("local"), "remote": gids.get("remote")}} if gids else {}
    return Event(
        kinds.VERBS_CALL,
        "node",
        device=on["device"] if on else None,
        port=int(on["port"]) if on and on["port"] else None,
        details=details,
        listed=listed,
    )


OUT_OF_MEMORY = 2
"""`cudaErrorMemoryAllocation`."""
SYSTEM_NOT_READY = 802
"""`cudaErrorSystemNotReady`."""
_CUDA_ERROR = re.compile(r"C(?:uda|UDA) (?:failure|error) (?:(?P<number>\d{1,5}) ?)?(?:'(?P<text>[^']{1,160})'?)?")
_OF_SIZE = re.compile(r"of size (?P<size>\d{1,15})\b")
_HARDWARE_WORDS = ("uncorrectable", "ECC error", "NVLink error", "hardware", "GPU has fallen", "device unavailable")


def _cuda(line: NcclLine, text: str, cut: bool) -> Event | None:
    found = _CUDA_ERROR.search(text)
    multicast = "ulticast" in text or "NVLS" in text or (line.file or "").rpartition("/")[2].startswith("nvls")
    if found is None and not multicast:
        return None
    details: dict[str, Any] = {}
    if found is not None:
        number = found["number"] if not (cut and found.end() == len(text) and found["text"] is None) else None
        details["cuda_error"] = int(number) if number else None
        if found["text"]:
            details["cuda_error_text"] = found["text"]
    if multicast and details.get("cuda_error") == OUT_OF_MEMORY:
        return Event(kinds.NVLS_MEMORY, "process", details=details)
    if multicast and ("ind" in text and "Failed" in text):
        size = _OF_SIZE.search(text)
        if size and not (cut and size.end() == len(text)):
            details["size_bytes"] = int(size["size"])
        return Event(kinds.NVLS_BIND, "node", details=details)
    if multicast:
        return Event(kinds.NVLS_SETUP, "node", details=details)
    if details.get("cuda_error") == SYSTEM_NOT_READY or "system not yet initialized" in text:
        return Event(kinds.CUDA_NOT_READY, "node", details=details)
    if any(words in text for words in _HARDWARE_WORDS):
        return Event(kinds.CUDA_HARDWARE, "gpu", details=details)
    return Event(kinds.CUDA_FAILURE, "process", details=details)


def _plain(kind: Kind, subject: str = "node") -> Callable[[NcclLine, str, bool], Event | None]:
    def read(line: NcclLine, text: str, cut: bool) -> Event | None:  # noqa: ARG001 - the signature of a reader
        return Event(kind, subject, details={"message": text[:200]})

    return read


_OFI = re.compile(r"(?:Request|request)\b.{0,200}\b(?:completed with|failed).{0,40}error", re.I)


def _ofi(line: NcclLine, text: str, cut: bool) -> Event | None:  # noqa: ARG001 - the signature of a reader
    if _OFI.search(text) is None:
        return None
    return Event(kinds.FABRIC_LIBRARY, "node", details={"message": text[:200]})


_READERS: tuple[tuple[str, Callable[[NcclLine, str, bool], Event | None]], ...] = (
    ("Got completion", _completion),
    ("async event", _async),
    ("async fatal event", _async),
    ("ulticast", _cuda),
    ("NVLS", _cuda),
    ("Duplicate GPU", _plain(kinds.DUPLICATE_GPU)),
    ("mismatch in rank count", _plain(kinds.RANK_COUNT)),
    ("has already checked in", _plain(kinds.RANK_COUNT)),
    ("shared memory", _plain(kinds.SHM_FULL)),
    ("/dev/shm", _plain(kinds.SHM_FULL)),  # noqa: S108 - a word in a log
    ("no socket interface", _plain(kinds.NO_INTERFACE)),
    ("No socket interface", _plain(kinds.NO_INTERFACE)),
    ("NET/OFI", _ofi),
    ("onnect", _socket),
    ("Broken pipe", _socket),
    ("No route to host", _socket),
    ("nreachable", _socket),
    ("ibv_", _verbs),
    ("Cuda failure", _cuda),
    ("CUDA error", _cuda),
    ("ink down", _link_down),
    ("ink is down", _link_down),
)
"""A word that a line must hold, and what reads it; the first that understands the line wins."""

_LOAD_ERROR = re.compile(
    r"(?:Plugin load|dlopen|load(?:ing)?)\b.{0,120}(?:returned|fail\w*|error).{0,200}"
    r"(?:cannot open shared object file|undefined symbol|version `)",
    re.I,
)
_NO_SUCH_PLUGIN = re.compile(r"(?:libnccl-(?:net|tuner|profiler|gin)[\w-]{0,60}\.so): cannot open shared object")
_GDR_OFF = re.compile(r"GPU Direct RDMA (?:\([\w-]{1,20}\) )?[Dd]isabled for (?:HCA|GPU)")
_HCA_NAME = re.compile(r"HCA (?:\d{1,3} ?)?'?(?P<device>[A-Za-z][\w.-]{0,63})")


def _from_info(text: str) -> Event | None:
    """The few informative lines that tell of a defect in the set-up."""
    if "RDMA" in text and _GDR_OFF.search(text):
        device = _HCA_NAME.search(text)
        listed = {"devices": device["device"]} if device else {}
        return Event(kinds.GDR_DISABLED, "node", listed=listed)
    if "lugin" in text and _LOAD_ERROR.search(text) and not _NO_SUCH_PLUGIN.search(text):
        return Event(kinds.PLUGIN_LOAD, "node", details={"message": text[:200]})
    if "async event" in text:
        return _async(NcclLine("INFO", text), text, False)
    return None
