"""Built-in objects that a server refuses: which fields, for which reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import Answer, Client
from tests.contract.samples import causes, configs_of, pod_spec, workload_spec

REQUIRED, INVALID = "FieldValueRequired", "FieldValueInvalid"
DUPLICATE, FORBIDDEN, UNSUPPORTED = "FieldValueDuplicate", "FieldValueForbidden", "FieldValueNotSupported"
C = {"name": "c", "image": "i:1"}


def _container(**more: Any) -> dict[str, Any]:
    return {"containers": [{**C, **more}]}


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({"containers": []}, [("spec.containers", REQUIRED)]),
        ({"containers": [{"image": "i"}]}, [("spec.containers[0].name", REQUIRED)]),
        ({"containers": [{"name": "c"}]}, [("spec.containers[0].image", REQUIRED)]),
        ({"containers": [C, C]}, [("spec.containers[1].name", DUPLICATE)]),
        ({"containers": [{**C, "name": "C_"}]}, [("spec.containers[0].name", INVALID)]),
        ({"initContainers": [C]}, [("spec.initContainers[0].name", DUPLICATE)]),
        ({"restartPolicy": "Nope"}, [("spec.restartPolicy", UNSUPPORTED)]),
        ({"dnsPolicy": "Nope"}, [("spec.dnsPolicy", UNSUPPORTED)]),
        (_container(imagePullPolicy="Nope"), [("spec.containers[0].imagePullPolicy", UNSUPPORTED)]),
        (
            _container(
                ports=[{"containerPort": 0}, {"containerPort": 70000}, {"containerPort": 80, "protocol": "X"}]
            ),
            [
                ("spec.containers[0].ports[0].containerPort", REQUIRED),
                ("spec.containers[0].ports[1].containerPort", INVALID),
                ("spec.containers[0].ports[2].protocol", UNSUPPORTED),
            ],
        ),
        (
            _container(env=[{"value": "x"}, {"name": "a=b"}]),
            [("spec.containers[0].env[0].name", REQUIRED), ("spec.containers[0].env[1].name", INVALID)],
        ),
        (
            _container(volumeMounts=[{"name": "nope", "mountPath": "/x"}]),
            [("spec.containers[0].volumeMounts[0].name", "FieldValueNotFound")],
        ),
        (
            {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]},
            [("spec.volumes[1].name", DUPLICATE)],
        ),
        (
            {"volumes": [{"name": "a", "emptyDir": {}, "hostPath": {"path": "/x"}}]},
            [("spec.volumes[0].hostPath", FORBIDDEN)],
        ),
        (
            {"tolerations": [{"value": "x"}, {"key": "a", "effect": "Nope"}, {"key": "a", "tolerationSeconds": 5}]},
            [
                ("spec.tolerations[0].operator", INVALID),
                ("spec.tolerations[1].effect", UNSUPPORTED),
                ("spec.tolerations[2].effect", INVALID),
            ],
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
            [("spec.tolerations[0].operator", INVALID)],
        ),
        ({"activeDeadlineSeconds": 0}, [("spec.activeDeadlineSeconds", INVALID)]),
        ({"nodeSelector": {"a b": "c"}}, [("spec.nodeSelector", INVALID)]),
        ({"nodeName": "A_"}, [("spec.nodeName", INVALID)]),
        (
            _container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            [("spec.containers[0].resources.requests", INVALID)],
        ),
        (
            _container(resources={"requests": {"nvidia.com/gpu": 8}}),
            [("spec.containers[0].resources.limits", REQUIRED)],
        ),
        (
            _container(resources={"limits": {"nvidia.com/gpu": "1.5"}}),
            [
                ("spec.containers[0].resources.limits[nvidia.com/gpu]", INVALID),
                ("spec.containers[0].resources.requests[nvidia.com/gpu]", INVALID),
            ],
        ),
    ],
)
def test_pods(admin: Client, namespace: str, spec: dict[str, Any], wrong: list[tuple[str, str]]) -> None:
    body = {"metadata": {"name": "p"}, "spec": pod_spec(**spec)}
    answer = admin.create(f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All")
    assert answer.refused(422, "Invalid").startswith('Pod "p" is invalid: ')
    assert causes(answer.body) == wrong


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priority": 5}, "the integer value of priority (5) must not be provided in pod spec; "),
        ({"priorityClassName": "nope"}, "no PriorityClass with name nope was found"),
    ],
)
def test_pods_that_admission_refuses(admin: Client, namespace: str, spec: dict[str, Any], why: str) -> None:
    body = {"metadata": {"name": "p"}, "spec": pod_spec(**spec)}
    answer = admin.create(f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All")
    assert answer.refused(403, "Forbidden").startswith(f'pods "p" is forbidden: {why}')
    assert answer.body["details"] == {"name": "p", "kind": "pods"}


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        # The real server names taints below metadata.
        ({"spec": {"taints": [{"key": "a"}]}}, [("metadata.taints[0].effect", REQUIRED)]),
        ({"spec": {"taints": [{"key": "a", "effect": "Nope"}]}}, [("metadata.taints[0].effect", UNSUPPORTED)]),
        (
            {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute"}]}},
            [("metadata.taints[1]", DUPLICATE)],
        ),
        (
            {"spec": {"taints": [{"effect": "NoExecute", "value": "a b"}]}},
            [("metadata.taints[0].key", INVALID)] * 2 + [("metadata.taints[0].value", INVALID)],
        ),
        ({"spec": {"podCIDR": "x"}}, [("spec.podCIDRs[0]", INVALID)]),
        (
            {"status": {"capacity": {"cpu": "-1"}}},
            [("status.allocatable.cpu", INVALID), ("status.capacity.cpu", INVALID)],
        ),
    ],
)
def test_nodes(admin: Client, body: dict[str, Any], wrong: list[tuple[str, str]]) -> None:
    answer = admin.create("/api/v1/nodes", {"metadata": {"name": "n"}, **body}, dryRun="All")
    assert answer.refused(422, "Invalid").startswith('Node "n" is invalid: ')
    assert causes(answer.body) == wrong


def test_what_a_node_keeps_for_life(admin: Client, server: Any) -> None:
    name = server.unique("node")
    spec = {"providerID": "a://1", "podCIDR": "10.0.0.0/24"}
    made = admin.create("/api/v1/nodes", {"metadata": {"name": name}, "spec": spec}).ok()
    assert made["spec"]["podCIDRs"] == ["10.0.0.0/24"]
    path = f"/api/v1/nodes/{name}"
    provider = admin.patch(path, {"spec": {"providerID": "a://2"}})
    ranges = admin.patch(path, {"spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}})
    admin.delete(path)
    text = provider.refused(422, "Invalid")
    assert text.endswith("spec.providerID: Invalid value: null: field cannot be modified once set")
    assert causes(ranges.body) == [("spec.podCIDRs", FORBIDDEN)]


@pytest.mark.parametrize("word", ["deployments", "replicasets", "statefulsets"])
def test_workloads(admin: Client, namespace: str, word: str) -> None:
    def create(spec: dict[str, Any]) -> list[tuple[str, str]]:
        path = f"/apis/apps/v1/namespaces/{namespace}/{word}"
        answer = admin.create(path, {"metadata": {"name": "w"}, "spec": spec}, dryRun="All")
        answer.refused(422, "Invalid")
        return causes(answer.body)

    labels = ("spec.template.metadata.labels", INVALID)
    containers = ("spec.template.spec.containers", REQUIRED)
    whole = workload_spec()
    assert create({"template": whole["template"]}) == [("spec.selector", REQUIRED), labels]
    assert create({**whole, "selector": {}}) == [("spec.selector", INVALID)]
    assert create({**whole, "selector": {"matchLabels": {"x": "y"}}}) == [labels]
    assert create({"selector": whole["selector"]}) == [labels, containers]
    assert create({**whole, "replicas": -1}) == [("spec.replicas", INVALID)]
    never = {**whole["template"], "spec": {**whole["template"]["spec"], "restartPolicy": "Never"}}
    assert create({**whole, "template": never}) == [("spec.template.spec.restartPolicy", UNSUPPORTED)]
    expression = {"matchExpressions": [{"key": "a", "operator": "Nope"}]}
    wrong = [("spec.selector", INVALID), ("spec.selector.matchExpressions[0].operator", INVALID)]
    assert create({**whole, "selector": expression}) == wrong


def test_selectors_of_workloads_are_for_life(admin: Client, namespace: str) -> None:
    for word in ("deployments", "daemonsets", "replicasets"):
        path = f"/apis/apps/v1/namespaces/{namespace}/{word}"
        admin.create(path, {"metadata": {"name": "w"}, "spec": workload_spec()}).ok()
        answer = admin.patch(f"{path}/w", {"spec": {"selector": {"matchLabels": {"x": "y"}}}})
        assert causes(answer.body) == [("spec.selector", INVALID), ("spec.template.metadata.labels", INVALID)]
        assert 'Invalid value: {"matchLabels":{"a":"b","x":"y"}}: field is immutable' in answer.body["message"]


def test_strategies_of_deployments(admin: Client, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"

    def create(strategy: dict[str, Any]) -> Answer:
        body = {"metadata": {"name": "w"}, "spec": workload_spec(strategy=strategy)}
        return admin.create(path, body, dryRun="All")

    assert create({"type": "Recreate"}).ok()["spec"]["strategy"] == {"type": "Recreate"}
    assert causes(create({"type": "X"}).body) == [("spec.strategy", UNSUPPORTED)]
    never = create({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}})
    assert causes(never.body) == [("spec.strategy.rollingUpdate.maxUnavailable", INVALID)]


def test_jobs(admin: Client, namespace: str) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [C]}}

    def create(spec: dict[str, Any]) -> list[tuple[str, str]]:
        return causes(admin.create(path, {"metadata": {"name": "j"}, "spec": spec}, dryRun="All").body)

    policy = ("spec.template.spec.restartPolicy", REQUIRED)
    assert create({"template": {"spec": {"containers": [C]}}}) == [policy]
    assert create({}) == [("spec.template.spec.containers", REQUIRED), policy]
    negative = create({"parallelism": -1, "completions": -1, "backoffLimit": -1, "template": template})
    assert negative == [(f"spec.{name}", INVALID) for name in ("backoffLimit", "completions", "parallelism")]
    wrong = [("spec.selector", INVALID), ("spec.template.metadata.labels", INVALID)]
    assert create({"selector": {"matchLabels": {"a": "b"}}, "template": template}) == wrong


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({}, [("spec.ports", REQUIRED)]),
        (
            {"ports": [{"port": 80}, {"port": 81}]},
            [("spec.ports[0].name", REQUIRED), ("spec.ports[1].name", REQUIRED)],
        ),
        ({"ports": [{"port": 80}], "type": "X"}, [("spec.type", UNSUPPORTED)]),
        ({"type": "ExternalName"}, [("spec.externalName", REQUIRED)]),
        ({"ports": [{"port": 70000, "targetPort": 80}]}, [("spec.ports[0].port", INVALID)]),
        ({"ports": [{"port": 80}], "selector": {"a b": "c"}}, [("spec.selector", INVALID)]),
        ({"ports": [{"port": 80}], "clusterIP": "x"}, [("spec.clusterIPs[0]", INVALID)]),
    ],
)
def test_services(admin: Client, namespace: str, spec: dict[str, Any], wrong: list[tuple[str, str]]) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    answer = admin.create(path, {"metadata": {"name": "s"}, "spec": spec}, dryRun="All")
    answer.refused(422, "Invalid")
    assert causes(answer.body) == wrong


def test_the_address_of_a_service_is_for_life(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    admin.create(path, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}).ok()
    for address in ("10.96.200.77", "None"):
        answer = admin.patch(f"{path}/s", {"spec": {"clusterIP": address}})
        text = answer.refused(422, "Invalid")
        assert text.endswith(f'spec.clusterIPs[0]: Invalid value: ["{address}"]: may not change once set')
    outside = admin.patch(f"{path}/s", {"spec": {"type": "ExternalName", "externalName": "x.y"}}).ok()["spec"]
    assert "clusterIP" not in outside


def test_configuration(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)

    def create(**body: Any) -> Answer:
        return admin.create(configs, {"metadata": {"name": "c"}, **body}, dryRun="All")

    bad = create(data={"a b": "x", "..": "y"}, binaryData={"c d": "YQ=="})
    assert causes(bad.body) == [("binaryData[c d]", INVALID), ("data[..]", INVALID), ("data[a b]", INVALID)]
    assert causes(create(data={"a": "x"}, binaryData={"a": "YQ=="}).body) == [("data[a]", INVALID)]
    text = create(binaryData={"a": "%%"}).refused(400, "BadRequest")
    assert text.endswith("illegal base64 data at input byte 0")


def test_configuration_that_is_immutable(admin: Client, namespace: str) -> None:
    configs = configs_of(namespace)
    admin.create(configs, {"metadata": {"name": "c"}, "data": {"a": "1"}, "immutable": True}).ok()
    for patch, field in (
        ({"data": {"a": "2"}}, "data"),
        ({"binaryData": {"z": "YQ=="}}, "binaryData"),
        ({"immutable": False}, "immutable"),
        ({"immutable": None}, "immutable"),
    ):
        text = admin.patch(f"{configs}/c", patch).refused(422, "Invalid")
        assert text == f'ConfigMap "c" is invalid: {field}: Forbidden: field is immutable when `immutable` is set'
    assert admin.patch(f"{configs}/c", {"metadata": {"labels": {"x": "1"}}}).status == 200


def test_secrets(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"

    def create(**body: Any) -> Answer:
        return admin.create(path, {"metadata": {"name": "s"}, **body}, dryRun="All")

    assert causes(create(stringData={"a b": "x"}).body) == [("data[a b]", INVALID)]
    tls = create(type="kubernetes.io/tls")
    assert causes(tls.body) == [("data[tls.crt]", REQUIRED), ("data[tls.key]", REQUIRED)]
    docker = create(type="kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": "{"})
    assert causes(docker.body) == [("data[.dockerconfigjson]", INVALID)]
    assert "<secret contents redacted>" in docker.body["message"]
    large = create(stringData={"a": "x" * (1024 * 1024 + 1)})
    assert causes(large.body) == [("data", "FieldValueTooLong")]
    assert "illegal base64 data" in create(data={"b": "%"}).refused(400, "BadRequest")
    admin.create(path, {"metadata": {"name": "s"}}).ok()
    text = admin.patch(f"{path}/s", {"type": "other"}).refused(422, "Invalid")
    assert text == 'Secret "s" is invalid: type: Invalid value: "other": field is immutable'


@pytest.mark.parametrize(
    ("spec", "wrong", "text"),
    [
        ({"minAvailable": 1, "maxUnavailable": 1}, "spec", "minAvailable and maxUnavailable cannot be both set"),
        ({"minAvailable": -1}, "spec.minAvailable", "Invalid value: -1: must be greater than or equal to 0"),
        ({"minAvailable": "x"}, "spec.minAvailable", "a valid percent string must be a numeric string followed by"),
        ({"maxUnavailable": "120%"}, "spec.maxUnavailable", "must not be greater than 100%"),
        ({"selector": {"matchLabels": {"a b": "c"}}}, "spec.selector.matchLabels", "name part must consist of"),
        ({"unhealthyPodEvictionPolicy": "X"}, "spec.unhealthyPodEvictionPolicy", '"AlwaysAllow", "IfHealthyBudget"'),
    ],
)
def test_budgets(admin: Client, namespace: str, spec: dict[str, Any], wrong: str, text: str) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    answer = admin.create(path, {"metadata": {"name": "p"}, "spec": spec}, dryRun="All")
    assert text in answer.refused(422, "Invalid")
    assert [field for field, _ in causes(answer.body)] == [wrong]


def test_types_of_budgets(admin: Client, namespace: str) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    for value, what in ((1.5, "number 1.5"), (True, "bool")):
        body = {"metadata": {"name": "p"}, "spec": {"minAvailable": value}}
        text = admin.create(path, body, dryRun="All").refused(400, "BadRequest")
        field = "Go struct field PodDisruptionBudgetSpec.spec.minAvailable of type int32"
        assert text.endswith(f"json: cannot unmarshal {what} into {field}")


def test_leases(admin: Client, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    for field, value in (("leaseDurationSeconds", 0), ("leaseTransitions", -1)):
        body = {"metadata": {"name": "l"}, "spec": {field: value}}
        answer = admin.create(path, body, dryRun="All")
        assert causes(answer.body) == [(f"spec.{field}", INVALID)]


def test_priority_classes(server: Any, admin: Client) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    large = admin.create(path, {"metadata": {"name": "p"}, "value": 2_000_000_000}, dryRun="All")
    assert causes(large.body) == [("value", FORBIDDEN)]
    system = admin.create(path, {"metadata": {"name": "system-x"}, "value": 5}, dryRun="All")
    assert causes(system.body) == [("metadata.name", FORBIDDEN)]
    name = server.unique("class")
    made = admin.create(path, {"metadata": {"name": name}, "value": 5}).ok()
    changed = admin.patch(f"{path}/{name}", {"value": 6})
    described = admin.patch(f"{path}/{name}", {"description": "x"}).ok()
    admin.delete(f"{path}/{name}")
    assert causes(changed.body) == [("value", FORBIDDEN)]
    assert made["metadata"]["generation"] == described["metadata"]["generation"] == 1
