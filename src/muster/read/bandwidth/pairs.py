"""Bandwidth of pairs of nodes: which node is good, which link is slow, and what to test next.

A pair at full speed clears both its nodes. A slow pair whose two ends are clear is a slow link. A node that is slow
with two clear partners at least, and fast with none, is itself slow. The rest is unknown until one more test is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from muster.errors import BadInputError
from muster.read.bandwidth.detect import PAIRS_KIND, pair_columns
from muster.read.bandwidth.expectation import Expectation, expectation
from muster.read.report import ReadFault, Report, Result, Value, Verdict
from muster.read.source import Context, Input
from muster.read.tables.source import csv_rows, number, tidy
from muster.resources.fault import Hint, Scope, Severity

FLOOR_OF_REFERENCE = 0.9
"""Where a reference is told but no floor, this share of it is the floor."""
FLOOR_OF_MEDIAN = 0.8
MIN_PEERS = 3
PARTNERS = 2
"""Clear partners with which a node must be slow before it is named: one slow pair may be its link."""
ANY_OTHER = "any-node-not-tested-with-it"

Pair = tuple[str, str]


@dataclass(frozen=True)
class Picture:
    """What the pairs say. `nodes`, `links`: PASS, FAIL or UNKNOWN with the reason."""

    nodes: Mapping[str, tuple[Result, str]]
    links: Mapping[Pair, tuple[Result, str]]


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Read all tables together. Raises BadInputError for a row that cannot be read."""
    readings: dict[Pair, list[float | None]] = {}
    for item in inputs:
        _read(item, readings)
    if not readings:
        raise BadInputError(f"{inputs[0].name} has no pair; give one line for each pair of nodes.")
    told = expectation(context, inputs[0].name)
    measured = {pair: [v for v in values if v is not None] for pair, values in readings.items()}
    floor = _floor(told, measured)
    picture = judge(measured, floor)
    reference = _reference(told, measured, floor)
    faults = _faults(picture, measured, reference)
    verdicts = [Verdict(node, *picture.nodes[node]) for node in sorted(picture.nodes, key=natural)]
    verdicts += [
        Verdict(f"link {link[0]}--{link[1]}", *picture.links[link]) for link in sorted(picture.links, key=_by_ends)
    ]
    return Report(
        kind=PAIRS_KIND,
        files=tuple(item.name for item in inputs),
        truncated=False,
        faults=faults,
        verdicts=tuple(verdicts),
        values=_values(picture, measured, floor, reference),
        next=_next(picture, faults),
    )


def judge(measured: Mapping[Pair, Sequence[float]], floor: float | None) -> Picture:
    """The verdict on every node and link. Pairs are (a, b) with a before b; a pair without a number says nothing."""
    if floor is None:
        nodes = {node: (Result.UNKNOWN, "no-floor") for pair in measured for node in pair}
        return Picture(nodes, dict.fromkeys(measured, (Result.UNKNOWN, "no-floor")))
    fast = {pair for pair, values in measured.items() if values and min(values) >= floor}
    slow = {pair for pair, values in measured.items() if values and max(values) < floor}
    clear = {node for pair in fast for node in pair}
    partners: dict[str, set[str]] = {}
    for a, b in slow:
        partners.setdefault(a, set()).add(b)
        partners.setdefault(b, set()).add(a)
    nodes = {}
    for node in sorted({node for pair in measured for node in pair}):
        with_clear = partners.get(node, set()) & clear
        if node in clear:
            nodes[node] = (Result.PASS, "full-speed-with-a-partner")
        elif len(with_clear) >= PARTNERS:
            nodes[node] = (Result.FAIL, "bandwidth")
        else:
            nodes[node] = (Result.UNKNOWN, "node-or-link" if node in partners else "no-reading")
    return Picture(nodes, {pair: _link(pair, measured[pair], fast, slow, nodes) for pair in measured})


def _link(
    pair: Pair, values: Sequence[float], fast: set[Pair], slow: set[Pair], nodes: Mapping[str, tuple[Result, str]]
) -> tuple[Result, str]:
    if pair in fast:
        return Result.PASS, "bandwidth"
    if pair not in slow:
        return Result.UNKNOWN, "not-repeatable" if values else "no-reading"
    ends = [nodes[node][0] for node in pair]
    if ends == [Result.PASS, Result.PASS]:
        return Result.FAIL, "bandwidth"
    return Result.UNKNOWN, "node-explains-it" if Result.FAIL in ends else "node-or-link"


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts names by the numbers in them: node-2 before node-10."""
    return tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in re.findall(r"\d{1,18}|\D+", name))


def _by_ends(pair: Pair) -> tuple[object, object]:
    return natural(pair[0]), natural(pair[1])


def _read(item: Input, readings: dict[Pair, list[float | None]]) -> None:
    header, rows = csv_rows(item)
    columns = pair_columns([name.lower() for name in header])
    if columns is None:
        raise BadInputError(f"{item.name} needs the columns node_a, node_b and busbw_gb_s.")
    a_name, b_name, rate_name = (header[i] for i in columns)
    for position, row in enumerate(rows, start=1):
        a, b = row.get(a_name, "")[:253], row.get(b_name, "")[:253]
        if not a or not b or a == b:
            raise BadInputError(f"Row {position} of {item.name} must name two different nodes.")
        value = number(row.get(rate_name))
        if value is not None and value < 0:
            raise BadInputError(f"Row {position} of {item.name} has a bandwidth below zero.")
        pair = (a, b) if natural(a) <= natural(b) else (b, a)
        readings.setdefault(pair, []).append(value if value else None)  # 0 GB/s: nothing was measured


def _floor(told: Expectation, measured: Mapping[Pair, Sequence[float]]) -> float | None:
    if told.floor_gb_s is not None:
        return told.floor_gb_s
    if told.reference_gb_s is not None:
        return FLOOR_OF_REFERENCE * told.reference_gb_s
    if told.node_wire_gb_s is not None and told.floor_share_of_wire is not None:
        return told.node_wire_gb_s * told.floor_share_of_wire
    values = [median(found) for found in measured.values() if found]
    return FLOOR_OF_MEDIAN * median(values) if len(values) >= MIN_PEERS else None


def _reference(told: Expectation, measured: Mapping[Pair, Sequence[float]], floor: float | None) -> float | None:
    """What a good pair reaches: told, or the median of the fast ones."""
    if told.reference_gb_s is not None:
        return told.reference_gb_s
    good = [median(found) for found in measured.values() if found and floor is not None and min(found) >= floor]
    return median(good) if good else floor


def _faults(
    picture: Picture, measured: Mapping[Pair, Sequence[float]], reference: float | None
) -> tuple[ReadFault, ...]:
    faults = []
    for node in sorted(picture.nodes, key=natural):
        if picture.nodes[node][0] is Result.FAIL:
            slow = [median(v) for pair, v in measured.items() if node in pair and v]
            slow_node = {"kind": "node", "name": node, "pci": None}
            faults.append(_fault("slow-node", slow_node, Scope.NODE, max(slow), len(slow), reference))
    for link in sorted(picture.links, key=_by_ends):
        if picture.links[link][0] is Result.FAIL:
            who: dict[str, object] = {
                "kind": "link",
                "name": f"{link[0]}--{link[1]}",
                "between": list(link),
                "pci": None,
            }
            values = measured[link]
            faults.append(_fault("slow-pair", who, Scope.FABRIC, median(values), len(values), reference))
    return tuple(faults)


def _fault(
    code: str, entity: Mapping[str, object], scope: Scope, value: float, count: int, reference: float | None
) -> ReadFault:
    who = str(entity["name"])
    link = code == "slow-pair"
    known = {"value": tidy(reference), "unit": "GB/s"} if reference is not None else None
    return ReadFault(
        code=code,
        kind="pairwise",
        entity=entity,
        severity=Severity.WARNING,
        scope=scope,
        hint=Hint.INSPECT,
        name="two good nodes form a slow pair" if link else "slow with every partner",
        count=count,
        count_is="exact",
        first=None,
        last=None,
        details={"measured": {"value": tidy(value), "unit": "GB/s"}, "reference": known},
        evidence=(),
        next=f"Look at the path between both ends of {who}: routing, cables, switch ports. Both nodes are good."
        if link
        else f"Take {who} out of production and look at its adapters; it was slow with every good partner.",
    )


def _values(
    picture: Picture, measured: Mapping[Pair, Sequence[float]], floor: float | None, reference: float | None
) -> dict[str, Value]:
    values = {"pairs": Value(len(measured)), "nodes": Value(len(picture.nodes))}
    if floor is not None:
        values["floor"] = Value(tidy(round(floor, 4)), "GB/s")
    if reference is not None:
        values["reference"] = Value(tidy(round(reference, 4)), "GB/s")
    waiting = _unknown(picture)
    if waiting:
        values["next_test"] = Value([waiting[0], ANY_OTHER])
        values["nodes_to_test"] = Value(waiting)
    return values


def _unknown(picture: Picture) -> list[str]:
    return sorted((n for n, (result, _) in picture.nodes.items() if result is Result.UNKNOWN), key=natural)


def _next(picture: Picture, faults: Sequence[ReadFault]) -> str:
    if faults:
        return faults[0].next
    waiting = _unknown(picture)
    if waiting and picture.nodes[waiting[0]][1] == "no-floor":
        return "Tell what a good pair reaches (floor_gb_s or reference_gb_s in the context)."
    if waiting:
        return f"Test {waiting[0]} with a node that it was not tested with; until then nothing can be said about it."
    again = next((pair for pair, verdict in picture.links.items() if verdict[1] == "not-repeatable"), None)
    if again is not None:
        return f"Run {again[0]}--{again[1]} again, several times: its results differ from run to run."
    return "Nothing has to be done."
