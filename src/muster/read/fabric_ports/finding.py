"""One thing that is wrong: a verdict, and where it is sure enough also a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.read.report import Evidence, ReadFault, Result, Verdict
from muster.read.source import printable
from muster.resources.fault import Hint, Scope, Severity


@dataclass(frozen=True)
class Finding:
    """`code` None: a verdict alone. `at`: file, line and text that say so."""

    of: str
    result: Result
    reason: str
    message: str
    entity: Mapping[str, Any]
    next: str
    code: int | str | None = None
    kind: str = "nic-port"
    severity: Severity = Severity.WARNING
    scope: Scope | None = Scope.LINK
    hint: Hint = Hint.INSPECT
    count: int = 1
    lower_bound: bool = False
    confidence: str | None = None
    at: tuple[tuple[str, int, str], ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    """Beside the verdict: `lane`, `value`, `state`."""
    details: Mapping[str, Any] = field(default_factory=dict)

    def verdict(self) -> Verdict:
        sure = {"confidence": self.confidence} if self.confidence else {}
        return Verdict(self.of, self.result, self.reason, printable(self.message, 300), {**self.more, **sure})

    def fault(self) -> ReadFault | None:
        if self.code is None:
            return None
        return ReadFault(
            code=self.code,
            kind=self.kind,
            entity={"pci": None, **self.entity},
            severity=self.severity,
            scope=self.scope,
            hint=self.hint,
            name=printable(self.message, 200).rstrip("."),
            count=self.count,
            count_is="lower-bound" if self.lower_bound else "exact",
            first=None,
            last=None,
            details=self.details,
            evidence=evidence(self.at),
            next=self.next,
            confidence=self.confidence,
        )


def evidence(at: tuple[tuple[str, int, str], ...]) -> tuple[Evidence, ...]:
    """Evidence by file, its lines in order."""
    files = list(dict.fromkeys(file for file, _, _ in at))
    found = []
    for file in files:
        rows = sorted({(line, text) for name, line, text in at if name == file and line > 0})
        if rows:
            texts = tuple(printable(text, 300) for _, text in rows[:3] if text)
            found.append(Evidence(file, tuple(line for line, _ in rows[:8]), texts, len(rows)))
    return tuple(found)


_WEIGHT = {Result.FAIL: 4, Result.INVALID: 3, Result.WARN: 2, Result.UNKNOWN: 1, Result.PASS: 0}


def heaviest_first(findings: list[Finding]) -> list[Finding]:
    """Failures first, in their order."""
    return sorted(findings, key=lambda finding: -_WEIGHT[finding.result])
