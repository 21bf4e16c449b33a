"""Tables: the columns and cells that `kubectl get` prints, for every kind that both servers have."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.client import Answer, Client
from tests.contract.server import Server

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
POD = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
SELECTOR = {"matchLabels": {"a": "b"}}
RBAC = "rbac.authorization.k8s.io"
AGE = re.compile(r"\d+[smhdy](\d+[smhd])?")
WIDE = [("Containers", "string", 1), ("Images", "string", 1), ("Selector", "string", 1)]
NAME, AGES = ("Name", "string", 0), ("Age", "string", 0)
CREATED = ("Created At", "date", 0)
BINDING = [NAME, ("Role", "string", 0), AGES, ("Users", "string", 1), ("Groups", "string", 1)]


def strings(*names: str, priority: int = 0) -> list[tuple[str, str, int]]:
    return [(name, "string", priority) for name in names]


def integers(*names: str) -> list[tuple[str, str, int]]:
    return [(name, "integer", 0) for name in names]


COLUMNS: dict[str, list[tuple[str, str, int]]] = {
    "/api/v1/pods": [
        *strings("Name", "Ready", "Status", "Restarts", "Age"),
        *strings("IP", "Node", "Nominated Node", "Readiness Gates", priority=1),
    ],
    "/api/v1/nodes": [
        *strings("Name", "Status", "Roles", "Age", "Version"),
        *strings(*("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"), priority=1),
    ],
    "/api/v1/namespaces": strings("Name", "Status", "Age"),
    "/api/v1/configmaps": strings("Name", "Data", "Age"),
    "/api/v1/secrets": strings("Name", "Type", "Data", "Age"),
    "/api/v1/services": [
        *strings("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"),
        ("Selector", "string", 1),
    ],
    "/api/v1/serviceaccounts": strings("Name", "Age"),
    "/api/v1/events": [
        *strings("Last Seen", "Type", "Reason", "Object"),
        *strings("Subobject", "Source", priority=1),
        ("Message", "string", 0),
        *strings("First Seen", "Count", "Name", priority=1),
    ],
    "/apis/coordination.k8s.io/v1/leases": strings("Name", "Holder", "Age"),
    "/apis/policy/v1/poddisruptionbudgets": [
        *strings("Name", "Min Available", "Max Unavailable"),
        *(*integers("Allowed Disruptions"), AGES),
    ],
    "/apis/apps/v1/deployments": [*strings("Name", "Ready", "Up-to-date", "Available", "Age"), *WIDE],
    "/apis/apps/v1/daemonsets": [
        *(NAME, *integers("Desired", "Current", "Ready", "Up-to-date", "Available")),
        *(*strings("Node Selector", "Age"), *WIDE),
    ],
    "/apis/apps/v1/replicasets": [NAME, *integers("Desired", "Current", "Ready"), AGES, *WIDE],
    "/apis/apps/v1/statefulsets": [*strings("Name", "Ready", "Age"), *WIDE[:2]],
    "/apis/batch/v1/jobs": [*strings("Name", "Status", "Completions", "Duration", "Age"), *WIDE],
    "/apis/scheduling.k8s.io/v1/priorityclasses": [
        *(NAME, ("Value", "integer", 0), ("Global-Default", "boolean", 0)),
        *strings("Age", "PreemptionPolicy"),
    ],
    f"/apis/{RBAC}/v1/roles": [NAME, CREATED],
    f"/apis/{RBAC}/v1/clusterroles": [NAME, CREATED],
    f"/apis/{RBAC}/v1/rolebindings": [*BINDING, ("ServiceAccounts", "string", 1)],
    f"/apis/{RBAC}/v1/clusterrolebindings": [*BINDING, ("ServiceAccounts", "string", 1)],
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies": [
        *(NAME, ("Validations", "integer", 0), ("ParamKind", "string", 0), AGES),
    ],
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings": strings(
        "Name", "PolicyName", "ParamRef", "Age"
    ),
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": [
        *strings("Name", "Scope", "Versions"),
        *(CREATED, *strings("Group", "Kind", "ShortNames", priority=1), ("Established", "boolean", 1)),
    ],
}


def table(admin: Client, path: str, **parameters: str) -> dict[str, Any]:
    return admin.request("GET", path, params=parameters, accept=TABLE).ok()


def cells(answer: dict[str, Any]) -> list[list[Any]]:
    """The cells of the rows, with ages as `AGE`."""
    rows = [row["cells"] for row in answer["rows"] or []]
    return [["AGE" if isinstance(c, str) and AGE.fullmatch(c) else c for c in row] for row in rows]


@pytest.mark.parametrize("path", COLUMNS)
def test_the_columns_of_every_kind(admin: Client, path: str) -> None:
    found = table(admin, path, limit="1")
    assert (found["kind"], found["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = found["columnDefinitions"]
    assert [(column["name"], column["type"], column["priority"]) for column in columns] == COLUMNS[path]
    assert [column["name"] for column in columns if column["format"] == "name"] == ["Name"]
    assert all(set(column) == {"name", "type", "format", "description", "priority"} for column in columns)


NAMESPACED: list[tuple[str, str, dict[str, Any], list[Any]]] = [
    ("/api/v1", "pods", POD, ["x", "0/1", "Pending", "0", "AGE", *["<none>"] * 4]),
    ("/api/v1", "configmaps", {"data": {"a": "1"}, "binaryData": {"b": "AA=="}}, ["x", 2, "AGE"]),
    ("/api/v1", "secrets", {"stringData": {"a": "1"}}, ["x", "Opaque", 1, "AGE"]),
    ("/api/v1", "serviceaccounts", {}, ["x", "AGE"]),
    ("/apis/coordination.k8s.io/v1", "leases", {"spec": {"holderIdentity": "me"}}, ["x", "me", "AGE"]),
    (
        "/apis/policy/v1",
        "poddisruptionbudgets",
        {"spec": {"minAvailable": 1, "selector": SELECTOR}},
        ["x", "1", "N/A", 0, "AGE"],
    ),
    (
        "/apis/apps/v1",
        "deployments",
        {"spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}},
        ["x", "0/0", 0, 0, "AGE", "c", "i", "a=b"],
    ),
    (
        "/apis/apps/v1",
        "daemonsets",
        {
            "spec": {
                "selector": SELECTOR,
                "template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelector": {"no": "where"}}},
            }
        },
        ["x", 0, 0, 0, 0, 0, "no=where", "AGE", "c", "i", "a=b"],
    ),
    (
        "/apis/apps/v1",
        "replicasets",
        {"spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}},
        ["x", 0, 0, 0, "AGE", "c", "i", "a=b"],
    ),
    (
        "/apis/apps/v1",
        "statefulsets",
        {"spec": {"replicas": 0, "serviceName": "s", "selector": SELECTOR, "template": TEMPLATE}},
        ["x", "0/0", "AGE", "c", "i"],
    ),
    (
        f"/apis/{RBAC}/v1",
        "rolebindings",
        {
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "sa", "namespace": "n"},
                {"kind": "User", "name": "u", "apiGroup": RBAC},
                {"kind": "Group", "name": "g", "apiGroup": RBAC},
                {"kind": "Group", "name": "h", "apiGroup": RBAC},
            ],
        },
        ["x", "ClusterRole/view", "AGE", "u", "g, h", "n/sa"],
    ),
]


@pytest.mark.parametrize(("group", "plural", "body", "expected"), NAMESPACED, ids=[case[1] for case in NAMESPACED])
def test_the_cells_of_an_object(
    admin: Client, namespace: str, group: str, plural: str, body: dict[str, Any], expected: list[Any]
) -> None:
    path = f"{group}/namespaces/{namespace}/{plural}"
    admin.create(path, {"metadata": {"name": "x"}, **body}).ok()
    assert cells(table(admin, path, fieldSelector="metadata.name=x")) == [expected]
    assert cells(table(admin, f"{path}/x")) == [expected]


def test_the_cells_of_a_service(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    spec = {"clusterIP": "None", "ports": [{"port": 80}, {"port": 53, "protocol": "UDP", "name": "d"}]}
    spec["ports"][0]["name"] = "a"  # type: ignore[index]
    admin.create(path, {"metadata": {"name": "x"}, "spec": {**spec, "selector": {"k": "v", "a": "b"}}}).ok()
    expected = ["x", "ClusterIP", "None", "<none>", "80/TCP,53/UDP", "AGE", "a=b,k=v"]
    assert cells(table(admin, path)) == [expected]


def test_the_cells_of_a_node(server: Server, admin: Client) -> None:
    name = server.unique("node")
    labels = {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "other", "muster.dev/test": "true"}
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"unschedulable": True}}
    admin.create("/api/v1/nodes", body).ok()
    one = {"fieldSelector": f"metadata.name={name}"}
    unknown = ["<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"]
    assert cells(table(admin, "/api/v1/nodes", **one)) == [
        [name, "Unknown,SchedulingDisabled", "other,worker", "AGE", "", *unknown]
    ]
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "kubeletVersion": "v1.37.2",
            "osImage": "Linux",
            "kernelVersion": "6.8",
            "containerRuntimeVersion": "containerd://2",
        },
    }
    admin.patch(f"/api/v1/nodes/{name}/status", {"status": status}).ok()
    assert cells(table(admin, "/api/v1/nodes", **one))[0][1:] == [
        *("Ready,SchedulingDisabled", "other,worker", "AGE", "v1.37.2", "10.0.0.1"),
        *("<none>", "Linux", "6.8", "containerd://2"),
    ]
    admin.delete(f"/api/v1/nodes/{name}").ok()


def waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


def ended(code: int, reason: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, **({"reason": reason} if reason else {})}}


RUNNING: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
READY = [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Running", "conditions": READY, "containers": [(RUNNING, True, 0)]}, ["1/1", "Running", "0"]),
        ({"phase": "Running", "containers": [(RUNNING, False, 2)]}, ["0/1", "Running", "2"]),
        (
            {"phase": "Pending", "containers": [(waiting("ImagePullBackOff"), False, 0)]},
            ["0/1", "ImagePullBackOff", "0"],
        ),
        (
            {"phase": "Running", "containers": [(waiting("CrashLoopBackOff"), False, 3)]},
            ["0/1", "CrashLoopBackOff", "3"],
        ),
        ({"phase": "Succeeded", "containers": [(ended(0, "Completed"), False, 0)]}, ["0/1", "Completed", "0"]),
        ({"phase": "Failed", "containers": [(ended(137, "OOMKilled"), False, 0)]}, ["0/1", "OOMKilled", "0"]),
        ({"phase": "Failed", "containers": [(ended(3), False, 0)]}, ["0/1", "ExitCode:3", "0"]),
        ({"phase": "Failed", "reason": "Evicted", "containers": []}, ["0/1", "Evicted", "0"]),
        ({"phase": "Failed", "reason": "DeadlineExceeded", "containers": []}, ["0/1", "DeadlineExceeded", "0"]),
        ({"phase": "Unknown", "containers": []}, ["0/1", "Unknown", "0"]),
    ],
)
def test_the_status_of_a_pod(admin: Client, namespace: str, status: dict[str, Any], expected: list[str]) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    admin.create(path, {"metadata": {"name": "p"}, **POD}).ok()
    written = {key: value for key, value in status.items() if key != "containers"}
    written["containerStatuses"] = [
        {"name": "c", "image": "i", "imageID": "i", "state": state, "ready": ready, "restartCount": restarts}
        for state, ready, restarts in status["containers"]
    ]
    admin.patch(f"{path}/p/status", {"status": written}).ok()
    assert cells(table(admin, path))[0][1:4] == expected


def test_a_pod_that_is_going(server: Server, admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    body = {"metadata": {"name": "p", "finalizers": ["muster.dev/test"]}, **POD}
    admin.create(path, body).ok()
    admin.delete(f"{path}/p").ok()
    assert cells(table(admin, path))[0][2] == "Terminating"
    admin.patch(f"{path}/p", {"metadata": {"finalizers": None}}).ok()


def test_the_cells_of_events(admin: Client, namespace: str) -> None:
    core = f"/api/v1/namespaces/{namespace}/events"
    new = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    admin.create(
        core,
        {
            "metadata": {"name": "old"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace, "fieldPath": "spec.containers{c}"},
            "source": {"component": "kubelet", "host": "h"},
            "reason": "Pulled",
            "message": " m ",
            "type": "Normal",
            "count": 4,
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:05Z",
        },
    ).ok()
    admin.create(
        new,
        {
            "metadata": {"name": "new"},
            "regarding": {"kind": "Pod", "name": "p", "namespace": namespace},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reason": "Held",
            "note": "n",
            "type": "Warning",
            "reportingController": "muster.dev/c",
            "reportingInstance": "i",
            "action": "Hold",
            "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"},
        },
    ).ok()
    admin.create(core, {"metadata": {"name": "bare"}, "involvedObject": {"namespace": namespace}}).ok()
    unknown = "<unknown>"
    expected = [
        [unknown, "", "", "", "", "", "", unknown, 1, "bare"],
        ["AGE", "Warning", "Held", "pod/p", "", "muster.dev/c, i", "n", "AGE", 2, "new"],
        ["AGE", "Normal", "Pulled", "pod/p", "spec.containers{c}", "kubelet, h", "m", "AGE", 4, "old"],
    ]
    for path in (core, new):
        assert cells(table(admin, path)) == expected


def test_what_a_row_carries(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    admin.create(path, {"metadata": {"name": "x"}, "stringData": {"a": "1"}}).ok()

    def carried(**parameters: str) -> Any:
        (row,) = table(admin, path, fieldSelector="metadata.name=x", **parameters)["rows"]
        assert set(row) == {"cells", "object"}
        return row["object"]

    assert set(carried()) == {"kind", "apiVersion", "metadata"}
    assert carried()["kind"] == carried(includeObject="Metadata")["kind"] == "PartialObjectMetadata"
    assert carried(includeObject="None") is None
    whole = carried(includeObject="Object")
    assert (whole["kind"], whole["apiVersion"], whole["data"]) == ("Secret", "v1", {"a": "MQ=="})
    answer: Answer = admin.request("GET", path, params={"includeObject": "Some"}, accept=TABLE)
    assert answer.refused(400, "BadRequest") == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "Some": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )


def test_a_table_is_paged_like_a_list(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/leases".replace("/api/v1", "/apis/coordination.k8s.io/v1")
    for name in ("a", "b", "c"):
        admin.create(path, {"metadata": {"name": name}}).ok()
    first = table(admin, path, limit="2")
    assert [row[0] for row in cells(first)] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    rest = table(admin, path, **{"continue": first["metadata"]["continue"]})
    assert [row[0] for row in cells(rest)] == ["c"]
    single = table(admin, f"{path}/a")
    version = admin.get(f"{path}/a").ok()["metadata"]["resourceVersion"]
    assert single["metadata"] == {"resourceVersion": version}


def test_whoever_takes_plain_json_too_gets_the_table(admin: Client, namespace: str) -> None:
    accept = f"{TABLE},application/json;as=Table;g=meta.k8s.io;v=v1beta1,application/json"
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert admin.request("GET", path, accept=accept).ok()["kind"] == "Table"
