"""NVSwitch errors: SXID lines of the kernel driver and the log of the Fabric Manager."""

from __future__ import annotations

import re

from muster.faults import catalogue
from muster.read import pci
from muster.read.kernel.finding import NODE, Detection, condition
from muster.read.source import printable
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity

_SXID = re.compile(
    rf"nvidia-nvswitch(?P<index>\d*): SXid \(PCI:(?P<pci>{pci.PATTERN})\): (?P<code>\d{{1,6}}),? ?(?P<rest>.*)"
)
_WORD = re.compile(r"(?P<word>Fatal|Non-fatal)\b(?:, Link (?P<link>\d{1,3})(?=\D|$)(?P<text>.*))?", re.IGNORECASE)
_COMPANION = re.compile(r"(?:Severity \d|Data \{)")
_FM_SWITCH = re.compile(
    r"detected NVSwitch (?P<word>fatal|non-fatal) error (?P<code>\d{1,6})(?: on fid (?P<fid>\d+))?"
    rf"(?: on NVSwitch pci bus id (?P<pci>{pci.PATTERN}))?"
    r"(?: physical id (?P<physical>\d+))?(?: port (?P<port>\d+))?",
    re.IGNORECASE,
)
_FM_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"detected number of NVSwitches don'?t match", re.IGNORECASE), "fm-topology-mismatch"),
    (re.compile(r"failed to find the GPU handle \d+ in the multicast team", re.IGNORECASE), "fm-multicast-handle"),
    (re.compile(r"request to query NVSwitch device information .*Nothing to do", re.IGNORECASE), "fm-no-switches"),
)
_BAD_LEVELS = ("ERROR", "CRITICAL", "FATAL")


def detect_sxid(message: str, cut: bool) -> Detection | None:
    """Read one SXID line of the kernel. The lines `Severity ..` and `Data {..}` that follow it say nothing new."""
    match = _SXID.match(message)
    if match is None or _COMPANION.match(match["rest"]) or (cut and match.end("code") == len(message)):
        return None
    word = _WORD.match(match["rest"])
    link = word["link"] if word and not (cut and word.end("link") == len(match["rest"])) else None
    entity = Entity(
        kind=EntityKind.NVSWITCH,
        pci=pci.normalise(match["pci"]),
        index=int(match["index"]) if match["index"] else None,
        link=int(link) if link is not None else None,
    )
    text = word["text"].strip() if word and word["text"] else ""
    return _switch_error(int(match["code"]), word["word"] if word else None, entity, {}, text)


def detect_fabric_manager(message: str, level: str | None, cut: bool) -> Detection | None:
    """Read one record of the Fabric Manager log. An error that nobody knows is reported as unknown."""
    match = _FM_SWITCH.match(message)
    if match is not None and not (cut and match.end("code") == len(message)):
        port = None if cut and match.end("port") == len(message) else match["port"]
        entity = Entity(
            kind=EntityKind.NVSWITCH_PORT,
            pci=pci.normalise(match["pci"]) if match["pci"] else None,
            port=int(port) if port is not None else None,
        )
        about = {
            "physical_id": int(match["physical"]) if match["physical"] else None,
            "fabric_id": int(match["fid"]) if match["fid"] else None,
        }
        found = _switch_error(int(match["code"]), match["word"].capitalize(), entity, about, "")
        same = f"kernel SXID {match['code']} of the same switch"
        return found.changed(details={**found.details, "logged_as": match["word"].lower(), "same_as": same})
    for pattern, code in _FM_PATTERNS:
        if pattern.search(message):
            return condition(code, NODE)
    if level in _BAD_LEVELS:
        return condition("fm-error", NODE, {"text": printable(message, 300)}, group=message[:120])
    return None


def _switch_error(code: int, word: str | None, entity: Entity, about: dict[str, int | None], text: str) -> Detection:
    """The word decides the severity, the class of the code the hint. Where the two differ the reading is unsure."""
    known = catalogue.sxid(code)
    fatal = word is not None and word.lower() == "fatal"
    details = {"word": word, "text": printable(text, 200) if text else None}
    if known is None:
        return Detection(
            check="sxid",
            code=code,
            entity=entity,
            severity=Severity.UNKNOWN,
            scope=Scope.FABRIC,
            hint=Hint.INSPECT,
            name="NVSwitch error that the catalogue does not know",
            details=details,
            about=about,
        )
    kind = catalogue.sxid_class(known.class_name)
    severity, hint = kind.if_fatal if fatal else kind.if_not
    if word is None and severity is not Severity.INFO:
        severity, hint = Severity.WARNING, Hint.INSPECT
    serious = kind.if_fatal[1] in (Hint.RESET_GPU, Hint.REBOOT)
    return Detection(
        check="sxid",
        code=code,
        entity=entity,
        severity=severity,
        scope=Scope.FABRIC,
        hint=hint,
        name=known.name,
        details={**details, "catalogue_class": known.class_name, "meaning": kind.meaning},
        about=about,
        confidence="low" if serious is not fatal and kind.name not in ("thermal", "host") else None,
    )
