"""The fault catalogue: what a code means, how bad it is, how far it reaches and what usually helps.

The source is the YAML in `data/`; it is read from `data/catalogue.json`, which `muster.faults.generate` makes of it
(decoding takes a few milliseconds, YAML would take a hundred). Every lookup is total: a code that is not listed comes
back with severity `unknown`, and nobody acts on it.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

import msgspec

from muster.resources.base import Model
from muster.resources.fault import Hint, Scope, Severity

NVLINK5_XIDS = range(144, 151)
RECOVERY_ACTION_XID = 154


class Reference(Model, frozen=True, kw_only=True, rename=None):
    """NVSentinel's mapping of a code; `immediate` and `investigatory` are buckets of NVIDIA's XID workbook."""

    immediate: str | None
    investigatory: str | None
    action: str
    fatal: bool | None
    """None: decided per line."""


class Xid(Model, frozen=True, kw_only=True, rename=None):
    """One XID code."""

    code: int
    mnemonic: str
    name: str
    category: str
    applies: tuple[str, ...]
    """GPU generations that use the code, in lower case; empty: reserved or not told."""
    severity: Severity
    scope: Scope
    hint: Hint
    reference: Reference | None = None
    differs: str = ""
    """Why our mapping is not the reference's; empty where they agree."""
    clears: tuple[int, ...] = ()
    """XIDs on the same GPU that this one takes back."""
    followed_by_154: str = ""
    """From which driver on XID 154 names the recovery action after this code."""
    sticky: bool = False
    """Seen again within hours it is the same trouble, not a new one."""


class RecoveryAction(Model, frozen=True, kw_only=True, rename=None):
    """What the driver asks for in an XID 154 line."""

    code: str | None
    text: str
    severity: Severity
    scope: Scope
    hint: Hint
    reference_action: str
    differs: str = ""


class RegisterClass(Model, frozen=True, kw_only=True, rename=None):
    """A class of bits in the registers of XID 74: `bits` maps the register (from 0, as text) to bit numbers."""

    name: str
    role: str | None
    bits: dict[str, tuple[int, ...]]


class NvlinkRegisters(Model, frozen=True, kw_only=True, rename=None):
    valid: tuple[int, ...]
    classes: tuple[RegisterClass, ...]
    """In order of weight: the first class that has a bit set decides."""


class Nvlink5Row(Model, frozen=True, kw_only=True, rename=None):
    """One decode row. Masks are 32 characters of `0`, `1` and `-` (any), most significant bit first."""

    xid: int
    units: tuple[str, ...]
    """Names of the unit in the line; layouts and driver versions spell some of them differently."""
    v1: str
    v2: str
    error_status: tuple[str, ...]
    """Values of the second register for which the row holds; empty: any."""
    immediate: str
    investigatory: str
    severity: str
    layer: str
    reference_action: str
    action2: str = ""
    action2_v1: str = ""
    action2_v2: str = ""


class SxidClass(Model, frozen=True, kw_only=True, rename=None):
    name: str
    if_fatal: tuple[Severity, Hint]
    if_not: tuple[Severity, Hint]
    reference_action: str
    meaning: str


class Sxid(Model, frozen=True, kw_only=True, rename=None):
    """One NVSwitch error code."""

    code: int
    name: str
    class_name: str = msgspec.field(name="class")
    logged_as: str
    note: str = ""


class Dcgm(Model, frozen=True, kw_only=True, rename=None):
    """One DCGM error code (`DCGM_FR_...`)."""

    code: str
    severity: Severity
    scope: Scope
    hint: Hint
    reference_action: str = ""
    differs: str = ""


class Condition(Model, frozen=True, kw_only=True, rename=None):
    """A fault that a pattern tells instead of a vendor's code."""

    code: str
    check: str
    name: str
    severity: Severity
    scope: Scope
    hint: Hint
    reference_action: str | None = None


class Catalogue(Model, frozen=True, kw_only=True, rename=None):
    """Everything, as stored."""

    version: int
    xids: tuple[Xid, ...]
    recovery_actions: tuple[RecoveryAction, ...]
    nvlink_registers: NvlinkRegisters
    nvlink5: tuple[Nvlink5Row, ...]
    sxid_classes: tuple[SxidClass, ...]
    sxids: tuple[Sxid, ...]
    dcgm: tuple[Dcgm, ...]
    conditions: tuple[Condition, ...]


@cache
def load() -> Catalogue:
    """The catalogue, read once per process."""
    return msgspec.json.decode((Path(__file__).parent / "data" / "catalogue.json").read_bytes(), type=Catalogue)


@cache
def _xids() -> dict[int, Xid]:
    return {entry.code: entry for entry in load().xids}


@cache
def _sxids() -> dict[int, Sxid]:
    return {entry.code: entry for entry in load().sxids}


@cache
def _sxid_classes() -> dict[str, SxidClass]:
    return {entry.name: entry for entry in load().sxid_classes}


@cache
def _dcgm() -> dict[str, Dcgm]:
    return {entry.code: entry for entry in load().dcgm}


@cache
def _conditions() -> dict[str, Condition]:
    return {entry.code: entry for entry in load().conditions}


@lru_cache(maxsize=256)
def xid(code: int) -> Xid:
    """The entry of an XID; a code that is not listed comes back as unknown (hint `inspect`)."""
    known = _xids().get(code)
    return known or Xid(
        code=code,
        mnemonic="",
        name="XID that the catalogue does not know",
        category="unknown",
        applies=(),
        severity=Severity.UNKNOWN,
        scope=Scope.GPU,
        hint=Hint.INSPECT,
    )


def sxid(code: int) -> Sxid | None:
    """The entry of an NVSwitch error, or None when the catalogue does not know the code."""
    return _sxids().get(code)


def sxid_class(name: str) -> SxidClass:
    """The class of an NVSwitch error. Raises KeyError: class names come from the catalogue itself."""
    return _sxid_classes()[name]


@lru_cache(maxsize=256)
def dcgm(code: str) -> Dcgm:
    """The entry of a DCGM error code; a code that is not listed comes back as unknown."""
    return _dcgm().get(code) or Dcgm(code=code, severity=Severity.UNKNOWN, scope=Scope.GPU, hint=Hint.INSPECT)


def condition(code: str) -> Condition:
    """The entry of one of our own pattern codes. Raises KeyError: such codes are written in detectors only."""
    return _conditions()[code]


def recovery_action(text: str) -> RecoveryAction:
    """The recovery action named in an XID 154 line, by its text or its code (`0x1`); unknown ones ask for a look."""
    wanted = text.strip().casefold()
    for action in load().recovery_actions:
        if wanted in (action.text.casefold(), action.code):
            return action
    if "imex" in wanted:
        return recovery_action("Recover IMEX Domain")
    return RecoveryAction(
        code=None,
        text=text,
        severity=Severity.UNKNOWN,
        scope=Scope.GPU,
        hint=Hint.INSPECT,
        reference_action="CONTACT_SUPPORT",
    )
