"""XID lines of the NVIDIA driver: `NVRM: Xid (PCI:<address>): <code>[, pid=..][, name=..][, Ch ..][, text]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from muster.faults import catalogue, nvlink
from muster.read import pci
from muster.read.kernel.finding import NODE, Detection, note
from muster.read.source import printable
from muster.resources.fault import Entity, EntityKind, Hint, Scope, Severity

_LINE = re.compile(
    rf"NVRM: (?:GPU\d+ )?Xid \((?:PCI:)?(?P<pci>{pci.PATTERN})(?: GPU-I:(?P<mig>\d+))?\): "
    r"(?P<code>\d{1,5})(?P<end>[,\s]|$)"
)
_CUT = re.compile(r"NVRM: (?:GPU\d+ )?Xid \((?:PCI:)?[0-9A-Fa-f:.]*\)?:?[ \d]*$")
CUT = "xid-cut"
_PID = re.compile(r",?\s*pid=(?:'?<unknown>'?|(?P<pid>\d{1,10}))(?=,|\s|$)")
_NAME = re.compile(r",?\s*name=(?:<unknown>|(?P<name>.*?))(?=, |$)")
_CHANNEL = re.compile(r",?\s*(?:Ch|[Cc]hannel(?: ID)?)\s+(?P<channel>(?:0x)?[0-9A-Fa-f]+)(?=[,\s]|$)")
_HEX = r"0x[0-9A-Fa-f]+"

_PLACE = re.compile(r"\(GPC (?P<gpc>\d+), TPC (?P<tpc>\d+), SM (?P<sm>\d+)\)(?::\s*(?P<detail>.+))?")
_ESR = re.compile(rf"({_HEX})=({_HEX})(?=\s|,|$)")
_MMU_ENGINE = re.compile(r"MMU Fault: ENGINE (?P<engine>\S+)(?: (?P<client>\S+))?(?: faulted)?")
_MMU_ADDRESS = re.compile(r"faulted @ (?P<address>0x[0-9A-Fa-f_]+)(?=\.|\s|$)")
_MMU_TYPE = re.compile(r"of type (?P<fault_type>FAULT_\w+)(?: ACCESS_TYPE_(?P<access>\w+))?")
_LINK = re.compile(r"\blink\s+(?P<link>-?\d{1,3})(?=\D|$)", re.IGNORECASE)
_REGISTER_LIST = re.compile(r"\blink \d+\s*\((?P<list>.*)", re.IGNORECASE)
_ONE_REGISTER = re.compile(rf"\s*({_HEX})\s*(?:,|\))")
_CONTAINED = re.compile(r"(?:Unc|C)ontained: (?P<unit>[^()]+?) \((?P<unit_value>[^()]*)\)")
_RESET = re.compile(r"(?<![-\w])RST: (?P<rst>Yes|No)\b")
_DRAIN_RESET = re.compile(r"\bD-RST: (?P<d_rst>Yes|No)\b")
_RPC = re.compile(
    r"Timeout after (?P<timeout>\d+)s of waiting for RPC response from GPU(?P<index>\d+) GSP!"
    r"(?: Expected function (?P<function>\d+)(?: \((?P<name>\w+)\))?)?"
)
_PARTITION = re.compile(r"\bpartition (?P<partition>\d+)(?:, subpartition (?P<subpartition>\d+))?")
_PHYSICAL = re.compile(rf"physAddr (?P<physical>{_HEX})")
_ROWS = re.compile(rf"\bRows?\s+\(?(?P<rows>{_HEX}(?:(?:,| and|, and) {_HEX})*)\)?", re.IGNORECASE)
_RETIRED_PAGE = re.compile(rf"page retired, reboot to activate(?: \((?P<page>{_HEX})\))?", re.IGNORECASE)
_ERROR_STRING = re.compile(r"errorString (?P<text>[A-Z][A-Z _]*?)(?=,|$)")
_RECOVERY = re.compile(r"\((?P<action>[^()]*)\)\s*$")
_RECOVERY_FROM = re.compile(rf"from (?P<old>{_HEX})(?: \((?P<old_text>[^()]*)\))? to (?P<new>{_HEX})")
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Za-z0-9_/]*(?: [A-Z][a-z]+)?)\s+(?P<word>Fatal|Non-?fatal)"
    r"(?:\s+XC(?P<xc>[01]))?(?:\s+i(?P<i>[01]))?"
    r"(?:\s+Link\s+(?P<link>-?\d{1,3})(?=\s|\())?(?:\s*\((?P<list>[^()]*)(?P<closed>\))?)?",
)
_WORDS_5 = re.compile(rf"{_HEX}(?=[\s,]|$)")


def detect(message: str, cut: bool, driver_branch: int | None) -> Detection | None:
    """Read one XID line; None: it is none, or its code is cut. `cut`: the text may end in the middle of a word."""
    match = _LINE.match(message)
    if match is None or (cut and not match["end"]):
        return note(CUT, NODE, "XID line that ends before its code") if cut and _CUT.match(message) else None
    address = pci.normalise(match["pci"])
    if address is None:
        return None
    code = int(match["code"])
    details, text = _header(message[match.end("code") :], cut)
    if match["mig"]:
        details["mig"] = int(match["mig"])
    if code in catalogue.NVLINK5_XIDS:
        return _nvlink5(code, address, details, text, cut, driver_branch)
    entry = catalogue.xid(code)
    detection = Detection(
        check="xid",
        code=code,
        entity=Entity(kind=EntityKind.GPU, pci=address),
        severity=entry.severity,
        scope=entry.scope,
        hint=entry.hint,
        name=entry.name,
        details=details,
        clears=tuple(("xid", str(cleared)) for cleared in entry.clears),
    )
    refine = _REFINE.get(code, _interconnect if entry.scope is Scope.LINK else None)
    return refine(detection, text, cut) if refine else detection


def _header(rest: str, cut: bool) -> tuple[dict[str, Any], str]:
    """pid, process and channel, and the text after them. What is not told is None."""
    details: dict[str, Any] = {"pid": None, "process": None}
    at = 0
    for pattern, name in ((_PID, "pid"), (_NAME, "name"), (_CHANNEL, "channel")):
        match = pattern.match(rest, at)
        if match is None:
            continue
        at = match.end()
        value = match[name]
        if value is None or value == "":
            continue
        ends = cut and at == len(rest)
        if name == "pid":
            details["pid"] = int(value)
            if ends:
                details["pid_cut"] = True
        elif name == "name" and not ends:
            details["process"] = printable(value, 64)
        elif name == "channel" and not ends:
            details["channel"] = value
    text = rest[at:].lstrip(", ")
    if text:
        details["text"] = printable(text, 300)
    return details, text


def _whole(match: re.Match[str] | None, group: str, cut: bool) -> str | None:
    """The group, or None when it is missing or touches the end of a cut text."""
    if match is None or match[group] is None or (cut and match.end(group) == len(match.string)):
        return None
    return match[group]


def _add(detection: Detection, **details: Any) -> Detection:
    known = {name: value for name, value in details.items() if value is not None}
    return detection.changed(details={**detection.details, **known})


def _number(text: str | None) -> int | None:
    return int(text) if text is not None else None


def _yes(text: str | None) -> bool | None:
    return None if text is None else text == "Yes"


def _exception(detection: Detection, text: str, cut: bool) -> Detection:
    place = _PLACE.search(text)
    registers = dict(_ESR.findall(text if not cut else text.rpartition(" ")[0]))
    detail = _whole(place, "detail", cut)
    return _add(
        detection,
        gpc=_number(place["gpc"] if place else None),
        tpc=_number(place["tpc"] if place else None),
        sm=_number(place["sm"] if place else None),
        detail=printable(detail, 120) if detail else None,
        registers=registers or None,
    )


def _mmu_fault(detection: Detection, text: str, cut: bool) -> Detection:
    engine, address, kind = _MMU_ENGINE.search(text), _MMU_ADDRESS.search(text), _MMU_TYPE.search(text)
    return _add(
        detection,
        engine=_whole(engine, "engine", cut),
        client=_whole(engine, "client", cut),
        address=_whole(address, "address", cut),
        fault_type=_whole(kind, "fault_type", cut),
        access=_whole(kind, "access", cut),
    )


def _row_remap(detection: Detection, text: str, cut: bool) -> Detection:
    rows = _ROWS.search(text)
    found = re.findall(_HEX, rows["rows"]) if rows else []
    if rows and cut and rows.end("rows") == len(text):
        found = found[:-1]
    if "reset gpu to activate" in text.lower():
        detection = detection.changed(hint=Hint.RESET_GPU)
        detection = _add(detection, urgency="when-idle", same_as="row-remap-pending")
    if page := _RETIRED_PAGE.search(text):
        detection = detection.changed(hint=Hint.RESET_GPU)
        detection = _add(
            detection,
            urgency="when-idle",
            same_as="page-retirement-pending",
            page=_whole(page, "page", cut),
        )
    return _add(detection, row=found[0] if len(found) == 1 else None, rows=found if len(found) > 1 else None)


def _ecc(detection: Detection, text: str, cut: bool) -> Detection:
    place, physical = _PARTITION.search(text), _PHYSICAL.search(text)
    return _add(
        detection,
        partition=_number(_whole(place, "partition", cut)),
        subpartition=_number(_whole(place, "subpartition", cut)),
        physical_address=_whole(physical, "physical", cut),
    )


def _containment(detection: Detection, text: str, cut: bool) -> Detection:  # noqa: ARG001 - the signature of a refiner
    place, reset, drain = _CONTAINED.search(text), _RESET.search(text), _DRAIN_RESET.search(text)
    return _add(
        detection,
        contained=detection.code == 94,
        unit=place["unit"] if place else None,
        unit_value=place["unit_value"] if place else None,
        rst=_yes(reset["rst"] if reset else None),
        d_rst=_yes(drain["d_rst"] if drain else None),
    )


def _context_switch(detection: Detection, text: str, cut: bool) -> Detection:
    return _add(detection, error_string=_whole(_ERROR_STRING.search(text), "text", cut))


def _firmware(detection: Detection, text: str, cut: bool) -> Detection:
    rpc = _RPC.search(text)
    if rpc is None:
        return detection
    detection = _add(
        detection,
        timeout_s=int(rpc["timeout"]),
        function=_number(_whole(rpc, "function", cut)),
        function_name=_whole(rpc, "name", cut),
    )
    return detection.changed(about={**detection.about, "driver_index": int(rpc["index"])})


def _recovery(detection: Detection, text: str, cut: bool) -> Detection:
    change, words = _RECOVERY_FROM.search(text), _RECOVERY.search(text)
    wanted = words["action"] if words and (not cut or text.rstrip().endswith(")")) else None
    if wanted is None or (
        change is not None and wanted == change["old_text"] and text.endswith(f"({wanted})") and cut
    ):
        wanted = _whole(change, "new", cut)
    if wanted is None:
        return detection
    action = catalogue.recovery_action(wanted)
    if action.severity is Severity.INFO and action.code is not None:
        # The driver asks for nothing any more: what it asked for before is done.
        detection = detection.changed(clears=(("xid", str(detection.code)),), group="none")
    return _add(
        detection.changed(severity=action.severity, scope=action.scope, hint=action.hint),
        recovery_action=action.text,
        recovery_action_before=change["old_text"] if change else None,
    )


def _nvlink_registers(detection: Detection, text: str, cut: bool) -> Detection:
    link, listed = _LINK.search(text), _REGISTER_LIST.search(text)
    number = _whole(link, "link", cut)
    entity = detection.entity
    if number is not None:
        entity = Entity(kind=EntityKind.NVLINK, pci=entity.pci, link=int(number))
    registers = _ONE_REGISTER.findall(listed["list"]) if listed else []
    detection = detection.changed(entity=entity)
    if not registers:
        return detection
    reading = nvlink.decode_xid74([int(value, 16) for value in registers])
    if reading.class_name == "ignore":
        detection = detection.changed(severity=Severity.INFO, hint=Hint.NONE)
    return _add(
        detection.changed(group=reading.class_name),
        registers=registers,
        bits={str(register): list(bits) for register, bits in reading.bits.items()},
        decode_class=reading.class_name,
        role=reading.role,
    )


def _interconnect(detection: Detection, text: str, cut: bool) -> Detection:
    number = _whole(_LINK.search(text), "link", cut)
    if number is None or int(number) < 0:
        return detection
    return detection.changed(entity=Entity(kind=EntityKind.NVLINK, pci=detection.entity.pci, link=int(number)))


_REFINE: dict[int, Callable[[Detection, str, bool], Detection]] = {
    13: _exception,
    31: _mmu_fault,
    48: _ecc,
    63: _row_remap,
    64: _row_remap,
    74: _nvlink_registers,
    94: _containment,
    95: _containment,
    109: _context_switch,
    119: _firmware,
    120: _firmware,
    154: _recovery,
}


def _nvlink5(
    code: int, address: str, details: dict[str, Any], text: str, cut: bool, driver_branch: int | None
) -> Detection:
    """XIDs 144 to 150: severity by the word, action by the decode row of the first two registers."""
    entry = catalogue.xid(code)
    match = _NVLINK5.match(text)
    gpu = Entity(kind=EntityKind.GPU, pci=address)
    if match is None:
        return Detection("nvlink5", code, gpu, entry.severity, Scope.GPU, entry.hint, entry.name, details)
    listed = match["list"] or ""
    if not match["closed"]:
        listed = listed.rpartition(" ")[0] if cut or not listed.endswith(" ") else listed
    registers = _WORDS_5.findall(listed)
    decode = None
    if len(registers) >= 2:
        decode = nvlink.decode_nvlink5(
            code, match["unit"], int(registers[0], 16), int(registers[1], 16), driver_branch
        )
    fatal = match["word"] == "Fatal"
    injected = match["i"] == "1"
    severity, hint = nvlink.nvlink5_judgement(decode, fatal, injected)
    link = int(match["link"]) if match["link"] is not None else None
    one_link = link is not None and link >= 0
    entity = (
        Entity(kind=EntityKind.NVLINK, pci=address, link=link)
        if one_link
        else Entity(kind=EntityKind.GPU, pci=address, link=link)
    )
    found: dict[str, Any] = {
        "unit": match["unit"],
        "word": match["word"],
        "cross_contained": match["xc"] == "1" if match["xc"] else None,
        "injected": injected if match["i"] else None,
        "intr_info": registers[0] if registers else None,
        "error_status": registers[1] if len(registers) > 1 else None,
        "registers": registers or None,
        "decoded": decode is not None,
    }
    if decode is not None:
        found |= {
            "layout": decode.layout,
            "immediate": decode.immediate,
            "investigatory": decode.investigatory,
            "layer": decode.layer,
            "link_down_reason": decode.link_down_reason,
            "suspect": decode.suspect,
            "act_only_if": "xid-154 follows on the same GPU" if decode.immediate == "XID_154_EVAL" else None,
        }
    details |= {name: value for name, value in found.items() if value is not None}
    reason = decode.link_down_reason if decode else None
    return Detection(
        check="nvlink5",
        code=code,
        entity=entity,
        severity=severity,
        scope=Scope.LINK if one_link else Scope.GPU,
        hint=hint,
        name=entry.name,
        details=details,
        group=f"{match['unit']}/{match['word']}/{found['error_status']}/{reason}/{injected}",
    )
