"""Lines by which `nvidia-smi` says that it cannot do its work, wherever they stand in an output."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from muster.read.smi.document import Line, Message, Trouble, cell

_HANDLE = re.compile(
    r"Unable to determine the device handle for (?:gpu|GPU)\s{0,2}"
    r"(?:(?P<index>\d{1,3})(?::\s{1,4}|(?=:?\s)))?(?P<address>[0-9A-Fa-f]{1,8}:[0-9A-Fa-f:.]{4,12})?:?\s{0,4}(?P<why>.{0,200})",
    re.IGNORECASE,
)
_INFOROM = re.compile(
    r"infoROM is corrupted at (?:gpu|GPU)\s{0,2}(?P<address>[0-9A-Fa-f]{1,8}:[0-9A-Fa-f:.]{4,12})", re.IGNORECASE
)
_NO_TOOL = re.compile(
    r"nvidia-smi['\"]?: (?:command )?not found|nvidia-smi['\"]?: No such file"
    r"|\"nvidia-smi\": executable file not found",
    re.IGNORECASE,
)
_NO_DEVICES = re.compile(r"No devices (?:were )?found", re.IGNORECASE)
_ENDINGS: tuple[tuple[Trouble, re.Pattern[str]], ...] = (
    (Trouble.MISMATCH, re.compile(r"Driver/library version mismatch", re.IGNORECASE)),
    (Trouble.NO_DRIVER, re.compile(r"couldn't communicate with the NVIDIA driver|Driver Not Loaded", re.IGNORECASE)),
    (
        Trouble.NO_LIBRARY,
        re.compile(r"couldn't find lib\S{0,40}nvidia-ml|NVML Shared Library Not Found", re.IGNORECASE),
    ),
    (
        Trouble.NVML_BLOCKED,
        re.compile(r"Failed to initialize NVML: (?:Insufficient Permissions|GPU access blocked)", re.IGNORECASE),
    ),
    (Trouble.NVML_UNKNOWN, re.compile(r"Failed to initialize NVML: ", re.IGNORECASE)),
)
SIGNS = (
    "unable to determine the device handle",
    "failed to initialize nvml",
    "nvidia-smi has failed",
    "couldn't find lib",
    "no devices were found",
    "no devices found",
    "inforom is corrupted",
    "nvidia-smi: command not found",
    "nvidia-smi: not found",
    "nvidia-smi: no such file",
    "nvidia-smi': no such file",
    '"nvidia-smi": executable file not found',
)
"""In lower case: one of these in a text makes it an output of the tool."""


def _why(why: str) -> Trouble:
    """What keeps the tool from a GPU, from the words behind its address."""
    if "insufficiently powered" in why or "insufficient external power" in why:
        return Trouble.POWER_CABLE
    if "requires reset" in why or "reset required" in why:
        return Trouble.NEEDS_RESET
    return Trouble.NVML_BLOCKED if "permission" in why or "access blocked" in why else Trouble.NO_HANDLE


def find(lines: Sequence[Line], file: str) -> Iterator[Message]:
    """The messages in order."""
    for line in lines:
        text = line.text
        lowered = text.casefold()
        if not any(sign in lowered for sign in SIGNS):
            continue
        if (match := _HANDLE.search(text)) is not None:
            yield Message(
                _why(match["why"].casefold()),
                cell(text, line, file),
                match["address"].rstrip(":.") if match["address"] else None,
                int(match["index"]) if match["index"] else None,
            )
        elif (match := _INFOROM.search(text)) is not None:
            yield Message(Trouble.INFOROM, cell(text, line, file), match["address"].rstrip(":."))
        elif _NO_TOOL.search(text):
            yield Message(Trouble.NO_TOOL, cell(text, line, file))
        elif _NO_DEVICES.search(text):
            yield Message(Trouble.NO_DEVICES, cell(text, line, file))
        else:
            found = next((trouble for trouble, pattern in _ENDINGS if pattern.search(text)), None)
            if found is not None:
                yield Message(found, cell(text, line, file))
