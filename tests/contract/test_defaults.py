"""What a server fills in, and the one form in which it writes quantities and times."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import Client
from tests.contract.samples import meta, pod_spec, workload_spec
from tests.contract.server import Server

CONTAINER = {"name": "c", "image": "i:1"}
FILLED = {
    **CONTAINER,
    "imagePullPolicy": "IfNotPresent",
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _pod(admin: Client, pods: str, **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = admin.create(
        pods, {"metadata": {"name": "p"}, "spec": pod_spec(**spec)}, dryRun="All"
    ).ok()
    return made


def _container(admin: Client, pods: str, **container: Any) -> dict[str, Any]:
    made: dict[str, Any] = _pod(admin, pods, containers=[{**CONTAINER, **container}])["spec"]["containers"][0]
    return made


def test_a_pod(admin: Client, pods: str) -> None:
    spec = _pod(admin, pods)["spec"]
    tolerations = [
        {"key": f"node.kubernetes.io/{word}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for word in ("not-ready", "unreachable")
    ]
    assert spec == {
        "automountServiceAccountToken": False,
        "containers": [FILLED],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": tolerations,
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [("i", "Always"), ("i:latest", "Always"), ("r:5000/i", "Always"), ("r:5000/i:1", "IfNotPresent")],
)
def test_pull_policies(admin: Client, pods: str, image: str, policy: str) -> None:
    assert _container(admin, pods, image=image)["imagePullPolicy"] == policy


def test_parts_of_a_container(admin: Client, pods: str) -> None:
    assert _container(admin, pods, ports=[{"containerPort": 80}])["ports"] == [
        {"containerPort": 80, "protocol": "TCP"}
    ]
    probe = _container(admin, pods, livenessProbe={"httpGet": {"port": 80}})["livenessProbe"]
    assert probe == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    field = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    variable = _container(admin, pods, env=[{"name": "A", "valueFrom": field}])["env"][0]["valueFrom"]
    assert variable == {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}
    empty = _container(admin, pods, env=[{"name": "A", "value": ""}], stdin=False, workingDir="")
    assert empty["env"] == [{"name": "A"}]
    assert "stdin" not in empty
    assert "workingDir" not in empty
    kept = _container(admin, pods, securityContext={"privileged": False, "runAsUser": 0})
    assert kept["securityContext"] == {"privileged": False, "runAsUser": 0}


def test_limits_are_requests_too(admin: Client, pods: str) -> None:
    made = _pod(
        admin, pods, containers=[{**CONTAINER, "resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "1000m"}}}]
    )
    amounts = {"nvidia.com/gpu": "8", "cpu": "1"}
    assert made["spec"]["containers"][0]["resources"] == {"limits": amounts, "requests": amounts}
    assert made["status"]["qosClass"] == "Burstable"
    both = {"limits": {"cpu": "1", "memory": "1Gi"}}
    assert _pod(admin, pods, containers=[{**CONTAINER, "resources": both}])["status"]["qosClass"] == "Guaranteed"


def test_the_host_network_and_negative_grace(admin: Client, pods: str) -> None:
    spec = _pod(
        admin,
        pods,
        hostNetwork=True,
        hostPID=False,
        terminationGracePeriodSeconds=-5,
        containers=[{**CONTAINER, "ports": [{"containerPort": 80}]}],
    )["spec"]
    assert spec["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    assert "hostPID" not in spec
    assert spec["terminationGracePeriodSeconds"] == 1


def test_volumes(admin: Client, pods: str) -> None:
    downward = {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}
    volumes = [
        {"name": "a"},
        {"name": "b", "configMap": {"name": "x"}},
        {"name": "c", "hostPath": {"path": "/x"}},
        {"name": "d", "downwardAPI": downward},
        {"name": "e", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
    ]
    items = [{"path": "x", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]
    token = {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}
    assert _pod(admin, pods, volumes=volumes)["spec"]["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "configMap": {"name": "x", "defaultMode": 420}},
        {"name": "c", "hostPath": {"path": "/x", "type": ""}},
        {"name": "d", "downwardAPI": {"items": items, "defaultMode": 420}},
        {"name": "e", "projected": {"sources": [token], "defaultMode": 420}},
    ]


TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "containers": [FILLED],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    },
}
SELECTOR = {"matchLabels": {"a": "b"}}


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        (
            "deployments",
            {
                "progressDeadlineSeconds": 600,
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            },
        ),
        (
            "daemonsets",
            {
                "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            },
        ),
        ("replicasets", {"replicas": 1}),
    ],
)
def test_workloads(admin: Client, namespace: str, word: str, filled: dict[str, Any]) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/{word}"
    made = admin.create(path, {"metadata": {"name": "w"}, "spec": workload_spec()}, dryRun="All").ok()
    assert made["spec"] == {"selector": SELECTOR, "template": TEMPLATE, **filled}
    zero = admin.create(
        path, {"metadata": {"name": "w"}, "spec": workload_spec(minReadySeconds=0)}, dryRun="All"
    ).ok()
    assert "minReadySeconds" not in zero["spec"]


def test_jobs_select_their_pods_by_uid(admin: Client, namespace: str) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    made = admin.create(path, {"metadata": {"name": "j"}, "spec": {"template": template}}, dryRun="All").ok()
    uid = meta(made)["uid"]
    spec = made["spec"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = spec["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "j"
    assert labels["batch.kubernetes.io/controller-uid"] == labels["controller-uid"] == uid
    counts = ("backoffLimit", "completions", "parallelism", "completionMode", "suspend", "podReplacementPolicy")
    assert [spec[name] for name in counts] == [6, 1, 1, "NonIndexed", False, "TerminatingOrFailed"]


def test_services(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    ports = {"ports": [{"port": 80}]}
    made = admin.create(path, {"metadata": {"name": "s"}, "spec": {**ports, "selector": {"a": "b"}}}).ok()["spec"]
    address = made.pop("clusterIP")
    assert address.startswith("10.96.")
    assert made == {
        "clusterIPs": [address],
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "selector": {"a": "b"},
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    other = admin.create(path, {"metadata": {"name": "t"}, "spec": ports}).ok()["spec"]
    assert other["clusterIP"] != address
    kept = admin.replace(f"{path}/s", {"metadata": {"name": "s"}, "spec": ports}).ok()["spec"]
    assert kept["clusterIP"] == address
    headless = {"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}, **ports}}
    assert admin.create(path, headless).ok()["spec"]["clusterIPs"] == ["None"]


def test_secrets(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    made = admin.create(path, {"metadata": {"name": "s"}, "stringData": {"a": "x"}, "data": {"b": "eA=="}}).ok()
    assert made["type"] == "Opaque"
    assert made["data"] == {"a": "eA==", "b": "eA=="}
    assert "stringData" not in made
    patched = admin.patch(f"{path}/s", {"stringData": {"c": "y"}}).ok()
    assert patched["data"] == {"a": "eA==", "b": "eA==", "c": "eQ=="}


def test_events(admin: Client, namespace: str) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    body = {
        "metadata": {"name": "e"},
        "eventTime": "2024-01-01T01:00:00.250000+01:00",
        "reportingController": "muster.dev/x",
        "reportingInstance": "y",
        "action": "A",
        "reason": "R",
        "type": "Normal",
        "regarding": {"kind": "Node", "name": "n", "namespace": namespace},
    }
    made = admin.create(path, body).ok()
    assert made["eventTime"] == "2024-01-01T00:00:00.250000Z"
    assert made["deprecatedSource"] == {}
    assert made["deprecatedFirstTimestamp"] is None
    core = admin.get(f"/api/v1/namespaces/{namespace}/events/e").ok()
    assert core["involvedObject"] == body["regarding"]
    assert (core["reportingComponent"], core["source"], core["firstTimestamp"]) == ("muster.dev/x", {}, None)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        (8, "8"),
        (1.5, "1500m"),
        ("1024Mi", "1Gi"),
        ("1500Mi", "1500Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.1Ki", "102400m"),
        ("100000", "100k"),
        ("123456Ki", "123456Ki"),
        ("1e3", "1e3"),
        ("0", "0"),
        ("1Ki", "1Ki"),
        ("1023", "1023"),
        ("0.0000000001", "1m"),
    ],
)
def test_quantities(server: Server, admin: Client, given: Any, written: str) -> None:
    body = {"metadata": {"name": server.unique("node")}, "status": {"capacity": {"cpu": given}}}
    made = admin.create("/api/v1/nodes", body, dryRun="All").ok()
    assert made["status"]["capacity"] == {"cpu": written}


@pytest.mark.parametrize("given", ["x", "1.2.3", "1Q", "", "1 Gi", True, []])
def test_what_is_no_quantity(server: Server, admin: Client, given: Any) -> None:
    body = {"metadata": {"name": server.unique("node")}, "status": {"capacity": {"cpu": given}}}
    text = admin.create("/api/v1/nodes", body, dryRun="All").refused(400, "BadRequest")
    assert text.startswith('Node in version "v1" cannot be handled as a Node: ')


def test_times(server: Server, admin: Client, namespace: str) -> None:
    name = server.unique("node")

    def taint(time: str) -> Any:
        taints = [{"key": "a", "effect": "NoExecute", "timeAdded": time}]
        return admin.create("/api/v1/nodes", {"metadata": {"name": name}, "spec": {"taints": taints}}, dryRun="All")

    for time in ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00.75Z", "2024-01-01T02:00:00+02:00"):
        assert taint(time).ok()["spec"]["taints"][0]["timeAdded"] == "2024-01-01T00:00:00Z"
    text = taint("yesterday").refused(400, "BadRequest")
    form = "2006-01-02T15:04:05Z07:00"
    assert text.endswith(f'parsing time "yesterday" as "{form}": cannot parse "yesterday" as "2006"')
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    def renewed(time: str) -> Any:
        return admin.create(leases, {"metadata": {"name": "l"}, "spec": {"renewTime": time}}, dryRun="All")

    exact = "2024-01-01T00:00:00.123456Z"
    assert renewed(exact).ok()["spec"] == {"renewTime": exact}
    assert renewed("2024-01-01T01:00:00.123456+01:00").ok()["spec"] == {"renewTime": exact}
    # Micro times have exactly six digits.
    for time, rest in (
        ("2024-01-01T00:00:00Z", '"Z" as ".000000"'),
        ("2024-01-01T00:00:00.1234567Z", '"7Z" as "Z07:00"'),
    ):
        assert renewed(time).refused(400, "BadRequest").endswith(f"cannot parse {rest}")


def test_secrets_with_nulls(admin: Client, namespace: str) -> None:
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    made = admin.create(secrets, {"metadata": {"name": "s"}, "data": {"k": None}}).ok()
    assert admin.get(f"{secrets}/s").ok()["data"] == made["data"] == {"k": ""}


def test_templates_of_daemon_sets_are_counted(admin: Client, namespace: str) -> None:
    place = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    counter = "deprecated.daemonset.template.generation"
    body = {"metadata": {"name": "d"}, "spec": workload_spec()}
    assert meta(admin.create(place, body).ok())["annotations"] == {counter: "1"}
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}
    assert meta(admin.patch(f"{place}/d", image).ok())["annotations"] == {counter: "2"}
    assert meta(admin.patch(f"{place}/d", {"metadata": {"annotations": None}}).ok())["annotations"] == {counter: "2"}


def test_a_put_makes_a_service(admin: Client, namespace: str) -> None:
    place = f"/api/v1/namespaces/{namespace}/services/s"
    body = {"metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}
    assert admin.replace(place, body).status == 201
    assert admin.get(place).ok()["spec"]["selector"] == {"a": "b"}
