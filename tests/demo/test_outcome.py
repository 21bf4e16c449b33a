"""Verdicts are compared with what was planted, and nothing wrong is overlooked."""

from __future__ import annotations

import json
from dataclasses import replace

from muster.demo.outcome import Named, Planted, fleet_lines, to_values, verdict_lines
from tests.demo.samples import outcome


def test_everything_planted_and_nothing_else_is_exact() -> None:
    told = outcome()
    assert told.exact
    assert verdict_lines(told)[-1] == "3 of 3 planted defects named, 0 innocent."


def test_each_planted_defect_stands_beside_who_named_it() -> None:
    lines = verdict_lines(outcome())
    assert lines[0].startswith("named   node-02: repair-1 (compute); xid/119/gpu/GPU-3 (fault)")
    assert lines[0].endswith("Planted: GPU 3 of node-02 raises XID 119.")
    assert lines[2].startswith("named   link node-02 - node-09: repair-1 (link)")


def test_a_link_without_defect_is_an_innocent() -> None:
    told = outcome(planted_link=False)
    assert not told.exact
    assert [n.nodes for n in told.innocents] == [("node-02", "node-09")]
    assert any(line.startswith("WRONG   link node-02 - node-09") for line in verdict_lines(told))


def test_a_defect_that_nobody_named_is_missed() -> None:
    told = outcome()
    more = replace(told, planted=(*told.planted, Planted(("node-08",), "it is slow")))
    assert [p.nodes for p in more.missed] == [("node-08",)]
    assert "MISSED  node-08. Planted: it is slow." in verdict_lines(more)


def test_naming_a_node_does_not_count_for_a_link() -> None:
    told = outcome()
    only_nodes = replace(told, named=tuple(n for n in told.named if len(n.nodes) == 1))
    assert [p.nodes for p in only_nodes.missed] == [("node-02", "node-09")]
    blamed = replace(only_nodes, named=(*only_nodes.named, Named(("node-09",), "c", "", "")))
    assert [n.nodes for n in blamed.innocents] == [("node-09",)]


def test_the_fleet_is_counted_and_tickets_are_shown() -> None:
    lines = fleet_lines(outcome())
    assert lines[0] == "1 InService, 1 OutOfService, 1 Repairing."
    assert "node-03  OutOfService  INC-00042" in lines


def test_values_are_plain_json_and_say_simulated() -> None:
    values = json.loads(json.dumps(to_values(outcome())))
    assert values["simulated"] is True
    assert values["settled"] is True
    assert values["innocents"] == []
