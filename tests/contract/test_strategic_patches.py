"""Strategic merge patch: which lists merge by which key, in which order, and its directives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import STRATEGIC, Answer, Client
from tests.contract.samples import causes, configs_of, meta, pod_spec


@pytest.fixture
def pod(admin: Client, namespace: str) -> str:
    """The path of a pod with two containers."""
    containers = [
        {
            "name": "c",
            "image": "i:1",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80}],
        },
        {"name": "d", "image": "j:1"},
    ]
    path = f"/api/v1/namespaces/{namespace}/pods"
    spec = pod_spec(containers=containers, volumes=[{"name": "v", "emptyDir": {}}], tolerations=[{"key": "q"}])
    spec["tolerations"][0]["operator"] = "Exists"
    admin.create(path, {"metadata": {"name": "p"}, "spec": spec}).ok()
    return f"{path}/p"


def _patch(admin: Client, path: str, patch: Any, **params: Any) -> Answer:
    return admin.patch(path, patch, STRATEGIC, **params)


def test_taints_are_replaced(admin: Client, node: str) -> None:
    for taints in ([{"key": "a", "effect": "NoSchedule"}], [{"key": "b", "effect": "NoExecute", "value": "x"}]):
        assert _patch(admin, node, {"spec": {"taints": taints}}).ok()["spec"]["taints"] == taints
    assert "taints" not in _patch(admin, node, {"spec": {"taints": None}}).ok()["spec"]


def test_false_is_the_same_as_nothing(admin: Client, node: str) -> None:
    for unset in (None, False):
        assert _patch(admin, node, {"spec": {"unschedulable": True}}).ok()["spec"]["unschedulable"] is True
        assert "unschedulable" not in _patch(admin, node, {"spec": {"unschedulable": unset}}).ok()["spec"]


def _conditions(answer: Answer) -> list[tuple[str, str]]:
    return [(c["type"], c["status"]) for c in answer.ok()["status"]["conditions"]]


def test_conditions_merge_by_type(admin: Client, node: str) -> None:
    status = f"{node}/status"

    def patch(*conditions: dict[str, Any], **more: Any) -> Answer:
        return _patch(admin, status, {"status": {"conditions": list(conditions), **more}})

    assert _conditions(patch({"type": "A", "status": "True"}, {"type": "B", "status": "True"})) == [
        ("A", "True"),
        ("B", "True"),
    ]
    assert _conditions(patch({"type": "B", "status": "False"})) == [("A", "True"), ("B", "False")]
    # What is new comes before what the patch does not name.
    assert _conditions(patch({"type": "C", "status": "True"})) == [("C", "True"), ("A", "True"), ("B", "False")]
    assert _conditions(patch({"type": "C", "$patch": "delete"})) == [("A", "True"), ("B", "False")]
    order = {"$setElementOrder/conditions": [{"type": "B"}, {"type": "D"}]}
    ordered = patch({"type": "D", "status": "True"}, **order)
    assert _conditions(ordered) == [("A", "True"), ("B", "False"), ("D", "True")]
    alone = _patch(admin, status, {"status": {"$setElementOrder/conditions": [{"type": "D"}, {"type": "A"}]}})
    assert _conditions(alone) == [("B", "False"), ("D", "True"), ("A", "True")]
    assert _conditions(patch({"type": "Z", "status": "True"}, {"$patch": "replace"})) == [("Z", "True")]


def test_times_of_conditions_are_null_when_nobody_gave_them(admin: Client, node: str) -> None:
    condition = {"type": "A", "status": "True"}
    made = _patch(admin, f"{node}/status", {"status": {"conditions": [condition]}}).ok()
    assert made["status"]["conditions"] == [{**condition, "lastHeartbeatTime": None, "lastTransitionTime": None}]


def test_capacity_merges_and_is_written_in_one_form(admin: Client, node: str) -> None:
    status = f"{node}/status"
    _patch(admin, status, {"status": {"capacity": {"cpu": "1000m", "nvidia.com/gpu": 8}}}).ok()
    made = _patch(admin, status, {"status": {"capacity": {"memory": "1024Mi", "nvidia.com/gpu": None}}}).ok()
    assert made["status"]["capacity"] == {"cpu": "1", "memory": "1Gi"}
    assert made["status"]["allocatable"] == {"cpu": "1", "nvidia.com/gpu": "8"}


def test_directives_for_objects(admin: Client, node: str) -> None:
    labels = {"metadata": {"labels": {"$patch": "replace", "only": "me"}}}
    assert meta(_patch(admin, node, labels).ok())["labels"] == {"only": "me"}
    bad = _patch(admin, node, {"metadata": {"labels": {"$patch": "frob"}}})
    assert bad.status == 500
    assert bad.body["message"].startswith("unknown patch type: frob in map: map[")
    assert "labels" not in meta(_patch(admin, node, {"metadata": {"labels": {"$patch": "delete"}}}).ok())


def test_lists_of_texts(admin: Client, node: str) -> None:
    def finalizers(**metadata: Any) -> list[str]:
        made = meta(_patch(admin, node, {"metadata": metadata}).ok())
        found: list[str] = made.get("finalizers", [])
        return found

    assert finalizers(finalizers=["x.io/a"]) == ["x.io/a"]
    assert finalizers(finalizers=["x.io/b"]) == ["x.io/b", "x.io/a"]
    assert finalizers(finalizers=["x.io/a"]) == ["x.io/b", "x.io/a"]
    assert finalizers(**{"$deleteFromPrimitiveList/finalizers": ["x.io/a"]}) == ["x.io/b"]
    order = {"$setElementOrder/finalizers": ["x.io/c", "x.io/b"], "finalizers": ["x.io/c"]}
    assert finalizers(**order) == ["x.io/c", "x.io/b"]
    assert finalizers(finalizers=None) == []


def test_patches_that_are_malformed(admin: Client, node: str) -> None:
    status = f"{node}/status"
    _patch(admin, status, {"status": {"conditions": [{"type": "A", "status": "True"}]}}).ok()
    answer = _patch(admin, status, {"status": {"conditions": [{"status": "True"}]}})
    assert answer.status == 500
    assert answer.body["message"] == "map: map[status:True] does not contain declared merge key: type"
    assert "reason" not in answer.body
    answer = _patch(admin, status, {"status": {"conditions": ["x"]}})
    assert answer.status == 500
    assert answer.body["message"].startswith("list element types are not identical: ")
    order = {"$setElementOrder/conditions": [{"type": "A"}], "conditions": [{"type": "Y", "status": "True"}]}
    answer = _patch(admin, status, {"status": order})
    assert answer.status == 500
    assert answer.body["message"].startswith("The order in patch list:\n[map[status:True type:Y]]\n doesn't match ")
    text = _patch(admin, node, [1]).refused(400, "BadRequest")
    assert text == "json: cannot unmarshal array into Go value of type map[string]interface {}"
    for raw in (b'{"a"', b""):
        assert _patch(admin, node, raw).refused(400, "BadRequest") == "invalid JSON patch"
    assert _patch(admin, node, b"null").status == 200


def test_results_that_cannot_be_read(admin: Client, node: str) -> None:
    for patch, told in (
        ({"spec": {"taints": 5}}, "map[spec:map[taints:5]]"),
        ({"spec": 5}, "map[spec:5]"),
        ({"spec": {"unschedulable": "yes"}}, "map[spec:map[unschedulable:yes]]"),
    ):
        answer = _patch(admin, node, patch)
        assert answer.refused(422, "Invalid").startswith(f' "" is invalid: patch: Invalid value: "{told}": ')
        assert causes(answer.body) == [("patch", "FieldValueInvalid")]
    assert _patch(admin, node, {"spec": {"foo": 1}}).status == 200
    strict = _patch(admin, node, {"spec": {"foo": 1}}, fieldValidation="Strict").refused(422, "Invalid")
    assert strict.endswith('"map[spec:map[foo:1]]": strict decoding error: unknown field "spec.foo"')


def _spec(answer: Answer) -> dict[str, Any]:
    spec: dict[str, Any] = answer.ok()["spec"]
    return spec


def test_containers_merge_by_name(admin: Client, pod: str) -> None:
    made = _spec(_patch(admin, pod, {"spec": {"containers": [{"name": "d", "image": "j:2"}]}}, dryRun="All"))
    assert [(c["name"], c["image"]) for c in made["containers"]] == [("c", "i:1"), ("d", "j:2")]
    assert [variable["name"] for variable in made["containers"][0]["env"]] == ["A", "B"]
    toleration = {"key": "z", "operator": "Exists"}
    refused = _patch(admin, pod, {"spec": {"tolerations": [toleration]}}, dryRun="All")
    # Tolerations have no key: the list is replaced, and what was there must stay.
    assert causes(refused.body) == [("spec.tolerations", "FieldValueForbidden")]


def test_what_a_pod_keeps_for_life(admin: Client, pod: str) -> None:
    frozen = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    changes: list[dict[str, Any]] = [
        {"containers": [{"name": "c", "env": [{"name": "B", "value": "9"}]}]},
        {"volumes": [{"name": "v", "hostPath": {"path": "/x"}, "emptyDir": None}]},
        {"volumes": [{"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}]},
        {"nodeName": "x"},
        {"terminationGracePeriodSeconds": 5},
    ]
    for change in changes:
        text = _patch(admin, pod, {"spec": change}).refused(422, "Invalid")
        assert text.startswith(f'Pod "p" is invalid: spec: Forbidden: {frozen}'), change
    for change in (
        {"containers": [{"name": "d", "$patch": "delete"}]},
        {"containers": [{"name": "e", "image": "k"}]},
    ):
        text = _patch(admin, pod, {"spec": change}).refused(422, "Invalid")
        where = "spec.containers: Forbidden: pod updates may not add or remove containers"
        assert text == f'Pod "p" is invalid: {where}'
    assert _spec(_patch(admin, pod, {"spec": {"activeDeadlineSeconds": 50}}))["activeDeadlineSeconds"] == 50
    text = _patch(admin, pod, {"spec": {"activeDeadlineSeconds": 60}}).refused(422, "Invalid")
    assert text.endswith(
        "spec.activeDeadlineSeconds: Invalid value: 60: must be less than or equal to previous value"
    )


def test_retain_keys_change_the_kind_of_a_volume(admin: Client, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    spec = pod_spec(volumes=[{"name": "v", "emptyDir": {}}])
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    body = {"metadata": {"name": "w"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    admin.create(path, body).ok()

    def patch(volume: dict[str, Any]) -> Answer:
        return _patch(admin, f"{path}/w", {"spec": {"template": {"spec": {"volumes": [volume]}}}}, dryRun="All")

    both = patch({"name": "v", "hostPath": {"path": "/x"}})
    assert causes(both.body) == [("spec.template.spec.volumes[0].hostPath", "FieldValueForbidden")]
    made = _spec(patch({"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}))
    assert made["template"]["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x", "type": ""}}]


def test_ports_of_services_merge_by_number(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    ports = [{"name": "x", "port": 80}, {"name": "y", "port": 81}]
    body = {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": ports}}
    admin.create(path, body).ok()
    change = {"ports": [{"port": 81, "name": "z"}, {"port": 82, "name": "w"}], "selector": {"c": "d", "a": None}}
    made = _spec(_patch(admin, f"{path}/s", {"spec": change}))
    assert [(port["name"], port["port"]) for port in made["ports"]] == [("x", 80), ("z", 81), ("w", 82)]
    assert made["selector"] == {"c": "d"}


def test_secrets_of_accounts_merge_by_name(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    body = {"metadata": {"name": "a"}, "secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "p"}]}
    admin.create(path, body).ok()
    made = _patch(admin, f"{path}/a", {"secrets": [{"name": "b"}], "imagePullSecrets": [{"name": "q"}]}).ok()
    assert made["secrets"] == [{"name": "b"}, {"name": "a"}]
    assert made["imagePullSecrets"] == [{"name": "q"}]


def test_selectors_of_budgets_are_replaced(admin: Client, namespace: str) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    selector = {"matchLabels": {"a": "b"}}
    admin.create(path, {"metadata": {"name": "p"}, "spec": {"minAvailable": 1, "selector": selector}}).ok()
    made = _spec(_patch(admin, f"{path}/p", {"spec": {"selector": {"matchLabels": {"c": "d"}}}}))
    assert made["selector"] == {"matchLabels": {"c": "d"}}


def test_maps_merge(admin: Client, namespace: str) -> None:
    path = configs_of(namespace)
    admin.create(path, {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}).ok()
    assert _patch(admin, f"{path}/a", {"data": {"z": "3", "x": None}}).ok()["data"] == {"y": "2", "z": "3"}
    assert _patch(admin, f"{path}/a", {"data": {"$patch": "replace", "q": "1"}}).ok()["data"] == {"q": "1"}
    gone = _patch(admin, f"{path}/a", {"$patch": "delete"}).refused(400, "BadRequest")
    assert gone == "the name of the object (a based on URL) was undeterminable: name must be provided"
    missing = _patch(admin, f"{path}/nope", {"data": {}}).refused(404, "NotFound")
    assert missing == 'configmaps "nope" not found'
