"""Nodes of one pool before and after a change of their monitor: who turned unhealthy, and did anything move?

The input is YAML or JSON: `pool`, `change` (component, to, bundles: {name: {from, to}}) and `samples` (time, nodes:
name, conditions, and counters whose names end in `_lifetime` or `_total`). A counter over the life of a link is
judged by its change between two samples, never by its size. When most nodes of a pool turn unhealthy at once after
their monitor changed and nothing moved, the monitor is at fault: automation holds, a person is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.errors import BadInputError
from muster.read.dcgm_health.detect import KIND
from muster.read.report import Incident, ReadFault, Report, Result, Value, Verdict
from muster.read.smi.faults import fault
from muster.read.source import Context, Input
from muster.read.tables.source import mapping, number, rows, tidy
from muster.resources.fault import Hint, Scope, Severity

_SAMPLES = re.compile(r'(?:^\s{0,4}"?|[{,]\s{0,4}")samples"?\s{0,4}:', re.MULTILINE)
_COUNTER = re.compile(r"(?P<stem>[a-z][a-z0-9_]{1,60})_(?:lifetime|total)$")
MOST = 0.5
"""More than this share of the pool turning at once speaks against the nodes being at fault."""
LEAST_NODES = 3
_HEALTHY_WHEN_TRUE = ("ready", "healthy", "ok")


@dataclass
class NodeChange:
    """One node over all samples. `moved`: change of each counter; negative when it was reset in between."""

    name: str
    moved: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    """Reasons of conditions that are bad in the last sample and were not in the first."""
    bad_before: bool = False
    gone: bool = False


def score(sample: bytes) -> float:
    """1 for samples of nodes with conditions."""
    text = sample[:65536].decode("utf-8", "replace")
    telling = "conditions" in text or "_lifetime" in text
    return 1.0 if _SAMPLES.search(text) and "nodes" in text and telling and "apiVersion" not in text else 0.0


def parse(inputs: Sequence[Input], _: Context) -> Report:
    """Read one such file. Raises BadInputError when it has no samples of nodes."""
    if len(inputs) > 1:
        raise BadInputError(
            f"{inputs[1].name} is a second list of samples; give one file with all samples of the pool."
        )
    told = mapping(inputs[0])
    samples = [
        rows(inputs[0], sample.get("nodes"), "nodes") for sample in rows(inputs[0], told.get("samples"), "samples")
    ]
    nodes = _nodes(samples)
    change = told.get("change") if isinstance(told.get("change"), dict) else None
    flipped = [node for node in nodes if node.reasons]
    moving = [node for node in nodes if any(delta > 0 for delta in node.moved.values())]
    spread = _is_spread(flipped, nodes)
    quiet = not any(node in moving for node in flipped)
    together = bool(spread and change is not None and quiet)
    faults = [f for node in nodes for f in _node_faults(node, together and node not in moving)]
    verdicts = _verdicts(nodes, moving, together, len(samples))
    incidents = (_incident(flipped, change or {}),) if together else ()
    text = "Nothing has to be done."
    if together:
        changed = _changed(change or {})
        text = (
            f"Hold automation and tell the owner of {changed['what']}: {len(flipped)} of {len(nodes)} nodes turned"
            " unhealthy with its upgrade while no counter moved. Drain and repair nothing for it."
        )
    elif faults:
        text = faults[0].next
    return Report(
        kind=KIND,
        files=tuple(item.name for item in inputs),
        truncated=False,
        faults=tuple(faults),
        incidents=incidents,
        verdicts=tuple(verdicts),
        values=_values(nodes, flipped),
        next=text,
    )


def _nodes(samples: Sequence[Sequence[Mapping[str, Any]]]) -> list[NodeChange]:
    nodes: dict[str, NodeChange] = {}
    first: dict[str, Mapping[str, Any]] = {}
    for sample in samples:
        present = {str(row.get("name", ""))[:200]: row for row in sample if row.get("name")}
        for name, row in present.items():
            node = nodes.setdefault(name, NodeChange(name))
            if name not in first:
                first[name] = row
                node.bad_before = bool(_bad(row))
            for counter, value in _counters(row).items():
                before = node.last.get(counter)
                if before is not None:
                    # A counter that shrank was reset; what it shows now came since.
                    step = value - before if value >= before else value
                    node.moved[counter] = node.moved.get(counter, 0.0) + step
                node.last[counter] = value
            old = _bad(first[name])
            node.reasons = [reason for reason in _bad(row) if reason not in old]
        for name, node in nodes.items():
            node.gone = name not in present
    return list(nodes.values())


def _counters(row: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for key, value in row.items():
        match = _COUNTER.match(str(key))
        told = number(value)
        if match is not None and told is not None:
            found[match["stem"]] = told
    return found


def _bad(row: Mapping[str, Any]) -> list[str]:
    """Reasons of the conditions that are bad. `...Ready` is good when True, a problem condition when False."""
    conditions = row.get("conditions")
    bad = []
    for condition in conditions if isinstance(conditions, list) else []:
        if not isinstance(condition, dict):
            continue
        kind, status = str(condition.get("type", "")), str(condition.get("status", ""))
        good = "True" if kind.casefold().endswith(_HEALTHY_WHEN_TRUE) else "False"
        if status in ("True", "False") and status != good:
            bad.append(str(condition.get("reason") or kind)[:200])
    return bad


def _is_spread(flipped: Sequence[NodeChange], nodes: Sequence[NodeChange]) -> bool:
    return len(flipped) >= LEAST_NODES and len(flipped) > MOST * len(nodes)


def _node_faults(node: NodeChange, excused: bool) -> list[ReadFault]:
    """A counter that moves, or a condition that nothing excuses."""
    entity = {"kind": "node", "pci": None, "name": node.name}
    moving = {name: tidy(delta) for name, delta in node.moved.items() if delta > 0}
    found = []
    if moving:
        name = next(iter(moving))
        found.append(
            fault(
                f"{name.replace('_', '-')}-rising",
                "counter",
                entity,
                Severity.WARNING,
                Scope.LINK,
                Hint.INSPECT,
                f"{name} rose by {moving[name]} between the samples",
                details={"reason": "counter-moving", "change": moving, "condition_reasons": node.reasons},
                next=f"Look at the NVLinks of {node.name}: which link counts, and what is at its far end.",
            )
        )
    elif node.reasons and not excused:
        found.append(
            fault(
                node.reasons[0],
                "node-condition",
                entity,
                Severity.UNKNOWN,
                Scope.NODE,
                Hint.INSPECT,
                f"A monitor reports {node.reasons[0]}",
                details={"reason": "condition-unexplained", "condition_reasons": node.reasons},
                confidence="low",
            )
        )
    return found


def _verdicts(
    nodes: Sequence[NodeChange], moving: Sequence[NodeChange], together: bool, samples: int
) -> list[Verdict]:
    found = []
    for node in nodes:
        if node in moving:
            found.append(Verdict(node.name, Result.WARN, "counter-moving"))
        elif node.gone:
            found.append(Verdict(node.name, Result.UNKNOWN, "not-in-last-sample"))
        elif samples < 2 or (not node.moved and node.last):
            found.append(
                Verdict(node.name, Result.UNKNOWN, "single-sample", "A lifetime total says nothing by its size.")
            )
        elif (node.reasons and not together) or (not node.moved and node.reasons):
            found.append(Verdict(node.name, Result.UNKNOWN, "condition-unexplained"))
        elif node.bad_before and not node.reasons:
            found.append(Verdict(node.name, Result.UNKNOWN, "condition-before"))
        else:
            found.append(Verdict(node.name, Result.PASS, "counter-not-moving" if node.moved else "no-faults"))
    kinds = {(verdict.result, verdict.reason) for verdict in found}
    if len(found) > 1 and len(kinds) == 1:
        return [Verdict("each-node", found[0].result, found[0].reason, found[0].message), *found]
    return found


def _changed(change: Mapping[str, Any]) -> dict[str, Any]:
    """What changed: the first bundled part whose version differs, else the component."""
    bundles = change.get("bundles")
    for name, versions in (bundles if isinstance(bundles, dict) else {}).items():
        if isinstance(versions, dict) and versions.get("from") != versions.get("to"):
            return {"what": str(name)[:80], "from": _text(versions.get("from")), "to": _text(versions.get("to"))}
    return {
        "what": str(change.get("component", "the monitor"))[:80],
        "from": _text(change.get("from")),
        "to": _text(change.get("to")),
    }


def _text(value: Any) -> str | None:
    return None if value is None else str(value)[:80]


def _incident(flipped: Sequence[NodeChange], change: Mapping[str, Any]) -> Incident:
    reasons = [reason for node in flipped for reason in node.reasons]
    code = max(dict.fromkeys(reasons), key=reasons.count)
    return Incident(
        root="monitor-change",
        members=(code,),
        severity=Severity.WARNING,
        scope=Scope.FLEET,
        hint=Hint.INSPECT,
        fields={
            "code": code,
            "changed": _changed(change),
            "component": _text(change.get("component")),
            "owner": "software",
            "action": "hold-automation",
            "nodes": [node.name for node in flipped][:1000],
        },
    )


def _values(nodes: Sequence[NodeChange], flipped: Sequence[NodeChange]) -> dict[str, Value]:
    names = {node.name for node in flipped}
    found = {
        "nodes_flipped": Value(len(flipped), more={"of": len(nodes)}),
        "nodes_not_flipped": Value([node.name for node in nodes if node.name not in names][:1000]),
        "repairs": Value(0),
        "drains": Value(0),
    }
    for counter in dict.fromkeys(name for node in nodes for name in node.moved):
        moved = {node.name: tidy(node.moved[counter]) for node in nodes if counter in node.moved}
        same = set(moved.values())
        if len(same) == 1:
            found[f"{counter}_change"] = Value(next(iter(moved.values())), more={"of": "each-node"})
        else:
            found[f"{counter}_change"] = Value(moved)
    return found
