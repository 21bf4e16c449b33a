"""What one kind of content in a training log says, before it becomes one report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster.read.report import Incident, Value, Verdict


@dataclass(frozen=True)
class Finding:
    """Values, verdicts and incidents. `next` is empty when nothing has to be done."""

    values: Mapping[str, Value] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    incidents: tuple[Incident, ...] = ()
    next: str = ""


def merged(findings: Iterable[Finding]) -> Finding:
    """All findings as one. Of values with the same name the first stays."""
    values: dict[str, Value] = {}
    verdicts: list[Verdict] = []
    incidents: list[Incident] = []
    advice: list[str] = []
    for finding in findings:
        values = {**finding.values, **values}
        verdicts += [v for v in finding.verdicts if v not in verdicts]
        incidents += finding.incidents
        if finding.next:
            advice.append(finding.next)
    return Finding(values, tuple(verdicts), tuple(incidents), " ".join(advice))
