"""Messages of node conditions that carry a DCGM error: `ErrorCode:DCGM_FR_... GPU:0 PCI:... text ...;`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from muster.read import pci
from muster.read.dcgm_health.health import Trouble
from muster.read.smi.document import Line

SIGN = re.compile(r"ErrorCode:\s{0,2}DCGM_FR_[A-Z0-9_]{2,60}")
_ENTRY = re.compile(
    r"ErrorCode:\s{0,2}(?P<code>DCGM_FR_[A-Z0-9_]{2,60})(?P<rest>[^;]{0,1000})(?:;|$)",
)
_GPU = re.compile(r"\bGPU:\s{0,2}(?P<index>\d{1,4})\b")
_PCI = re.compile(rf"\bPCI:\s{{0,2}}(?P<pci>{pci.PATTERN})")
_UUID = re.compile(r"\bGPU_UUID:\s{0,2}(?P<uuid>GPU-[0-9A-Za-z-]{1,80})")
_ACTION = re.compile(r"Recommended Action\s{0,2}[=:]\s{0,2}[A-Z_]{2,40}")
_MAX = 4096


def find(lines: Sequence[Line]) -> Iterator[tuple[str, Trouble, dict[str, str]]]:
    """(error code, what is told, further identity of the GPU) of each message."""
    count = 0
    for line in lines:
        for match in _ENTRY.finditer(line.text):
            count += 1
            if count > _MAX:
                return
            rest = match["rest"]
            gpu, address, uuid = _GPU.search(rest), _PCI.search(rest), _UUID.search(rest)
            text = rest
            for pattern in (_GPU, _PCI, _UUID, _ACTION):
                text = pattern.sub("", text)
            identity = {}
            if address is not None:
                identity["pci"] = pci.normalise(address["pci"]) or ""
            if uuid is not None:
                identity["uuid"] = uuid["uuid"]
            index = int(gpu["index"]) if gpu is not None else None
            system = "NVLINK system" if "NVLINK" in match["code"] or "IMEX" in match["code"] else "DCGM"
            yield match["code"], Trouble("GPU", index, system, "Failure", " ".join(text.split()), [line]), identity
