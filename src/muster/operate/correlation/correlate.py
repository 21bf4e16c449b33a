"""The same finding on many nodes speaks of something that they share: automation holds back. Pure.

Three ways in which findings belong together, each with a cap on what rules may do and a sentence for people:

- a `Correlation` of the policy: so many nodes of a domain, pool or cluster within a short time;
- after a change: nodes on which the same thing changed not long before, while nodes without the finding mostly lack
  the change. Roll-outs go in waves, so the findings may lie hours apart;
- after a new agent: whatever a new version of the agent begins to report on several nodes. What changed is the eye,
  not the fleet, so the kinds of the findings do not matter, nor what the rules say.

What is named as the cause is a plain contrast of counts, with the counts in the sentence; no probability is made up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from muster.operate.budget import allowance
from muster.operate.correlation.model import (
    AGENT_CHANGE,
    AGENT_REACH_S,
    Change,
    Correlated,
    Correlations,
    FleetNode,
    NodeFinding,
)
from muster.operate.policy import EffectivePolicy
from muster.operate.rules import Vocabulary, finding_values, holds
from muster.resources.fault_policy import CorrelateOver, Correlation, Disposition
from muster.resources.topology import domain_of, pool_of

CHANGE_NODES = 3
"""A change is named, and a new agent doubted, from so many nodes on: one or two say nothing about it."""
CHANGE_REACH_S = 6 * 3600
"""A finding so long after a change of its node may come from it."""
MOSTLY = 0.8
"""A change stands out when at least this share of the nodes with the finding has it ..."""
MOSTLY_LACK = 0.5
"""... and at most this share of the nodes without the finding."""
SHOWN = 4
AFTER_CHANGE = "after-change"
AFTER_AGENT = "after-new-agent"
ANY = "any"


class _Fleet:
    """The nodes, sorted by what they share; worked out once for all findings."""

    def __init__(self, nodes: Mapping[str, FleetNode]) -> None:
        self.nodes = nodes
        self.changed: dict[str, set[str]] = {}
        """Key of a change -> nodes that had it, whenever that was."""
        self.members: dict[str, set[str]] = {}
        """Failure domain -> its nodes."""
        for name, node in nodes.items():
            for change in node.changes:
                self.changed.setdefault(change.key, set()).add(name)
            domain = domain_of(node.labels)
            if domain is not None:
                self.members.setdefault(domain, set()).add(name)


@dataclass(frozen=True)
class _Found:
    correlated: Correlated
    keys: Mapping[str, tuple[str, ...]]
    """Node -> keys under which it is looked up."""
    halts: tuple[str, ...] = ()


def correlate(
    policies: Mapping[str, EffectivePolicy],
    nodes: Mapping[str, FleetNode],
    findings: Iterable[NodeFinding],
    now: datetime,
) -> Correlations:
    """What belongs together now. `policies` and `nodes` cover the whole fleet, with and without findings.

    The order of the inputs does not matter. `now` bounds nothing but findings from the future, which count as now.
    """
    ordered = sorted(
        (replace(f, at=min(f.at, now)) for f in findings if f.node in nodes and f.node in policies),
        key=lambda f: (f.node, f.fault.key(), f.at),
    )
    if not ordered:
        return Correlations()
    fleet = _Fleet(nodes)
    found = [
        *_after_agent(nodes, ordered),
        *_after_change(fleet, ordered),
        *_configured(policies, fleet, ordered),
    ]
    by_node: dict[str, dict[str, Correlated]] = {}
    halted: dict[str, str] = {}
    for item in found:
        for node in sorted(item.keys):
            for key in item.keys[node]:
                own = by_node.setdefault(node, {})
                known = own.get(key)
                if known is None or _order(item.correlated) < _order(known):
                    own[key] = item.correlated
        for rollout in item.halts:
            halted.setdefault(rollout, item.correlated.message)
    return Correlations(
        by_node={node: dict(sorted(by_node[node].items())) for node in sorted(by_node)},
        halted=dict(sorted(halted.items())),
    )


def _order(correlated: Correlated) -> tuple[int, bool, int, str]:
    """The mildest cap wins; of equal ones that which names a change, then that of more nodes."""
    rank = tuple(Disposition).index(correlated.disposition)
    return rank, not correlated.change, -len(correlated.nodes), correlated.correlation


# After a new agent


def _after_agent(nodes: Mapping[str, FleetNode], findings: Sequence[NodeFinding]) -> list[_Found]:
    after: dict[str, list[tuple[NodeFinding, Change]]] = {}
    for finding in findings:
        for change in nodes[finding.node].changes:
            if change.name == AGENT_CHANGE and _follows(finding, change, AGENT_REACH_S):
                after.setdefault(change.key, []).append((finding, change))
    found = []
    for key in sorted(after):
        names = sorted({f.node for f, _ in after[key]})
        if len(names) < CHANGE_NODES:
            continue
        change = min((c for _, c in after[key]), key=lambda c: (c.before, c.at))
        kinds = sorted({f.kind for f, _ in after[key]})
        message = (
            f"{_list(names)} report {_list(kinds)} since their agent changed ({change.words()}). A new agent that "
            "finds faults on many nodes at once is doubted first: nothing is held for them. Look at one node by "
            "hand; roll the agent back if it is wrong."
        )
        own: dict[str, set[str]] = {}
        for finding, _ in after[key]:
            own.setdefault(finding.node, set()).add(finding.fault.key())
        keys = {name: tuple(sorted(own[name])) for name in names}
        since = min(f.at for f, _ in after[key])
        words = f"{change.words()}, {len(names)} nodes"
        correlated = Correlated(
            AFTER_AGENT, "cluster", ANY, tuple(names), since, words, Disposition.CONDITION, message
        )
        found.append(_Found(correlated, keys, halts=_rollouts((change,))))
    return found


# After a change


def _after_change(fleet: _Fleet, findings: Sequence[NodeFinding]) -> list[_Found]:
    by_kind: dict[str, list[NodeFinding]] = {}
    for finding in findings:
        by_kind.setdefault(finding.kind, []).append(finding)
    found = []
    for kind in sorted(by_kind):
        if len({f.node for f in by_kind[kind]}) < CHANGE_NODES:
            continue
        shared = _shared_change(fleet, by_kind[kind], everywhere=False)
        if shared is None:
            continue
        names = shared.names
        message = (
            f"{kind} was found on {_list(names)} after {shared.words}. Automation holds back and the roll-out is "
            "halted until a person has looked."
        )
        since = min(f.at for f in by_kind[kind] if f.node in names)
        correlated = Correlated(
            AFTER_CHANGE, "cluster", kind, names, since, shared.words, Disposition.CONDITION, message
        )
        found.append(_Found(correlated, dict.fromkeys(names, (kind,)), halts=_rollouts(shared.changes)))
    return found


@dataclass(frozen=True)
class _Shared:
    changes: tuple[Change, ...]
    """More than one: the same nodes had them, so nothing tells which it was."""
    names: tuple[str, ...]
    """Nodes with the finding and, before it, the change."""
    words: str


def _shared_change(fleet: _Fleet, findings: Sequence[NodeFinding], *, everywhere: bool) -> _Shared | None:
    """The change that most nodes with the finding had before it and that the other nodes mostly lack.

    `everywhere`: name it also when no node is left to compare with, in other words.
    """
    had: dict[str, dict[str, Change]] = {}
    for finding in findings:
        for change in fleet.nodes[finding.node].changes:
            if change.name != AGENT_CHANGE and _follows(finding, change, CHANGE_REACH_S):
                had.setdefault(change.key, {}).setdefault(finding.node, change)
    best: tuple[float, tuple[str, ...], str] | None = None
    changes: list[Change] = []
    for key in sorted(had):
        if len(had[key]) < CHANGE_NODES:
            continue
        having, lacking, others = _compared(fleet, findings, key, min(c.at for c in had[key].values()))
        names = tuple(name for name in sorted(had[key]) if name in having)
        if len(names) < CHANGE_NODES or len(names) < MOSTLY * len(having):
            continue
        if (lacking and others > MOSTLY_LACK * lacking) or not (lacking or everywhere):
            continue
        rest = (
            f"{others} of {lacking} without it" if lacking else "no node is left to compare with, so it is not proved"
        )
        counts = f"{len(names)} of {len(having)} nodes with the finding, {rest}"
        score = -(len(names) / len(having)) + (others / lacking if lacking else 1.0)
        if best is None or score < best[0]:
            best, changes = (score, names, counts), [had[key][names[0]]]
        elif (score, names, counts) == best:
            changes.append(had[key][names[0]])
    if best is None:
        return None
    return _Shared(tuple(changes), best[1], f"{' or '.join(c.words() for c in changes)}, {best[2]}")


def _compared(fleet: _Fleet, findings: Sequence[NodeFinding], key: str, start: datetime) -> tuple[set[str], int, int]:
    """Nodes with the finding; how many have it not, and how many of these have the change `key` all the same.

    Findings from before `start`, when the change began, say nothing about it. Nor does a domain that has the finding
    nearly everywhere and mostly lacks the change: that domain is the cause there.
    """
    # By key alone: whenever it changed, a node that runs the same and is fine speaks against the change.
    changed = fleet.changed[key]
    having = {f.node for f in findings if f.at >= start}
    left_out = {f.node for f in findings}
    if not having <= changed:
        for domain in sorted({domain_of(fleet.nodes[name].labels) or "" for name in having}):
            members = fleet.members.get(domain, set())
            whole = len(members) >= CHANGE_NODES and len(members & having) >= MOSTLY * len(members)
            if whole and len(members & changed) <= MOSTLY_LACK * len(members):
                left_out |= members
                having = having - members
    # Counted, not listed: a group of a few nodes must not cost a walk over the fleet.
    return having, len(fleet.nodes) - len(left_out), len(changed) - len(changed & left_out)


def _rollouts(changes: Sequence[Change]) -> tuple[str, ...]:
    """The names under which the waves know `changes`, each once."""
    return tuple(sorted({change.rollout or change.key for change in changes}))


def _follows(finding: NodeFinding, change: Change, reach_s: int) -> bool:
    return change.at <= finding.at <= change.at + timedelta(seconds=reach_s)


# Correlations of the policy


def _configured(
    policies: Mapping[str, EffectivePolicy], fleet: _Fleet, findings: Sequence[NodeFinding]
) -> list[_Found]:
    nodes = fleet.nodes
    matching: dict[Correlation, dict[tuple[str, str], list[NodeFinding]]] = {}
    for finding in findings:
        labels = nodes[finding.node].labels
        values = finding_values(finding.fault, finding.node, labels)
        for correlation in policies[finding.node].correlations:
            group = _group(correlation.over, labels)
            if not correlation.enabled or group is None:
                continue
            if holds(correlation.when, values, Vocabulary.FINDING) is True:
                matching.setdefault(correlation, {}).setdefault((group, finding.kind), []).append(finding)
    found: list[_Found] = []
    for correlation in sorted(matching, key=repr):
        groups = matching[correlation]
        sizes = _sizes(correlation, policies, nodes)
        for group, kind in sorted(groups):
            needed = max(correlation.at_least, allowance(correlation.at_least_share, sizes[group]))
            together = _together(groups[group, kind], correlation.within_s, needed)
            names = tuple(sorted({f.node for f in together}))
            if names:
                found.append(_of_policy(correlation, group, kind, names, sizes[group], together, fleet))
    return found


def _group(over: CorrelateOver, labels: Mapping[str, str]) -> str | None:
    match over:
        case CorrelateOver.DOMAIN:
            return domain_of(labels)
        case CorrelateOver.POOL:
            return pool_of(labels)
        case CorrelateOver.CLUSTER:
            return "cluster"
        case _:
            assert_never(over)


def _sizes(
    correlation: Correlation, policies: Mapping[str, EffectivePolicy], nodes: Mapping[str, FleetNode]
) -> dict[str, int]:
    """How many nodes each group has under this correlation."""
    under: dict[int, bool] = {}
    sizes: dict[str, int] = {}
    for name, policy in policies.items():
        # Nodes share few policies; asking by identity keeps ten thousand nodes cheap.
        known = under.get(id(policy))
        if known is None:
            known = under[id(policy)] = correlation in policy.correlations
        group = _group(correlation.over, nodes[name].labels) if known and name in nodes else None
        if group is not None:
            sizes[group] = sizes.get(group, 0) + 1
    return sizes


def _together(findings: Sequence[NodeFinding], within_s: int, needed: int) -> list[NodeFinding]:
    """The findings that lie in some window of `within_s` with at least `needed` nodes.

    A correlation that was reached stays while its findings are open: their times do not change.
    """
    by_time = sorted(findings, key=lambda f: (f.at, f.node))
    span = timedelta(seconds=within_s)
    inside: Counter[str] = Counter()
    kept = [False] * len(by_time)
    start = marked = 0
    for end, finding in enumerate(by_time):
        inside[finding.node] += 1
        while finding.at - by_time[start].at > span:
            left = by_time[start].node
            inside[left] -= 1
            if not inside[left]:
                del inside[left]
            start += 1
        if len(inside) >= needed:
            for index in range(max(start, marked), end + 1):
                kept[index] = True
            marked = end + 1
    return [f for f, inside_one in zip(by_time, kept, strict=True) if inside_one]


def _of_policy(
    correlation: Correlation,
    group: str,
    kind: str,
    names: tuple[str, ...],
    size: int,
    findings: Sequence[NodeFinding],
    fleet: _Fleet,
) -> _Found:
    where = "the cluster" if correlation.over is CorrelateOver.CLUSTER else f"{correlation.over.value} {group}"
    shared = _shared_change(fleet, findings, everywhere=True)
    told = (
        f" They have in common: {shared.words}." if shared is not None else " No change stands out that they share."
    )
    message = (
        f"{kind} was found on {len(names)} of {size} nodes of {where} in a short time (windows of "
        f"{correlation.within_s} s; {_list(names)}): that speaks of something they share, not of single nodes.{told}"
    )
    since = min(f.at for f in findings)
    correlated = Correlated(
        correlation.name,
        group,
        kind,
        names,
        since,
        shared.words if shared is not None else "",
        correlation.disposition,
        message,
    )
    halts = _rollouts(shared.changes) if shared is not None else ()
    return _Found(correlated, dict.fromkeys(names, (kind,)), halts=halts)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
