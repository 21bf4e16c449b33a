"""Nodes: how they begin, what the control plane writes on them beside Muster, and what becomes of their pods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muster.operate.carry_out import patch_for
from muster.operate.projection import condition
from muster.operate.views import node_record
from muster.resources.base import CORDON_ANNOTATION, HEALTH_CONDITION, HOLD_TAINT, STATE_LABEL
from muster.resources.node_health import Cause, CauseKind, Episode, Lifecycle, State
from tests.contract.client import STRATEGIC, Client
from tests.contract.definitions import updated_by
from tests.contract.server import Server, eventually
from tests.contract.workloads import Place, node, pod

NOT_READY = "node.kubernetes.io/not-ready"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
POD_GC_S = 120.0
"""The pod garbage collector waits 40 s for a Node to come back and looks every 20 s."""
NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
AT = "2026-01-05T08:00:00Z"


@pytest.fixture
def name(server: Server) -> str:
    return server.unique("node")


def path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


def taints(admin: Client, name: str) -> list[tuple[str, str]]:
    """Key and effect of every taint, in order."""
    return [(t["key"], t["effect"]) for t in admin.get(path(name)).ok()["spec"].get("taints", [])]


def make_settled(admin: Client, name: str, **metadata: Any) -> dict[str, Any]:
    """A Node that the controllers have dealt with."""
    admin.create("/api/v1/nodes", node(name, **metadata)).ok()
    eventually(lambda: taints(admin, name) == [] and annotated(admin, name))
    return admin.get(path(name)).ok()


def annotated(admin: Client, name: str) -> bool:
    return "node.alpha.kubernetes.io/ttl" in admin.get(path(name)).ok()["metadata"].get("annotations", {})


# Registration


def test_a_new_node_keeps_its_status_and_starts_not_ready(admin: Client, name: str) -> None:
    sent = node(name)
    sent["status"]["nodeInfo"] = {"bootID": "boot-1", "kernelVersion": "6.1"}
    made = admin.create("/api/v1/nodes", sent).ok()
    assert made["spec"]["taints"] == [{"key": NOT_READY, "effect": "NoSchedule"}]
    assert made["status"]["capacity"] == sent["status"]["capacity"]
    assert made["status"]["conditions"] == sent["status"]["conditions"]
    assert made["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    info = made["status"]["nodeInfo"]
    assert (info["bootID"], info["kernelVersion"], info["machineID"]) == ("boot-1", "6.1", "")


def test_what_can_be_allocated_is_all_there_is_unless_told(admin: Client, name: str) -> None:
    sent = node(name)
    del sent["status"]["allocatable"]
    assert admin.create("/api/v1/nodes", sent).ok()["status"]["allocatable"] == sent["status"]["capacity"]


def test_taints_of_the_registration_come_first(admin: Client, name: str) -> None:
    sent = node(name)
    sent["spec"] = {"taints": [{"key": HOLD_TAINT, "value": "new-node", "effect": "NoSchedule"}]}
    made = admin.create("/api/v1/nodes", sent).ok()
    assert [t["key"] for t in made["spec"]["taints"]] == [HOLD_TAINT, NOT_READY]


@pytest.mark.usefixtures("controllers")
def test_a_ready_node_loses_the_first_taint(admin: Client, name: str) -> None:
    sent = node(name)
    sent["spec"] = {"taints": [{"key": HOLD_TAINT, "value": "new-node", "effect": "NoSchedule"}]}
    admin.create("/api/v1/nodes", sent).ok()
    eventually(lambda: taints(admin, name) == [(HOLD_TAINT, "NoSchedule")])
    eventually(lambda: annotated(admin, name))


# Taints that the node lifecycle controller writes


@pytest.mark.usefixtures("controllers")
def test_a_cordon_is_a_taint_as_well(admin: Client, name: str) -> None:
    make_settled(admin, name)
    admin.patch(path(name), {"spec": {"unschedulable": True}}).ok()
    eventually(lambda: taints(admin, name) == [(UNSCHEDULABLE, "NoSchedule")])
    (taint,) = admin.get(path(name)).ok()["spec"]["taints"]
    assert "timeAdded" in taint
    owned = updated_by(admin.get(path(name)).ok(), "kube-controller-manager")
    assert owned["f:spec"] == {"f:taints": {}}
    assert owned["f:metadata"] == {"f:annotations": {".": {}, "f:node.alpha.kubernetes.io/ttl": {}}}
    admin.patch(path(name), {"spec": {"unschedulable": None}}).ok()
    eventually(lambda: taints(admin, name) == [])


@pytest.mark.usefixtures("controllers")
def test_conditions_become_taints(admin: Client, name: str) -> None:
    make_settled(admin, name)

    def report(**conditions: str) -> None:
        entries = [{"type": kind, "status": status} for kind, status in conditions.items()]
        admin.patch(f"{path(name)}/status", {"status": {"conditions": entries}}, STRATEGIC).ok()

    report(Ready="False")
    eventually(lambda: taints(admin, name)[:1] == [(NOT_READY, "NoSchedule")])
    report(Ready="True", DiskPressure="True")
    eventually(lambda: taints(admin, name) == [("node.kubernetes.io/disk-pressure", "NoSchedule")])
    report(DiskPressure="False")
    eventually(lambda: taints(admin, name) == [])


# What Muster writes


@pytest.mark.usefixtures("controllers")
def test_the_projection_of_a_lifecycle_and_the_controllers_share_a_node(admin: Client, name: str) -> None:
    made = make_settled(admin, name, labels={"keep": "me"})
    held = held_life()
    patch = patch_for(made, held)
    patch.setdefault("metadata", {})["resourceVersion"] = made["metadata"]["resourceVersion"]
    written = admin.patch(path(name), patch).ok()
    assert written["metadata"]["labels"][STATE_LABEL] == held.state.value
    assert written["metadata"]["labels"]["keep"] == "me"
    assert written["metadata"]["annotations"][CORDON_ANNOTATION] == "episode-1"
    assert written["spec"]["unschedulable"] is True
    assert (HOLD_TAINT, "NoSchedule") in [(t["key"], t["effect"]) for t in written["spec"]["taints"]]
    eventually(lambda: taints(admin, name) == [(HOLD_TAINT, "NoSchedule"), (UNSCHEDULABLE, "NoSchedule")])
    assert patch_for(admin.get(path(name)).ok(), held) == {}, "nothing is left to write"

    stale = admin.patch(path(name), patch)
    assert stale.refused(409, "Conflict") == (
        f'Operation cannot be fulfilled on nodes "{name}": the object has been modified; please apply your changes '
        "to the latest version and try again"
    )

    now = admin.get(path(name)).ok()
    free = patch_for(now, free_life())
    free.setdefault("metadata", {})["resourceVersion"] = now["metadata"]["resourceVersion"]
    admin.patch(path(name), free).ok()
    eventually(lambda: taints(admin, name) == [])
    last = admin.get(path(name)).ok()
    assert "unschedulable" not in last["spec"]
    assert CORDON_ANNOTATION not in last["metadata"]["annotations"]
    assert patch_for(last, free_life()) == {}


def held_life() -> Lifecycle:
    """A node that Muster keeps work away from."""
    episode = Episode(id="episode-1", cause=Cause(kind=CauseKind.FAULT), opened_at=NOW)
    return Lifecycle(
        state=State.QUARANTINED, since=NOW, held=True, hold_reason="Quarantined", cordon=True, episode=episode
    )


def free_life() -> Lifecycle:
    """The same node when it may work again."""
    return Lifecycle(state=State.IN_SERVICE, since=NOW)


def test_the_health_condition_lies_beside_the_kubelets(admin: Client, name: str) -> None:
    admin.create("/api/v1/nodes", node(name)).ok()
    wanted = condition(held_life(), None, NOW)
    assert wanted is not None
    body = {"status": {"conditions": [wanted]}}
    admin.patch(f"{path(name)}/status", body, STRATEGIC).ok()
    found = conditions(admin, name)
    assert sorted(found) == sorted(["Ready", HEALTH_CONDITION])
    kept = {key: value for key, value in wanted.items() if value}
    assert found[HEALTH_CONDITION] == kept, "an empty message is left out"
    assert condition(held_life(), found[HEALTH_CONDITION], NOW + timedelta(hours=1)) is None
    heartbeat = {"type": "Ready", "status": "True", "lastHeartbeatTime": AT}
    admin.patch(f"{path(name)}/status", {"status": {"conditions": [heartbeat]}}, STRATEGIC).ok()
    beaten = conditions(admin, name)
    assert beaten[HEALTH_CONDITION] == kept
    assert beaten["Ready"]["lastHeartbeatTime"] == AT


def conditions(admin: Client, name: str) -> dict[str, dict[str, Any]]:
    """The conditions of a node by type."""
    return {c["type"]: c for c in admin.get(path(name)).ok()["status"]["conditions"]}


def test_a_node_is_read_whatever_others_write_on_it(admin: Client, name: str) -> None:
    admin.create("/api/v1/nodes", node(name)).ok()
    foreign = [{"type": "Foreign", "status": "True"}, {"type": HEALTH_CONDITION, "status": "False"}]
    admin.patch(f"{path(name)}/status", {"status": {"conditions": foreign}}, STRATEGIC).ok()
    stored = conditions(admin, name)
    assert [stored[c["type"]]["lastTransitionTime"] for c in foreign] == [None, None]
    record = node_record(admin.get(path(name)).content)
    assert (record.name, record.ready, record.gpus) == (name, True, True)
    assert record.condition is not None
    mended = condition(held_life(), dict(record.condition), NOW)
    assert mended is not None
    assert mended["lastTransitionTime"] == AT


def test_the_main_resource_does_not_write_the_status(admin: Client, name: str) -> None:
    made = admin.create("/api/v1/nodes", node(name)).ok()
    left = admin.patch(path(name), {"status": {"capacity": {"nvidia.com/gpu": "1"}}}).ok()
    assert left["status"]["capacity"] == made["status"]["capacity"]
    kept = admin.patch(f"{path(name)}/status", {"spec": {"unschedulable": True}, "status": {}}).ok()
    assert "unschedulable" not in kept["spec"]


def test_bad_taints_are_refused(admin: Client, name: str) -> None:
    admin.create("/api/v1/nodes", node(name)).ok()
    twice = [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]
    message = admin.patch(path(name), {"spec": {"taints": twice}}).refused(422, "Invalid")
    assert "Duplicate value" in message
    never = [{"key": "a", "effect": "Never"}]
    message = admin.patch(path(name), {"spec": {"taints": never}}).refused(422, "Invalid")
    assert 'Unsupported value: "Never"' in message


# The end


def test_a_node_made_again_under_its_name_is_another(admin: Client, name: str) -> None:
    old = admin.create("/api/v1/nodes", node(name)).ok()
    answer = admin.delete(path(name)).ok()
    assert answer["details"] == {"name": name, "kind": "nodes", "uid": old["metadata"]["uid"]}
    new = admin.create("/api/v1/nodes", node(name)).ok()
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    gone = {"preconditions": {"uid": old["metadata"]["uid"]}}
    assert "does not match the UID in record" in admin.delete(path(name), gone).refused(409, "Conflict")


@pytest.mark.full
@pytest.mark.usefixtures("controllers")
def test_pods_of_a_node_that_is_gone_go_after_a_while(
    server: Server, admin: Client, name: str, namespace: str
) -> None:
    place = Place(server, namespace)
    back = server.unique("node")
    for one in (name, back):
        admin.create("/api/v1/nodes", node(one)).ok()
        admin.create(place.pods, pod(f"on-{one}", one)).ok()
    before = admin.get(f"{place.pods}/on-{name}").ok()["metadata"]["resourceVersion"]
    admin.delete(path(name)).ok()
    admin.delete(path(back)).ok()
    admin.create("/api/v1/nodes", node(back)).ok()

    def is_gone() -> bool:
        # The simulator looks at what is due whenever something changes.
        place.config(server.unique("change"))
        return place.is_gone(f"{place.pods}/on-{name}")

    with admin.watch(place.pods, resourceVersion=before, fieldSelector=f"metadata.name=on-{name}") as watch:
        eventually(is_gone, POD_GC_S)
        events = watch.take(3)
    assert [kind for kind, _ in events] == ["MODIFIED", "MODIFIED", "DELETED"]
    failed = events[0][1]["status"]
    assert failed["phase"] == "Failed"
    (target,) = [c for c in failed["conditions"] if c["type"] == "DisruptionTarget"]
    assert (target["reason"], target["message"]) == ("DeletionByPodGC", "PodGC: node no longer exists")
    assert admin.get(f"{place.pods}/on-{back}").status == 200, "its Node came back in time"
