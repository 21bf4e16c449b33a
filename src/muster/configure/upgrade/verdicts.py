"""Verdicts on an upgrade: safe, needs care, blocked; the vocabulary of `muster bundle diff`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class UpgradeVerdict(StrEnum):
    """What deploying the new bundle over the old one does."""

    SAFE = "safe"
    """The deployer brings it about; nothing to do."""
    NEEDS_CARE = "needs-care"
    """It works, but it touches running work or needs a hand afterwards."""
    BLOCKED = "blocked"
    """As it is it fails or loses data; the remedy comes first."""


_RANK = {UpgradeVerdict.SAFE: 0, UpgradeVerdict.NEEDS_CARE: 1, UpgradeVerdict.BLOCKED: 2}


def worst(verdicts: Iterable[UpgradeVerdict]) -> UpgradeVerdict:
    """The worst of `verdicts`; SAFE when there are none."""
    return max(verdicts, key=lambda verdict: _RANK[verdict], default=UpgradeVerdict.SAFE)


@dataclass(frozen=True, slots=True)
class Reason:
    """One finding: what changes and what to do about it, a phrase each."""

    verdict: UpgradeVerdict
    what: str
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        plain = {"verdict": self.verdict.value, "what": self.what}
        return plain | ({"remedy": self.remedy} if self.remedy else {})


def safe(what: str) -> Reason:
    return Reason(UpgradeVerdict.SAFE, what)


def care(what: str, remedy: str) -> Reason:
    return Reason(UpgradeVerdict.NEEDS_CARE, what, remedy)


def blocked(what: str, remedy: str) -> Reason:
    return Reason(UpgradeVerdict.BLOCKED, what, remedy)


@dataclass(frozen=True, slots=True)
class ComponentVerdict:
    """One component. `before` or `after` is its version, or empty where only the other side has it."""

    component: str
    reasons: tuple[Reason, ...]
    before: str = ""
    after: str = ""

    @property
    def verdict(self) -> UpgradeVerdict:
        return worst(reason.verdict for reason in self.reasons)

    def as_dict(self) -> dict[str, Any]:
        """Plain values; the side that lacks the component is left out."""
        sides = {"before": self.before, "after": self.after}
        return {
            "component": self.component,
            "verdict": self.verdict.value,
            **{side: version for side, version in sides.items() if version},
            "reasons": [reason.as_dict() for reason in self.reasons],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """What deploying one bundle over another does. `reasons` are about the bundle as a whole."""

    before: str
    after: str
    reasons: tuple[Reason, ...]
    components: tuple[ComponentVerdict, ...]

    @property
    def verdict(self) -> UpgradeVerdict:
        return worst([*(r.verdict for r in self.reasons), *(c.verdict for c in self.components)])

    @property
    def summary(self) -> str:
        """`2 blocked, 1 needs care` over components and the bundle itself."""
        found = [worst(r.verdict for r in self.reasons), *(c.verdict for c in self.components)]
        counts = [
            (found.count(UpgradeVerdict.BLOCKED), "blocked"),
            (found.count(UpgradeVerdict.NEEDS_CARE), "to take care of"),
        ]
        return ", ".join(f"{count} {word}" for count, word in counts if count) or "all safe"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for printing."""
        return {
            "before": self.before,
            "after": self.after,
            "verdict": self.verdict.value,
            "bundle": [reason.as_dict() for reason in self.reasons],
            "components": [component.as_dict() for component in self.components],
        }
