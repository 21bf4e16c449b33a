"""A finding on one GPU, and the shapes that findings usually have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.resources.fault import Hint, Scope, Severity


@dataclass(frozen=True, kw_only=True)
class GpuFinding:
    """One thing that is wrong with a GPU. `fields`: the readings that tell it; `reason`: the word of the verdict."""

    code: str
    check: str
    name: str
    severity: Severity
    scope: Scope
    hint: Hint
    reason: str
    fields: tuple[str, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    confidence: str | None = None
    next: str = ""
    """One sentence what to do, where the usual advice on the hint says too little. `{gpu}` stands for the GPU."""


def when_idle(code: str, check: str, name: str, field_name: str) -> GpuFinding:
    """A reset brings a repair into effect; work that runs is safe until then."""
    return GpuFinding(
        code=code,
        check=check,
        name=name,
        severity=Severity.WARNING,
        scope=Scope.GPU,
        hint=Hint.RESET_GPU,
        reason=code,
        fields=(field_name,),
        details={"urgency": "when-idle", "same_as": code},
    )


def replace(
    code: str,
    check: str,
    name: str,
    fields: tuple[str, ...],
    details: Mapping[str, Any],
    *,
    reason: str = "",
    confidence: str | None = None,
    severity: Severity = Severity.FATAL,
) -> GpuFinding:
    """Nothing but another GPU helps."""
    return GpuFinding(
        code=code,
        check=check,
        name=name,
        severity=severity,
        scope=Scope.GPU,
        hint=Hint.REPLACE,
        reason=reason or code,
        fields=fields,
        details=details,
        confidence=confidence,
    )


def warning(
    code: str, check: str, name: str, fields: tuple[str, ...], details: Mapping[str, Any], advice: str
) -> GpuFinding:
    """A person should look."""
    return GpuFinding(
        code=code,
        check=check,
        name=name,
        severity=Severity.WARNING,
        scope=Scope.GPU,
        hint=Hint.INSPECT,
        reason=code,
        fields=fields,
        details=details,
        next=advice,
    )
