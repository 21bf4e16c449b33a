"""Fault rates before and after a change (driver, image, kernel, firmware): does the fault follow the change?

Two shares of nodes are compared with Fisher's exact test, one-sided. A fault that follows a version is one fleet-wide
event of the software; no node and no GPU is blamed for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from muster.errors import BadInputError
from muster.read.report import Incident, Report, Result, Value, Verdict
from muster.read.source import Context, Input, text_lines
from muster.read.tables.source import mapping, number, rows, tidy
from muster.resources.fault import Hint, Scope, Severity

KIND = "kernel-log"
SIGNIFICANT = 0.001
_NODES, _FAULTY = "nodes", "nodes_with_fault"
_NOT_A_CHANGE = ("environment", "env", "name", "cluster", "pool", "region", "id", "note")


def score(sample: bytes) -> float:
    """1 for a YAML mapping with `groups` that count nodes with a fault."""
    text = sample.decode("utf-8", "replace")
    return 1.0 if any(line.startswith("groups:") for line in text_lines(sample)) and _FAULTY in text else 0.0


@dataclass(frozen=True)
class Share:
    """Nodes of one version, and how many of them have the fault."""

    version: str
    nodes: int
    faulty: int

    @property
    def rate(self) -> float:
        return self.faulty / self.nodes


def parse(inputs: Sequence[Input], context: Context) -> Report:  # noqa: ARG001 - the signature of a format
    """Compare the versions of one table. Raises BadInputError when a group cannot be counted."""
    if len(inputs) != 1:
        raise BadInputError("Give one table of groups at a time.")
    item = inputs[0]
    table = mapping(item)
    groups = rows(item, table.get("groups"), "groups")
    columns = _columns(groups)
    if not columns:
        raise BadInputError(f"The groups of {item.name} differ in no version; add a key such as driver to each.")
    after = rows(item, table["after_rollback"], "after_rollback") if table.get("after_rollback") is not None else []
    column = max(columns, key=lambda c: (_spread(_shares(item, groups, c)), c == "driver"))
    shares = _shares(item, groups, column)
    rolled_back = {str(row[column]) for row in after if row.get(column) is not None}
    incident = _incident(table, shares, column, rolled_back, columns)
    addresses = _addresses(table)
    values = {
        "share_of_nodes_with_fault": Value({s.version: round(s.rate, 4) for s in shares}),
        "nodes": Value({s.version: s.nodes for s in shares}),
        "p_value": Value(_p_value(shares)),
    }
    if addresses is not None:
        values["distinct_addresses_per_node"] = Value(addresses)
    return Report(
        kind=KIND,
        files=(item.name,),
        truncated=False,
        incidents=(incident,) if incident else (),
        verdicts=_verdicts(shares, column, incident),
        values=values,
        next=_next(incident, column),
    )


def _columns(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns of text that differ between groups and could be the change."""
    names = list(dict.fromkeys(name for row in groups for name in row if name not in _NOT_A_CHANGE))
    return [
        name
        for name in names
        if all(isinstance(row.get(name), str) for row in groups) and len({row[name] for row in groups}) > 1
    ]


def _shares(item: Input, groups: Sequence[Mapping[str, Any]], column: str) -> list[Share]:
    """Shares per version, oldest version first."""
    totals: dict[str, list[int]] = {}
    for position, row in enumerate(groups, start=1):
        nodes, faulty = number(row.get(_NODES)), number(row.get(_FAULTY))
        if nodes is None or faulty is None or not 0 <= faulty <= nodes:
            raise BadInputError(
                f"Group {position} of {item.name} needs {_NODES} and {_FAULTY}, the second not above the first."
            )
        total = totals.setdefault(str(row[column]), [0, 0])
        total[0] += int(nodes)
        total[1] += int(faulty)
    return [
        Share(version, *total) for version, total in sorted(totals.items(), key=lambda kv: _order(kv[0])) if total[0]
    ]


def _order(version: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[A-Za-z]+", version))


def _spread(shares: Sequence[Share]) -> float:
    rates = [share.rate for share in shares]
    return max(rates) - min(rates) if rates else 0.0


def _extremes(shares: Sequence[Share]) -> tuple[Share, Share]:
    """(lowest rate, highest rate)."""
    return min(shares, key=lambda s: s.rate), max(shares, key=lambda s: s.rate)


def _p_value(shares: Sequence[Share]) -> float | None:
    """Probability of at least so many faulty nodes in the worst version if the version did not matter."""
    if len(shares) < 2:
        return None
    low, high = _extremes(shares)
    total, faulty = low.nodes + high.nodes, low.faulty + high.faulty
    if total > 200_000:
        return None
    ways = sum(
        comb(high.nodes, k) * comb(low.nodes, faulty - k)
        for k in range(high.faulty, min(high.nodes, faulty) + 1)
        if faulty - k <= low.nodes
    )
    return ways / comb(total, faulty)


def _incident(
    table: Mapping[str, Any], shares: Sequence[Share], column: str, rolled_back: set[str], columns: Sequence[str]
) -> Incident | None:
    p_value = _p_value(shares)
    if p_value is None or p_value > SIGNIFICANT:
        return None
    low, high = _extremes(shares)
    newer = _order(high.version) > _order(low.version) or low.version in rolled_back
    code = table.get("code")
    confounded = [name for name in columns if name != column]
    return Incident(
        root=f"{column}-change" if newer else f"{column}-version",
        members=(code,) if isinstance(code, int) else (),
        severity=Severity.WARNING,
        scope=Scope.FLEET,
        hint=Hint.NONE,
        fields={
            "code": code,
            "changed": {"what": column, "from": low.version, "to": high.version},
            "owner": "software",
            "action": "halt-rollout" if newer else "none",
            "nodes_with_fault": high.faulty,
            "rolled_back": bool(rolled_back) or None,
            "confidence": "low" if confounded else None,
            "also_changed": confounded or None,
        },
    )


def _verdicts(shares: Sequence[Share], column: str, incident: Incident | None) -> tuple[Verdict, ...]:
    _, high = _extremes(shares)
    found = []
    for share in shares:
        of = f"{column} {share.version}"
        if incident is not None and share.rate == high.rate:
            found.append(Verdict(of, Result.FAIL, "fault-rate-after-change"))
        elif incident is None and share.faulty:
            found.append(Verdict(of, Result.UNKNOWN, "no-clear-difference"))
        elif share.faulty:
            found.append(Verdict(of, Result.WARN, "some-faults"))
        else:
            found.append(Verdict(of, Result.PASS, "no-faults"))
    return tuple(found)


def _addresses(table: Mapping[str, Any]) -> int | dict[str, int] | None:
    """Distinct fault addresses per node: one number where all nodes agree."""
    per_node = table.get("fault_addresses_per_node")
    if not isinstance(per_node, dict):
        return None
    counts = {str(node): len(seen) for node, seen in per_node.items() if isinstance(seen, dict)}
    distinct = sorted(set(counts.values()))
    return int(tidy(distinct[0])) if len(distinct) == 1 else counts or None


def _next(incident: Incident | None, column: str) -> str:
    if incident is None:
        return f"The fault does not follow the {column}; look at the nodes that have it."
    changed = incident.fields["changed"]
    if incident.fields["action"] == "halt-rollout":
        return (
            f"Halt the roll-out of {column} {changed['to']}, go back to {changed['from']}; quarantine no node for it."
        )
    return f"The fault belongs to {column} {changed['to']}; move to {changed['from']} and quarantine no node for it."
