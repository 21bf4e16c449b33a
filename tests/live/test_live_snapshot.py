"""Nodes as a snapshot recorded them against what their agents see now."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from muster import yamlio
from muster.configure.live.kinds import LiveNode
from muster.configure.live.snapshot import Recorded, against, read_recorded
from muster.configure.live.state import LiveState
from muster.configure.snapshot.file import content_of, json_text
from muster.configure.snapshot.model import ClusterSnapshot
from muster.errors import BadInputError
from muster.inventory.machine import Findings
from muster.inventory.record import snapshot_of
from muster.operate.model import BlockerKind
from muster.resources.base import ObjectMeta
from muster.resources.fingerprint import Reading, ReadingClass, fingerprint
from muster.resources.node_health import Blocker, Lifecycle, NodeHealth, NodeHealthStatus, Observed, State

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
CLASSES = {
    "gpu.0.uuid": ReadingClass.IDENTITY,
    "driver.version": ReadingClass.STACK,
    "sysctl.vm.swappiness": ReadingClass.CONFIG,
    "boot.id": ReadingClass.VOLATILE,
    "cuda.driver_version": ReadingClass.STACK,
    "module.gdrdrv": ReadingClass.STACK,
}


def readings(**values: str) -> tuple[Reading, ...]:
    named = {name.replace("__", "."): value for name, value in values.items()}
    return tuple(Reading(name=n, value=v, reading_class=CLASSES[n]) for n, v in named.items())


BASE = {"gpu__0__uuid": "G1", "driver__version": "580.1", "sysctl__vm__swappiness": "10", "boot__id": "b1"}


def live(**values: str) -> LiveState:
    observed = Observed(observed_at=NOW, node_uid="u", boot_id="b", fingerprint=fingerprint(readings(**values)))
    health = NodeHealth(metadata=ObjectMeta(name="n1"), status=NodeHealthStatus(observed=observed))
    node = msgspec.convert({"metadata": {"name": "n1"}}, LiveNode)
    return LiveState(now=NOW, nodes=(node,), node_healths=(health,))


def found(before: dict[str, str], after: dict[str, str], unknown: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    recorded = Recorded("n1", readings(**before), unknown)
    return [(d.drift_class.value, d.path) for d in against((recorded,), live(**after))]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"boot__id": "b2"}, []),
        ({"gpu__0__uuid": "G2"}, [("node-identity", "gpu.0.uuid")]),
        ({"driver__version": "570"}, [("node-stack", "driver.version")]),
        ({"sysctl__vm__swappiness": "60"}, [("node-config", "sysctl.vm.swappiness")]),
        ({"module__gdrdrv": "2.5"}, [("node-stack", "module.gdrdrv")]),
    ],
)
def test_a_change_is_classed_and_volatile_readings_never_count(
    change: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    assert found(BASE, BASE | change) == expected


def test_what_only_one_side_can_read_is_no_change() -> None:
    assert found(BASE | {"cuda__driver_version": "13.0"}, BASE) == []
    assert found(BASE, BASE | {"cuda__driver_version": "13.0"}) == []
    assert found(BASE, BASE | {"module__gdrdrv": "2.5"}, unknown=("module.gdrdrv",)) == []


def test_a_reading_that_agents_make_and_is_gone_is_a_change() -> None:
    assert found(BASE | {"module__gdrdrv": "2.5"}, BASE) == [("node-stack", "module.gdrdrv")]


def test_a_node_that_is_gone_or_silent_is_told() -> None:
    recorded = (Recorded("n1", readings(**BASE)), Recorded("n2", readings(**BASE)))
    assert [(d.node, d.found) for d in against(recorded, live(**BASE))] == [("n2", "no such node")]
    unread = LiveState(now=NOW, unread={("nodehealths.muster.dev", ""): "not allowed"})
    assert list(against(recorded, unread)) == []


def test_a_node_whose_agent_is_silent_is_not_compared_with_what_it_said_last() -> None:
    state = live(**BASE)
    (health,) = state.node_healths
    blocker = Blocker(kind=BlockerKind.AGENT.value, message="The agent of the node is silent.", since=NOW)
    lifecycle = Lifecycle(state=State.IN_SERVICE, since=NOW, blockers=(blocker,))
    status = msgspec.structs.replace(health.status, lifecycle=lifecycle)
    state = replace(state, node_healths=(msgspec.structs.replace(health, status=status),))
    (drift,) = against((Recorded("n1", readings(**BASE)),), state)
    assert (drift.node, drift.found) == ("n1", "no agent reports it")


def test_the_file_of_a_snapshot_is_read_and_others_are_refused(tmp_path: Path) -> None:
    findings = Findings()
    for reading in readings(**BASE):
        findings.add(reading.name, reading.value)
    findings.miss("gpu.0.vbios", "why")
    path = tmp_path / "s.yaml"
    path.write_text(yamlio.dumps(content_of(snapshot_of(findings, "n1", NOW))))
    (recorded,) = read_recorded(path)
    assert (recorded.node, recorded.unknown) == ("n1", ("gpu.0.vbios",))
    assert {r.name for r in recorded.readings} == {name.replace("__", ".") for name in BASE}
    path.write_text("kind: Recipe\n")
    with pytest.raises(BadInputError):
        read_recorded(path)


def test_a_snapshot_without_readings_of_nodes_says_what_they_need(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json_text(ClusterSnapshot(taken_at=NOW)))
    with pytest.raises(
        BadInputError, match=r"'muster snapshot --all-nodes'; each node needs Muster's agent for that\.$"
    ):
        read_recorded(path)
