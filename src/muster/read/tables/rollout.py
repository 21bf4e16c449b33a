"""Fault rates before and after a change (driver, image, kernel, firmware): does the fault follow the change?

Two shares of nodes are compared with Fisher's exact test, one-sided. A fault that follows a version is one fleet-wide
event of the software; no node and no GPU is blamed for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma
from typing import Any

from muster.errors import BadInputError
from muster.read.report import Incident, Report, Result, Value, Verdict
from muster.read.source import Context, Input, text_lines
from muster.read.tables.source import mapping, number, rows, tidy
from muster.resources.fault import Hint, Scope, Severity

KIND = "kernel-log"
SIGNIFICANT = 0.001
_MAX_TERMS = 100_000
"""Terms of the sum beyond the first; they only get smaller."""
_NODES, _FAULTY = "nodes", "nodes_with_fault"
_VERSIONED = ("driver", "kernel", "version", "firmware", "image", "cuda", "vbios")
_MAX_NODES = 10**9
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
    if not shares:
        raise BadInputError(f"The groups of {item.name} count no node at all.")
    back = _shares(item, [row for row in after if row.get(column) is not None], column)
    stays = _stays(shares, back)
    incident = None if stays else _incident(table, shares, column, {share.version for share in back}, columns)
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
        verdicts=_verdicts(shares, column, incident, stays),
        values=values,
        next=_next(incident, column, shares, stays),
    )


def _columns(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns of text that differ between groups and could be the change."""
    names = list(dict.fromkeys(name for row in groups for name in row if name not in _NOT_A_CHANGE))
    return [
        name
        for name in names
        if all(_is_version(name, row.get(name)) for row in groups) and len({str(row[name]) for row in groups}) > 1
    ]


def _is_version(name: str, value: Any) -> bool:
    """Text, or a number where the column's name says that it is a version (YAML reads 535.1 as a number)."""
    named = any(word in name.lower() for word in _VERSIONED)
    return isinstance(value, str) or (named and isinstance(value, int | float) and not isinstance(value, bool))


def _shares(item: Input, groups: Sequence[Mapping[str, Any]], column: str) -> list[Share]:
    """Shares per version, oldest version first."""
    totals: dict[str, list[int]] = {}
    for position, row in enumerate(groups, start=1):
        nodes, faulty = number(row.get(_NODES)), number(row.get(_FAULTY))
        if nodes is None or faulty is None or not 0 <= faulty <= nodes <= _MAX_NODES:
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
    """(lowest rate, highest rate). Of equally low versions the one that came right before the highest."""
    high = max(shares, key=lambda s: s.rate)
    rate = min(share.rate for share in shares)
    lowest = [share for share in shares if share.rate == rate]
    older = [share for share in lowest if _order(share.version) < _order(high.version)]
    return (older[-1] if older else lowest[0]), high


def _p_value(shares: Sequence[Share]) -> float | None:
    """Probability of at least so many faulty nodes in the worst version if the version did not matter."""
    if len(shares) < 2:
        return None
    low, high = _extremes(shares)
    total, faulty = low.nodes + high.nodes, low.faulty + high.faulty
    if low is high or not faulty:
        return 1.0
    ways = _ln_ways(total, faulty)
    last = min(high.nodes, faulty, high.faulty + _MAX_TERMS)
    chance = sum(
        exp(_ln_ways(high.nodes, k) + _ln_ways(low.nodes, faulty - k) - ways)
        for k in range(high.faulty, last + 1)
        if faulty - k <= low.nodes
    )
    return float(f"{min(1.0, chance):.3g}")


def _ln_ways(all_of: int, chosen: int) -> float:
    """Logarithm of the binomial coefficient."""
    return lgamma(all_of + 1) - lgamma(chosen + 1) - lgamma(all_of - chosen + 1)


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


def _stays(shares: Sequence[Share], back: Sequence[Share]) -> bool:
    """After going back to the good version the nodes still have the fault: it does not follow the version."""
    low, high = _extremes(shares)
    return any(share.version == low.version and 2 * share.rate > high.rate > low.rate for share in back)


def _verdicts(shares: Sequence[Share], column: str, incident: Incident | None, stays: bool) -> tuple[Verdict, ...]:
    _, high = _extremes(shares)
    found = []
    for share in shares:
        of = f"{column} {share.version}"
        if incident is not None and share.rate == high.rate:
            found.append(Verdict(of, Result.FAIL, "fault-rate-after-change"))
        elif incident is None and share.faulty:
            found.append(Verdict(of, Result.UNKNOWN, "stays-after-rollback" if stays else "no-clear-difference"))
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


def _next(incident: Incident | None, column: str, shares: Sequence[Share], stays: bool) -> str:
    if not any(share.faulty for share in shares):
        return "No node has the fault; nothing has to be done."
    if stays:
        return f"The fault stayed when the {column} went back; look for what else these nodes share."
    if incident is None:
        return f"The fault does not follow the {column}; look at the nodes that have it."
    changed = incident.fields["changed"]
    if incident.fields["action"] == "halt-rollout":
        return (
            f"Halt the roll-out of {column} {changed['to']}, go back to {changed['from']}; quarantine no node for it."
        )
    return f"The fault belongs to {column} {changed['to']}; move to {changed['from']} and quarantine no node for it."
