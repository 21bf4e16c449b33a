"""Pods as Muster makes and reads them: test pods, defaults, admission, binding, what a kubelet reports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.certify import catalogue
from muster.certify.isolation.plan import PlannedRun, Role
from muster.certify.measure import HowEnded
from muster.certify.runners import Owner
from muster.certify.runners.test_pod import build, end_of, project
from muster.resources.base import RUN_SPEC_ANNOTATION, SYSTEM_NAMESPACE
from tests.contract.client import JSON_PATCH, STRATEGIC, Answer, Client
from tests.contract.server import Server
from tests.contract.workloads import HOLD, Place, node, pod

AT = "2026-01-05T08:00:00Z"
LATER = "2026-01-05T08:01:00Z"
ANOTHER_UID = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def place(server: Server, namespace: str) -> Place:
    return Place(server, namespace)


# Test pods of a certification


@pytest.fixture
def rank_pod(server: Server, place: Place) -> dict[str, Any]:
    """The pod of one rank, exactly as the runner builds it but for its namespace and its owner: an owner of that uid
    is not there, and the garbage collector would take the pod away."""
    test = next(iter(catalogue.tests().values()))
    names = (server.unique("node"), server.unique("node"))
    run = PlannedRun("r1", 1, test.name, names, next(iter(Role)), 0)
    body = build(Owner("cert-a", ANOTHER_UID), run, 1, test, 8, "registry.test/muster-tests:1")
    assert body["metadata"]["namespace"] == SYSTEM_NAMESPACE
    body["metadata"]["namespace"] = place.namespace
    del body["metadata"]["ownerReferences"]
    return body


def test_a_test_pod_is_stored_as_it_is_and_completed(admin: Client, place: Place, rank_pod: dict[str, Any]) -> None:
    answer = admin.create(place.pods, rank_pod)
    made = answer.ok()
    assert "warning" not in answer.headers
    for name in ("labels", "annotations"):
        assert made["metadata"][name] == rank_pod["metadata"][name]
    spec, sent = made["spec"], rank_pod["spec"]
    for name in ("nodeName", "restartPolicy", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "volumes"):
        assert spec[name] == sent[name]
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    filled = {name: value for name, value in spec.items() if name not in sent}
    assert filled == {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": "default",
        "serviceAccountName": "default",
    }
    admission = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    assert spec["tolerations"] == [*sent["tolerations"], *admission]
    (container,) = spec["containers"]
    (asked,) = sent["containers"]
    field = {"fieldPath": f"metadata.annotations['{RUN_SPEC_ANNOTATION}']", "apiVersion": "v1"}
    expected = {
        **asked,
        "env": [{"name": "MUSTER_RUN_SPEC", "valueFrom": {"fieldRef": field}}],
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    assert container == expected
    again = admin.create(place.pods, rank_pod)
    name = rank_pod["metadata"]["name"]
    assert again.refused(409, "AlreadyExists") == f'pods "{name}" already exists'


def test_the_runner_reads_what_became_of_its_pod(admin: Client, place: Place, rank_pod: dict[str, Any]) -> None:
    name, where = rank_pod["metadata"]["name"], rank_pod["spec"]["nodeName"]
    path = f"{place.pods}/{name}"
    admin.create(place.pods, rank_pod).ok()
    seen = project(admin.get(path).content)
    assert (seen.name, seen.node, seen.phase, seen.started, seen.ended) == (name, where, "Pending", False, False)
    report = {"node": where, "ok": True, "value": 1.5, "unit": "GB/s", "reason": "", "suspects": [], "message": ""}
    report_status(admin, path, running()).ok()
    assert project(admin.get(path).content).started
    report_status(admin, path, ended(0, json.dumps(report))).ok()
    end = end_of(project(admin.get(path).content))
    assert end is not None
    assert (end.how, end.node) == (HowEnded.REPORTED, where)
    assert end.report is not None
    assert end.report.value == 1.5


# What a kubelet reports


def report_status(admin: Client, path: str, status: dict[str, Any], uid: str = "") -> Answer:
    """The kubelet's way: a strategic merge patch of the status that names the pod's uid."""
    uid = uid or admin.get(path).ok()["metadata"]["uid"]
    return admin.patch(f"{path}/status", {"metadata": {"uid": uid}, "status": status}, STRATEGIC)


def conditions(status: str, at: str, *names: str, **more: str) -> list[dict[str, str]]:
    return [{"type": name, "status": status, "lastTransitionTime": at, **more} for name in names]


def running(name: str = "test") -> dict[str, Any]:
    state = {"running": {"startedAt": AT}}
    container = {"name": name, "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": state}
    return {
        "phase": "Running",
        "startTime": AT,
        "hostIP": "10.0.0.1",
        "conditions": conditions("True", AT, "PodScheduled", "Initialized", "ContainersReady", "Ready"),
        "containerStatuses": [container],
    }


def ended(exit_code: int, message: str, name: str = "test") -> dict[str, Any]:
    state = {"exitCode": exit_code, "reason": "Error", "finishedAt": LATER, "message": message}
    container = {
        "name": name,
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": state},
    }
    return {
        "phase": "Failed" if exit_code else "Succeeded",
        "conditions": conditions("False", LATER, "ContainersReady", "Ready", reason="PodCompleted"),
        "containerStatuses": [container],
    }


def test_conditions_merge_by_type_and_containers_are_replaced(admin: Client, place: Place) -> None:
    admin.create(place.pods, pod("p", "some-node")).ok()
    path = f"{place.pods}/p"
    first = report_status(admin, path, running("main")).ok()
    assert first["metadata"]["generation"] == 1, "the status is no change of what is wanted"
    second = report_status(admin, path, ended(3, "x" * 5000, "main")).ok()
    found = {c["type"]: c["status"] for c in second["status"]["conditions"]}
    assert found == {"PodScheduled": "True", "Initialized": "True", "ContainersReady": "False", "Ready": "False"}
    assert second["status"]["phase"] == "Failed"
    assert (second["status"]["startTime"], second["status"]["hostIP"]) == (AT, "10.0.0.1")
    (container,) = second["status"]["containerStatuses"]
    assert list(container["state"]) == ["terminated"]
    assert len(container["state"]["terminated"]["message"]) == 5000, "the kubelet shortens messages, not the server"


def test_a_report_about_another_pod_of_that_name_is_refused(admin: Client, place: Place) -> None:
    admin.create(place.pods, pod("p", "some-node")).ok()
    answer = report_status(admin, f"{place.pods}/p", running("main"), ANOTHER_UID)
    assert answer.status in (409, 422)
    assert admin.get(f"{place.pods}/p").ok()["status"]["phase"] == "Pending"


def test_the_status_is_written_through_its_subresource_only(admin: Client, place: Place) -> None:
    admin.create(place.pods, {**pod("p"), "status": {"phase": "Running", "reason": "Wish"}}).ok()
    assert admin.get(f"{place.pods}/p").ok()["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    admin.patch(f"{place.pods}/p", {"status": {"phase": "Running"}}).ok()
    assert admin.get(f"{place.pods}/p").ok()["status"]["phase"] == "Pending"
    changed = admin.patch(f"{place.pods}/p/status", {"spec": {"activeDeadlineSeconds": 5}, "status": {}}).ok()
    assert "activeDeadlineSeconds" not in changed["spec"]


# Admission


def test_tolerations_of_the_pod_itself_stay_alone(admin: Client, place: Place) -> None:
    everything = [{"operator": "Exists"}]
    made = admin.create(place.pods, pod("all", tolerations=everything)).ok()
    assert made["spec"]["tolerations"] == everything
    own = [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    ]
    made = admin.create(place.pods, pod("own", tolerations=own)).ok()
    assert [t["key"] for t in made["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert made["spec"]["tolerations"][0] == own[0]


def test_the_token_of_the_account_is_mounted_unless_told_otherwise(admin: Client, place: Place) -> None:
    body = pod("p")
    del body["spec"]["automountServiceAccountToken"]
    spec = admin.create(place.pods, body).ok()["spec"]
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount == {
        "name": volume["name"],
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }


def test_an_account_that_is_not_there(admin: Client, place: Place) -> None:
    answer = admin.create(place.pods, pod("p", serviceAccountName="nobody"))
    assert answer.refused(403, "Forbidden") == (
        f'pods "p" is forbidden: error looking up service account {place.namespace}/nobody: serviceaccount "nobody" '
        "not found"
    )


def test_priorities_come_from_their_classes(server: Server, admin: Client, place: Place) -> None:
    made = admin.create(place.pods, pod("critical", priorityClassName="system-node-critical")).ok()
    assert made["spec"]["priority"] == 2_000_001_000
    name = server.unique("priority")
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    admin.create(classes, {"metadata": {"name": name}, "value": 77, "preemptionPolicy": "Never"}).ok()
    spec = admin.create(place.pods, pod("mine", priorityClassName=name)).ok()["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (77, "Never")
    admin.delete(f"{classes}/{name}").ok()
    message = admin.create(place.pods, pod("none", priorityClassName="no-such")).refused(403, "Forbidden")
    assert message == 'pods "none" is forbidden: no PriorityClass with name no-such was found'
    message = admin.create(place.pods, pod("own", priority=5)).refused(403, "Forbidden")
    assert message == (
        'pods "own" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority '
        "admission controller computed 0 from the given PriorityClass name"
    )


def test_gated_pods_say_so(admin: Client, place: Place) -> None:
    made = admin.create(place.pods, pod("p", schedulingGates=[{"name": "test.muster.dev/gate"}])).ok()
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )


def test_bad_pods_are_refused(admin: Client, place: Place) -> None:
    message = admin.create(place.pods, pod("p", restartPolicy="Sometimes")).refused(422, "Invalid")
    assert message.startswith('Pod "p" is invalid: spec.restartPolicy: Unsupported value: "Sometimes"')
    message = admin.create(place.pods, pod("p", activeDeadlineSeconds=0)).refused(422, "Invalid")
    assert message.startswith('Pod "p" is invalid: spec.activeDeadlineSeconds: Invalid value: 0')
    body = pod("p", gpus=2)
    body["spec"]["containers"][0]["resources"]["requests"] = {"nvidia.com/gpu": "1"}
    message = admin.create(place.pods, body).refused(422, "Invalid")
    assert "must be equal to nvidia.com/gpu limit of 2" in message
    message = admin.create(place.pods, {"metadata": {"name": "p"}, "spec": {}}).refused(422, "Invalid")
    assert "spec.containers: Required value" in message


def test_gpus_that_are_limited_are_requested(admin: Client, place: Place) -> None:
    made = admin.create(place.pods, pod("p", gpus=8)).ok()
    gpus = {"nvidia.com/gpu": "8"}
    assert made["spec"]["containers"][0]["resources"] == {"limits": gpus, "requests": gpus}
    assert made["status"]["qosClass"] == "BestEffort"


# Changes


def test_most_of_a_spec_cannot_be_changed(admin: Client, place: Place) -> None:
    admin.create(place.pods, pod("p", "some-node", activeDeadlineSeconds=100)).ok()
    path = f"{place.pods}/p"
    message = admin.patch(path, {"spec": {"nodeName": "another"}}).refused(422, "Invalid")
    assert message.startswith('Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than')
    change = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    message = admin.patch(path, {"spec": {"containers": change}}, STRATEGIC).refused(422, "Invalid")
    assert message.startswith('Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than')
    shorter = admin.patch(path, {"spec": {"activeDeadlineSeconds": 50}}).ok()
    assert (shorter["spec"]["activeDeadlineSeconds"], shorter["metadata"]["generation"]) == (50, 2)
    admin.patch(path, {"spec": {"activeDeadlineSeconds": 70}}).refused(422, "Invalid")
    image = admin.patch(path, {"spec": {"containers": [{"name": "main", "image": "work:2"}]}}, STRATEGIC).ok()
    assert (image["spec"]["containers"][0]["image"], image["metadata"]["generation"]) == ("work:2", 3)
    labelled = admin.patch(path, {"metadata": {"labels": {"a": "b"}}}).ok()
    assert labelled["metadata"]["generation"] == 3


def test_tolerations_can_be_added_and_the_default_ones_come_back(admin: Client, place: Place) -> None:
    admin.create(place.pods, pod("p", "some-node")).ok()
    path = f"{place.pods}/p"
    more = {"key": "muster.dev/hold", "operator": "Exists"}
    added = admin.patch(path, [{"op": "add", "path": "/spec/tolerations/-", "value": more}], JSON_PATCH).ok()
    assert added["spec"]["tolerations"][-1] == more
    back = admin.patch(path, [{"op": "remove", "path": "/spec/tolerations/0"}], JSON_PATCH).ok()
    assert [t["key"] for t in back["spec"]["tolerations"]] == [
        "node.kubernetes.io/unreachable",
        "muster.dev/hold",
        "node.kubernetes.io/not-ready",
    ]
    gone = admin.patch(path, [{"op": "remove", "path": "/spec/tolerations/1"}], JSON_PATCH)
    assert "existing toleration can not be modified except its tolerationSeconds" in gone.refused(422, "Invalid")


def test_a_resize_is_refused(admin: Client, place: Place) -> None:
    admin.create(place.pods, pod("p", "some-node")).ok()
    change = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}}
    answer = admin.patch(f"{place.pods}/p/resize", change, STRATEGIC)
    if place.server.name == "simulator":
        assert answer.refused(501, "NotImplemented").endswith("does not support the subresource pods/resize.")
    else:
        assert "Pod QOS Class may not change as a result of resizing" in answer.refused(422, "Invalid")
    assert admin.get(f"{place.pods}/p").ok()["spec"]["containers"][0]["resources"] == {}


# Binding


def binding(name: str, target: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


@pytest.mark.parametrize("way", ["bindings", "pods/p/binding"])
def test_a_binding_assigns_a_pod_once(server: Server, admin: Client, place: Place, way: str) -> None:
    name = server.unique("node")
    labels = {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"}
    admin.create("/api/v1/nodes", node(name, labels=labels)).ok()
    admin.create(place.pods, pod("p")).ok()
    target = {"apiVersion": "v1", "kind": "Node", "name": name}
    path = f"{place.path}/{way}"
    assert admin.create(path, binding("p", target), dryRun="All").status == 201
    assert "nodeName" not in admin.get(f"{place.pods}/p").ok()["spec"]
    answer = admin.create(path, binding("p", target, annotations={"test.muster.dev/a": "b"}))
    assert (answer.status, answer.body["status"], answer.body["kind"]) == (201, "Success", "Status")
    bound = admin.get(f"{place.pods}/p").ok()
    assert bound["spec"]["nodeName"] == name
    assert bound["metadata"]["generation"] == 1
    assert bound["metadata"]["annotations"] == {"test.muster.dev/a": "b"}
    assert bound["metadata"].get("labels", {}) == ({} if way == "bindings" else labels)
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    again = admin.create(path, binding("p", target))
    assert again.refused(409, "Conflict") == (
        f'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "{name}"'
    )
    assert again.body["details"] == {"name": "p", "kind": "pods/binding"}


def test_pods_created_on_a_node_learn_its_topology(server: Server, admin: Client, place: Place) -> None:
    name = server.unique("node")
    admin.create("/api/v1/nodes", node(name, labels={"topology.kubernetes.io/zone": "z1"})).ok()
    made = admin.create(place.pods, pod("p", name)).ok()
    assert made["metadata"]["labels"] == {"topology.kubernetes.io/zone": "z1"}


def test_the_uid_of_a_binding_counts_in_the_subresource_only(admin: Client, place: Place) -> None:
    admin.create(place.pods, pod("p")).ok()
    target = {"kind": "Node", "name": "some-node"}
    answer = admin.create(f"{place.pods}/p/binding", binding("p", target, uid=ANOTHER_UID))
    assert f"Precondition failed: UID in precondition: {ANOTHER_UID}" in answer.refused(409, "Conflict")
    assert admin.create(f"{place.path}/bindings", binding("p", target, uid=ANOTHER_UID)).status == 201


def test_what_cannot_be_bound(admin: Client, place: Place) -> None:
    path = f"{place.path}/bindings"
    target = {"kind": "Node", "name": "some-node"}
    assert admin.create(path, binding("none", target)).refused(404, "NotFound") == 'pods "none" not found'
    admin.create(place.pods, pod("gated", schedulingGates=[{"name": "test.muster.dev/gate"}])).ok()
    message = admin.create(path, binding("gated", target)).refused(409, "Conflict")
    assert message.endswith("pod gated has non-empty .spec.schedulingGates")
    admin.create(place.pods, pod("ending", meta={"finalizers": [HOLD]})).ok()
    admin.delete(f"{place.pods}/ending").ok()
    message = admin.create(path, binding("ending", target)).refused(409, "Conflict")
    assert message.endswith("pod ending is being deleted, cannot be assigned to a host")
    place.free(f"{place.pods}/ending").ok()
    admin.create(place.pods, pod("p")).ok()
    for wrong, text in (
        ({"kind": "Node"}, "target.name: Required value"),
        ({"kind": "Pod", "name": "x"}, 'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"'),
    ):
        answer = admin.create(path, binding("p", wrong))
        assert (answer.status, answer.body["message"]) == (500, text)
    nameless = {"metadata": {}, "target": target}
    assert admin.create(path, nameless).refused(400, "BadRequest") == "Name parameter required."
    message = admin.create(f"{place.pods}/p/binding", binding("q", target)).refused(400, "BadRequest")
    assert message == "name in URL does not match name in Binding object"
    answer = admin.create(path, {"metadata": {"name": "p"}, "target": "some-node"})
    assert "cannot unmarshal string into Go struct field Binding.target" in answer.refused(400, "BadRequest")
    assert admin.get(path).status == 405


def test_gates_are_only_taken_away(admin: Client, place: Place) -> None:
    admin.create(place.pods, pod("p")).ok()
    gates = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    refused = admin.patch(f"{place.pods}/p", {"spec": {"schedulingGates": gates}})
    refused.refused(422, "Invalid")
    text = "Forbidden: only deletion is allowed, but found new scheduling gate 'example.com/{}'"
    found = [(cause["field"], cause["message"]) for cause in refused.body["details"]["causes"]]
    # The real server tells the new gates in no order of its own.
    assert sorted(found[:2]) == [(f"spec.schedulingGates[{at}].name", text.format("ab"[at])) for at in range(2)]
