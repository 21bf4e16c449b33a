"""Label and field selectors: what they show, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import Client
from tests.contract.server import Server
from tests.contract.things import definition, served

NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
UNKNOWN = 'is not a known field selector: only "metadata.name", "metadata.namespace"'


@pytest.fixture(scope="module")
def maps(server: Server) -> str:
    """Five config maps c0 to c4: label i with their number, c3 also with a/b=x."""
    path = f"/api/v1/namespaces/{server.new_namespace()}/configmaps"
    for number in range(5):
        labels = {"i": str(number), **({"a/b": "x"} if number == 3 else {})}
        server.admin.create(path, {"metadata": {"name": f"c{number}", "labels": labels}}).ok()
    return path


def shown(admin: Client, path: str, **parameters: str) -> str:
    """The numbers of the config maps that a list shows."""
    found = [item["metadata"]["name"] for item in admin.get(path, **parameters).ok()["items"]]
    return "".join(name.removeprefix("c") for name in found if name != "kube-root-ca.crt")


@pytest.mark.parametrize(
    ("selector", "numbers"),
    [
        ("i=1", "1"),
        ("i==1", "1"),
        ("i!=1,i", "0234"),
        ("i", "01234"),
        ("!i", ""),
        ("! i", ""),
        ("i in (1,2)", "12"),
        ("i in (1, 2 ,)", "12"),
        ("i  in(1)", "1"),
        ("i in ()", ""),
        ("i notin (1,2),i", "034"),
        ("a/b", "3"),
        ("!a/b,i", "0124"),
        ("i>2", "34"),
        ("i <2", "01"),
        ("i=", ""),
        ("i!=,i", "01234"),
        ("i = 1", "1"),
        ("in in (in)", ""),
        ("notin", ""),
        ("i,i", "01234"),
    ],
)
def test_labels_select(admin: Client, maps: str, selector: str, numbers: str) -> None:
    assert shown(admin, maps, labelSelector=selector) == numbers


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("i=1,", "found '', expected: identifier after ','"),
        ("i=1,,i", "found ',', expected: identifier after ','"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("=1", "found '=', expected: !, identifier, or 'end of string'"),
        (">2", "found '>', expected: !, identifier, or 'end of string'"),
        ("i=a b", "found 'b', expected: ',' or 'end of string'"),
        ("i=1=2", "found '=', expected: ',' or 'end of string'"),
        ("i=1)", "found ')', expected: ',' or 'end of string'"),
        ("!i=1", "found '=', expected: ',' or 'end of string'"),
        ("i in 1", "unable to parse requirement: found '1' expected: '('"),
        ("i in (1", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("i in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'"),
        ("i!", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("i=(", "unable to parse requirement: found '(', expected: identifier"),
        ("i=>2", "unable to parse requirement: found '>', expected: identifier"),
        (
            "i>x",
            'unable to parse requirement: values[0]: Invalid value: "x": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("-i", f'unable to parse requirement: <nil>: Invalid value: "-i": {NAME_RULE}'),
        ("i=-1", f'unable to parse requirement: values[0][i]: Invalid value: "-1": {VALUE_RULE}'),
        ("/b=1", 'unable to parse requirement: <nil>: Invalid value: "/b": prefix part must be non-empty'),
        (
            "x" * 64,
            f'unable to parse requirement: <nil>: Invalid value: "{"x" * 64}": '
            "name part must be no more than 63 bytes",
        ),
        (
            "i=" + "x" * 64,
            f'unable to parse requirement: values[0][i]: Invalid value: "{"x" * 64}": must be no more than 63 bytes',
        ),
    ],
)
def test_labels_that_cannot_be_read(admin: Client, maps: str, selector: str, message: str) -> None:
    assert admin.get(maps, labelSelector=selector).refused(400, "BadRequest") == message
    assert admin.get(maps, labelSelector=selector, watch="true").refused(400, "BadRequest") == message


def test_a_key_with_a_wrong_prefix(admin: Client, maps: str) -> None:
    for selector in ("A/b=1", "a/b/c=1"):
        message = admin.get(maps, labelSelector=selector).refused(400, "BadRequest")
        assert message.startswith(
            f'unable to parse requirement: <nil>: Invalid value: "{selector.partition("=")[0]}": '
        )


@pytest.mark.parametrize(
    ("selector", "numbers"),
    [
        ("metadata.name=c1", "1"),
        ("metadata.name==c1", "1"),
        ("metadata.name!=c1", "0234"),
        ("metadata.name=c1,metadata.name=c2", ""),
        ("metadata.name=c1,", "1"),
        (",metadata.name=c1", "1"),
        ("metadata.namespace=elsewhere", ""),
        ("metadata.name=c\\,1", ""),
        ("metadata.name= c1", ""),
    ],
)
def test_fields_select(admin: Client, maps: str, selector: str, numbers: str) -> None:
    assert shown(admin, maps, fieldSelector=selector) == numbers


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        (
            "metadata.name in (x)",
            "invalid selector: 'metadata.name in (x)'; can't understand 'metadata.name in (x)'",
        ),
        ("metadata.name=c\\1", "invalid field selector: invalid escape sequence: \\1"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("foo=bar", f'"foo" {UNKNOWN}'),
        ("metadata.uid=x", f'"metadata.uid" {UNKNOWN}'),
        ("metadata.name = c1", f'"metadata.name " {UNKNOWN}'),
        ("=x", f'"" {UNKNOWN}'),
    ],
)
def test_fields_that_cannot_be_read(admin: Client, maps: str, selector: str, message: str) -> None:
    assert admin.get(maps, fieldSelector=selector).refused(400, "BadRequest") == message


REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
SUPPORTED = [
    *(
        ("/api/v1/pods", f"{field}=absent")
        for field in (
            *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
            *("spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName"),
        )
    ),
    ("/api/v1/nodes", "spec.unschedulable=x"),
    ("/api/v1/namespaces", "status.phase=x"),
    ("/api/v1/secrets", "type=x"),
    ("/api/v1/services", "spec.type=x"),
    ("/api/v1/services", "spec.clusterIP=x"),
    ("/apis/batch/v1/jobs", "status.successful=77"),
    *(("/api/v1/events", f"involvedObject.{field}=absent") for field in REFERENCE),
    *(("/api/v1/events", f"{field}=absent") for field in ("reason", "reportingComponent", "source", "type")),
    *(("/apis/events.k8s.io/v1/events", f"regarding.{field}=absent") for field in REFERENCE),
    *(("/apis/events.k8s.io/v1/events", f"{field}=absent") for field in ("reason", "reportingController", "type")),
]


@pytest.mark.parametrize(("path", "selector"), SUPPORTED)
def test_fields_that_kinds_offer(admin: Client, path: str, selector: str) -> None:
    assert admin.get(path, fieldSelector=selector).ok()["items"] == []


@pytest.mark.parametrize(
    ("path", "field", "message"),
    [
        ("/api/v1/pods", "spec.foo", "field label not supported: spec.foo"),
        ("/api/v1/nodes", "metadata.namespace", "field label not supported: metadata.namespace"),
        ("/api/v1/namespaces", "name", "field label not supported: name"),
        ("/api/v1/events", "regarding.name", "field label not supported: regarding.name"),
        ("/api/v1/events", "reportingController", "field label not supported: reportingController"),
        ("/apis/events.k8s.io/v1/events", "involvedObject.name", "field label not supported: involvedObject.name"),
        ("/apis/events.k8s.io/v1/events", "reportingComponent", "field label not supported: reportingComponent"),
        ("/apis/batch/v1/jobs", "foo", 'field label "foo" not supported for Job'),
        ("/apis/coordination.k8s.io/v1/leases", "spec.holderIdentity", f'"spec.holderIdentity" {UNKNOWN}'),
        ("/apis/policy/v1/poddisruptionbudgets", "foo", f'"foo" {UNKNOWN}'),
        ("/apis/apps/v1/deployments", "foo", f'"foo" {UNKNOWN}'),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "foo", f'"foo" {UNKNOWN}'),
    ],
)
def test_fields_that_kinds_do_not_offer(admin: Client, path: str, field: str, message: str) -> None:
    assert admin.get(path, fieldSelector=f"{field}=x").refused(400, "BadRequest") == message
    assert admin.get(path, fieldSelector=f"{field}=x", watch="1").refused(400, "BadRequest") == message


def test_pods_by_node_and_phase(server: Server, admin: Client, namespace: str) -> None:
    path, node = f"/api/v1/namespaces/{namespace}/pods", server.unique("node")
    for name, extra in (("placed", {"nodeName": node}), ("waiting", {})):
        spec = {"containers": [{"name": "c", "image": "i"}], **extra}
        admin.create(path, {"metadata": {"name": name}, "spec": spec}).ok()

    def found(selector: str) -> list[str]:
        return [item["metadata"]["name"] for item in admin.get(path, fieldSelector=selector).ok()["items"]]

    assert found(f"spec.nodeName={node}") == ["placed"]
    assert found("spec.nodeName=") == ["waiting"]
    assert found(f"spec.nodeName!={node},status.phase=Pending") == ["waiting"]
    assert found("status.phase!=Succeeded,status.phase!=Failed") == ["placed", "waiting"]
    assert found("spec.hostNetwork=false") == ["placed", "waiting"]
    assert found("spec.restartPolicy=Always,spec.schedulerName=default-scheduler") == ["placed", "waiting"]


def test_nodes_that_take_no_pods(server: Server, admin: Client) -> None:
    label, names = server.unique("cordon"), [server.unique("node") for _ in range(2)]
    for name, spec in zip(names, ({"unschedulable": True}, {}), strict=True):
        labels = {label: "", "muster.dev/test": "true"}
        admin.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": spec}).ok()

    def found(value: str) -> list[str]:
        body = admin.get("/api/v1/nodes", labelSelector=label, fieldSelector=f"spec.unschedulable={value}").ok()
        return [item["metadata"]["name"] for item in body["items"]]

    assert (found("true"), found("false")) == (names[:1], names[1:])
    for name in names:
        admin.delete(f"/api/v1/nodes/{name}").ok()


def test_custom_resources_by_their_selectable_fields(server: Server, admin: Client, namespace: str) -> None:
    fields = [{"jsonPath": f".spec.{name}"} for name in ("color", "size", "on")]
    thing = definition(server, scope="Namespaced", selectableFields=fields)
    with served(admin, thing) as path_of:
        path = path_of(namespace)

        def create(name: str, **spec: Any) -> None:
            body = {"apiVersion": thing.api_version, "kind": thing.kind, "metadata": {"name": name}, "spec": spec}
            admin.create(path, body).ok()

        def found(selector: str) -> list[str]:
            return [item["metadata"]["name"] for item in admin.get(path, fieldSelector=selector).ok()["items"]]

        create("a", color="red", size=1, on=True)
        create("b", color="blue", size=2)
        assert found("spec.color=red") == ["a"]
        assert found("spec.color!=red") == ["b"]
        assert found("spec.size=2") == ["b"]
        assert found("spec.on=true") == ["a"]
        assert found("spec.on=") == ["b"]
        assert found("metadata.name=a,spec.color=red") == ["a"]
        for unknown in ("spec.other", ".spec.color"):
            message = admin.get(path, fieldSelector=f"{unknown}=x").refused(400, "BadRequest")
            assert message == f"field label not supported: {unknown}"


def test_a_cluster_wide_custom_resource_has_no_namespace_to_select(server: Server, admin: Client) -> None:
    thing = definition(server, scope="Cluster")
    with served(admin, thing) as path_of:
        assert admin.get(path_of(""), fieldSelector="metadata.name=x").ok()["items"] == []
        message = admin.get(path_of(""), fieldSelector="metadata.namespace=x").refused(400, "BadRequest")
        assert message == "field label not supported: metadata.namespace"


def test_delete_collection_reads_selectors_too(admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("keep", "drop"):
        admin.create(path, {"metadata": {"name": name, "labels": {"fate": name}}}).ok()
    admin.delete(path, labelSelector="fate=-").refused(400, "BadRequest")
    admin.delete(path, fieldSelector="foo=x").refused(400, "BadRequest")
    admin.delete(path, labelSelector="fate=drop").ok()
    found = [item["metadata"]["name"] for item in admin.get(path, labelSelector="fate").ok()["items"]]
    assert found == ["keep"]
