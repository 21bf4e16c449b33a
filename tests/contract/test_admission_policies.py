"""Admission policies: who may write what, what a refusal says, and what a policy changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from muster.resources.crd import manifests
from tests.contract.accounts import grant, make_account, rule, token_of
from tests.contract.client import JSON_PATCH, Answer, Client
from tests.contract.server import SIMULATOR, Server, eventually

POLICIES = "/apis/admissionregistration.k8s.io/v1"
HEALTHS = "/apis/muster.dev/v1alpha1/nodehealths"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Policy:
    """A policy of one test, bound, that concerns only objects labelled with its name."""

    def __init__(self, server: Server, kind: str, spec: dict[str, Any], *actions: str, **match: Any) -> None:
        self._admin = server.admin
        self.name, self.binding = server.unique("policy"), server.unique("binding")
        self._plural = f"{kind.lower()}admissionpolic"
        resources = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
        selector = {"objectSelector": {"matchLabels": {"policy": self.name}}}
        body = {"matchConstraints": {"resourceRules": [resources], **selector, **match}, **spec}
        self.created = self._admin.create(self._path("ies"), {"metadata": {"name": self.name}, "spec": body})
        bound = {"policyName": self.name, **({"validationActions": list(actions)} if actions else {})}
        binding = {"metadata": {"name": self.binding}, "spec": bound}
        self.bound = self._admin.create(self._path("ybindings"), binding)

    def _path(self, end: str) -> str:
        return f"{POLICIES}/{self._plural}{end}"

    def delete(self) -> None:
        self._admin.delete(f"{self._path('ybindings')}/{self.binding}")
        self._admin.delete(f"{self._path('ies')}/{self.name}")

    def denial(self, message: str) -> str:
        return f"ValidatingAdmissionPolicy '{self.name}' with binding '{self.binding}' denied request: {message}"

    def labelled(self, name: str, **labels: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": {"policy": self.name, **labels}}}


@pytest.fixture
def policies(server: Server) -> Iterator[Any]:
    """Makes policies that go with the test."""
    made: list[Policy] = []

    def make(kind: str, spec: dict[str, Any], *actions: str, **match: Any) -> Policy:
        made.append(Policy(server, kind, spec, *actions, **match))
        return made[-1]

    yield make
    for policy in made:
        policy.delete()


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def refusal(answer: Answer) -> str:
    """The message of whatever refusal; empty when it was none."""
    return str(answer.body["message"]) if answer.status >= 400 else ""


def active(admin: Client, path: str, body: dict[str, Any]) -> str:
    """Wait until creating `body` (a dry run) is refused. Returns the message."""
    return eventually(lambda: refusal(admin.create(path, body, dryRun="All")))


def no(key: str) -> str:
    return f"object == null || !has(object.data) || !('{key}' in object.data)"


def test_a_denial_names_policy_binding_and_message(admin: Client, policies: Any, maps: str) -> None:
    policy = policies("Validating", {"validations": [{"expression": no("bad"), "message": " no bad data "}]}, "Deny")
    body = {**policy.labelled("a"), "data": {"bad": "x"}}
    active(admin, maps, body)
    answer = admin.create(maps, body)
    expected = policy.denial("no bad data")
    assert answer.refused(422, "Invalid") == f'configmaps "a" is forbidden: {expected}'
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "causes": [{"message": expected}]}
    assert admin.create(maps, policy.labelled("a")).status == 201
    assert admin.create(maps, {"metadata": {"name": "other"}, "data": {"bad": "x"}}).status == 201


def test_reasons_and_messages(admin: Client, policies: Any, maps: str) -> None:
    validations = [
        {"expression": no("forbidden"), "reason": "Forbidden", "messageExpression": "'not ' + object.data.forbidden"},
        {"expression": no("large"), "reason": "RequestEntityTooLarge", "message": "large"},
        {"expression": no("plain")},
        {"expression": no("fallback"), "messageExpression": "object.data.nope + ''", "message": "else"},
        {"expression": no("spaces"), "messageExpression": "'  '"},
    ]
    policy = policies("Validating", {"validations": validations}, "Deny")

    def create(key: str) -> Answer:
        return admin.create(maps, {**policy.labelled("a"), "data": {key: "so"}}, dryRun="All")

    eventually(lambda: refusal(create("plain")))
    start = 'configmaps "a" is forbidden: '
    assert create("forbidden").refused(403, "Forbidden") == start + policy.denial("not so")
    assert create("large").refused(413, "RequestEntityTooLarge") == start + policy.denial("large")
    assert create("plain").refused(422, "Invalid") == start + policy.denial(f"failed expression: {no('plain')}")
    assert create("fallback").refused(422, "Invalid") == start + policy.denial("else")
    assert create("spaces").refused(422, "Invalid") == start + policy.denial(f"failed expression: {no('spaces')}")
    assert create("fine").status == 201


def test_every_way_of_writing_is_seen(admin: Client, policies: Any, maps: str) -> None:
    told = (
        "request.operation + ' ' + (has(request.name) ? request.name : '-') + ' ' + string(oldObject != null) + "
        "' ' + string(object != null)"
    )
    spec = {"validations": [{"expression": "false", "messageExpression": told}]}
    free = {"metadata": {"name": "a"}}
    admin.create(maps, free).ok()
    policy = policies("Validating", spec, "Deny")
    marked = {"apiVersion": "v1", "kind": "ConfigMap", **policy.labelled("a")}
    active(admin, maps, policy.labelled("probe"))

    def seen(answer: Answer) -> str:
        return answer.refused(422, "Invalid").partition("denied request: ")[2]

    assert seen(admin.create(maps, policy.labelled("b"))) == "CREATE b false true"
    assert seen(admin.apply(f"{maps}/b", {**marked, **policy.labelled("b")}, manager="m")) == "CREATE b false true"
    assert seen(admin.replace(f"{maps}/a", marked)) == "UPDATE a true true"
    assert seen(admin.apply(f"{maps}/a", marked, manager="m")) == "UPDATE a true true"
    patch = {"metadata": {"labels": {"policy": policy.name}}}
    assert seen(admin.patch(f"{maps}/a", patch)) == "UPDATE a true true"
    label = [{"op": "add", "path": "/metadata/labels", "value": {"policy": policy.name}}]
    assert seen(admin.patch(f"{maps}/a", label, JSON_PATCH)) == "UPDATE a true true"
    generated = admin.create(maps, {"metadata": {"generateName": "g-", "labels": {"policy": policy.name}}})
    assert seen(generated).startswith("CREATE g-")
    policy.delete()
    eventually(lambda: admin.patch(f"{maps}/a", patch).status == 200)
    again = policies("Validating", spec, "Deny", objectSelector={"matchLabels": {"policy": policy.name}})
    message = active(admin, maps, policy.labelled("probe"))
    assert again.name in message
    assert seen(admin.delete(f"{maps}/a")) == "DELETE a true false"
    collection = admin.delete(maps, labelSelector=f"policy={policy.name}")
    assert seen(collection) == "DELETE - true false"
    assert str(collection.body["message"]).startswith('configmaps "Unknown" is forbidden: ')
    assert seen(admin.patch(f"{maps}/a", {})) == "UPDATE a true true"


def test_what_a_policy_knows_of_a_request(admin: Client, policies: Any, maps: str, namespace: str) -> None:
    told = (
        "request.kind.kind + ' ' + request.kind.version + ' ' + request.resource.resource + ' ' + "
        "request.namespace + ' ' + string(has(request.subResource)) + ' ' + string(request.dryRun) + ' ' + "
        "namespaceObject.metadata.name + "
        "' ' + object.kind + ' ' + object.apiVersion + ' ' + string(has(object.metadata.uid)) + ' ' + "
        "string(has(object.metadata.resourceVersion)) + ' ' + string('system:masters' in request.userInfo.groups)"
    )
    policy = policies("Validating", {"validations": [{"expression": "false", "messageExpression": told}]}, "Deny")
    assert active(admin, maps, policy.labelled("a")).endswith(
        f": ConfigMap v1 configmaps {namespace} false true {namespace} ConfigMap v1 true false true"
    )


def test_field_errors_come_before_policies_and_policies_before_conflicts(
    admin: Client, policies: Any, maps: str
) -> None:
    admin.create(maps, {"metadata": {"name": "a"}}).ok()
    policy = policies("Validating", {"validations": [{"expression": "false", "message": "no"}]}, "Deny")
    active(admin, maps, policy.labelled("probe"))
    assert "a lowercase RFC 1123 subdomain" in admin.create(maps, policy.labelled("UPPER")).refused(422, "Invalid")
    assert policy.denial("no") in admin.create(maps, policy.labelled("a")).refused(422, "Invalid")


def test_warnings_and_audit_do_not_stop_a_write(admin: Client, policies: Any, maps: str) -> None:
    validations = [{"expression": "object.nope == 1"}, {"expression": "false", "message": "plain"}]
    policy = policies("Validating", {"validations": validations}, "Warn", "Audit")

    def warnings() -> list[str]:
        answer = admin.create(maps, policy.labelled("a"), dryRun="All")
        assert answer.status == 201
        return [value for name, value in answer.headers.multi_items() if name == "warning"]  # type: ignore[attr-defined] # httpx2.Headers

    found = eventually(warnings)
    start = f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding '{policy.binding}': "
    assert found == [
        f"299 - \"{start}expression 'object.nope == 1' resulted in error: no such key: nope\"",
        f'299 - "{start}plain"',
    ]
    silent = policies("Validating", {"validations": [{"expression": "false"}]}, "Audit")
    assert admin.create(maps, silent.labelled("a")).status == 201


ERRORS = [
    ("object.nope == 1", "no such key: nope"),
    ("1/int(object.data.zero) == 1", "division by zero"),
    ("object.data.list.split(',')[7] == 'x'", "index out of bounds: 7"),
    ("object.metadata.name > 5", "no such overload"),
]


@pytest.mark.parametrize(("expression", "error"), ERRORS)
def test_an_expression_without_a_value_denies(
    admin: Client, policies: Any, maps: str, expression: str, error: str
) -> None:
    policy = policies("Validating", {"validations": [{"expression": expression}]}, "Deny")
    message = active(admin, maps, {**policy.labelled("a"), "data": {"zero": "0", "list": "a,b"}})
    expected = policy.denial(f"expression '{expression}' resulted in error: {error}")
    assert message == f'configmaps "a" is forbidden: {expected}'


def test_a_policy_that_fails_open(admin: Client, policies: Any, maps: str) -> None:
    validations = [{"expression": "object.nope == 1"}, {"expression": no("bad"), "message": "bad"}]
    policy = policies("Validating", {"failurePolicy": "Ignore", "validations": validations}, "Deny")
    assert active(admin, maps, {**policy.labelled("a"), "data": {"bad": "x"}}).endswith("denied request: bad")
    assert admin.create(maps, policy.labelled("a")).status == 201


def test_match_conditions(admin: Client, policies: Any, maps: str) -> None:
    conditions = [{"name": "not-me", "expression": "object.metadata.name != 'me'"}]
    spec = {"validations": [{"expression": "false", "message": "no"}], "matchConditions": conditions}
    policy = policies("Validating", spec, "Deny")
    active(admin, maps, policy.labelled("a"))
    assert admin.create(maps, policy.labelled("me")).status == 201
    broken = [{"name": "broken", "expression": "object.nope == 1"}]
    policy = policies("Validating", {**spec, "matchConditions": broken}, "Deny")
    message = active(admin, maps, policy.labelled("b"))
    expected = policy.denial("expression 'object.nope == 1' resulted in error: no such key: nope")
    assert message == f'configmaps "b" is forbidden: {expected}'


def test_variables(admin: Client, policies: Any, maps: str) -> None:
    variables = [
        {"name": "data", "expression": "has(object.data) ? object.data : {}"},
        {"name": "size", "expression": "size(variables.data)"},
        {"name": "broken", "expression": "object.nope"},
    ]
    validations = [
        {"expression": "variables.size < 2", "messageExpression": "'has ' + string(variables.size)"},
        {"expression": "object.metadata.name != 'b' || variables.broken == 1"},
    ]
    policy = policies("Validating", {"variables": variables, "validations": validations}, "Deny")
    assert active(admin, maps, {**policy.labelled("a"), "data": {"x": "1", "y": "2"}}).endswith("request: has 2")
    assert admin.create(maps, policy.labelled("a")).status == 201
    assert (
        admin.create(maps, policy.labelled("b"))
        .refused(422, "Invalid")
        .endswith(
            f"expression '{validations[1]['expression']}' resulted in error: "
            'composited variable "broken" fails to evaluate: no such key: nope'
        )
    )


def test_which_requests_a_policy_concerns(server: Server, admin: Client, policies: Any, maps: str) -> None:
    def one(**more: Any) -> dict[str, Any]:
        found = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        return {**found, **more}

    spec = {"validations": [{"expression": "false", "message": "no"}]}
    named = policies("Validating", spec, "Deny", resourceRules=[one(resourceNames=["only"])])
    active(admin, maps, named.labelled("only"))
    assert admin.create(maps, named.labelled("other")).status == 201
    excluded = policies("Validating", spec, "Deny", excludeResourceRules=[one(resourceNames=["spared"])])
    active(admin, maps, excluded.labelled("a"))
    assert admin.create(maps, excluded.labelled("spared")).status == 201
    creations = policies("Validating", spec, "Deny", resourceRules=[one()])
    active(admin, maps, creations.labelled("a"))
    admin.create(maps, {"metadata": {"name": "free"}}).ok()
    assert admin.patch(f"{maps}/free", creations.labelled("free")).status == 200
    other = server.new_namespace()
    selected = policies(
        "Validating", spec, "Deny", namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": other}}
    )
    active(admin, f"/api/v1/namespaces/{other}/configmaps", selected.labelled("a"))
    assert admin.create(maps, selected.labelled("unselected")).status == 201
    cluster = policies("Validating", spec, "Deny", resourceRules=[one(resources=["*"], scope="Cluster")])
    active(admin, "/api/v1/nodes", cluster.labelled(server.unique("node")))
    assert admin.create(maps, cluster.labelled("namespaced")).status == 201


def test_a_binding_can_narrow_a_policy(server: Server, admin: Client, maps: str) -> None:
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            ]
        },
        "validations": [{"expression": "false", "message": "no"}],
    }
    name = server.unique("narrow")
    admin.create(f"{POLICIES}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec}).ok()
    narrowed = {"objectSelector": {"matchLabels": {"narrow": name}}}
    body = {"policyName": name, "validationActions": ["Deny"], "matchResources": narrowed}
    binding = f"{POLICIES}/validatingadmissionpolicybindings"
    try:
        admin.create(binding, {"metadata": {"name": name}, "spec": body}).ok()
        active(admin, maps, {"metadata": {"name": "a", "labels": {"narrow": name}}})
        assert admin.create(maps, {"metadata": {"name": "b"}}).status == 201
    finally:
        admin.delete(f"{binding}/{name}")
        admin.delete(f"{POLICIES}/validatingadmissionpolicies/{name}")


def test_a_policy_gets_its_defaults(policies: Any) -> None:
    policy = policies("Validating", {"validations": [{"expression": "true"}]}, "Deny")
    spec = policy.created.ok()["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert spec["matchConstraints"]["matchPolicy"] == "Equivalent"
    assert spec["matchConstraints"]["namespaceSelector"] == {}
    assert spec["matchConstraints"]["resourceRules"][0]["scope"] == "*"
    assert policy.bound.ok()["spec"] == {"policyName": policy.name, "validationActions": ["Deny"]}


WRONG: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    (
        {"validations": []},
        [
            ("spec.validations", "Required value: validations or auditAnnotations must contain at least one item"),
            (
                "spec.auditAnnotations",
                "Required value: validations or auditAnnotations must contain at least one item",
            ),
        ],
    ),
    (
        {"validations": [{"expression": "1"}]},
        [("spec.validations[0].expression", 'Invalid value: "1": must evaluate to bool but got int')],
    ),
    (
        {"validations": [{"expression": "true", "messageExpression": "object.x"}]},
        [("spec.validations[0].messageExpression", 'Invalid value: "object.x": must evaluate to string but got dyn')],
    ),
    (
        {"validations": [{"expression": "unknown.x == 1"}]},
        [
            (
                "spec.validations[0].expression",
                'Invalid value: "unknown.x == 1": compilation failed: ERROR: <input>:1:1: undeclared reference to '
                "'unknown' (in container '')\n | unknown.x == 1\n | ^",
            )
        ],
    ),
    (
        {"validations": [{"expression": "variables.y"}], "variables": [{"name": "x", "expression": "1"}]},
        [
            (
                "spec.validations[0].expression",
                "Invalid value: \"variables.y\": compilation failed: ERROR: <input>:1:10: undefined field 'y'\n"
                " | variables.y\n | .........^",
            )
        ],
    ),
    (
        {"validations": [{"expression": "request.uid == ''"}]},
        [
            (
                "spec.validations[0].expression",
                "Invalid value: \"request.uid == ''\": compilation failed: ERROR: <input>:1:8: "
                "undefined field 'uid'\n"
                " | request.uid == ''\n | .......^",
            )
        ],
    ),
    (
        {"validations": [{"expression": "true", "reason": "NotFound"}], "failurePolicy": "Maybe"},
        [
            ("spec.failurePolicy", 'Unsupported value: "Maybe": supported values: "Fail", "Ignore"'),
            (
                "spec.validations[0].reason",
                'Unsupported value: "NotFound": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"',
            ),
        ],
    ),
    (
        {"validations": [{"expression": "true", "message": "two\nlines"}]},
        [("spec.validations[0].message", 'Invalid value: "two\\nlines": must not contain line breaks')],
    ),
]


@pytest.mark.parametrize(("spec", "causes"), WRONG)
def test_refused_policies(policies: Any, spec: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    answer = policies("Validating", spec, "Deny").created
    answer.refused(422, "Invalid")
    assert [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]] == causes


def test_refused_bindings(policies: Any) -> None:
    spec = {"validations": [{"expression": "true"}]}
    message = policies("Validating", spec, "Deny", "Warn").bound.refused(422, "Invalid")
    assert "must not contain both Deny and Warn" in message
    message = policies("Validating", spec, "Nope").bound.refused(422, "Invalid")
    assert message.endswith('Unsupported value: "Nope": supported values: "Audit", "Deny", "Warn"')
    message = policies("Validating", spec).bound.refused(422, "Invalid")
    assert message.endswith("spec.validationActions: Required value")


@pytest.mark.parametrize(
    "spec",
    [
        {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "true"}]},
        {"validations": [{"expression": "authorizer.path('/x').check('get').allowed()"}]},
        {"validations": [{"expression": "true"}], "auditAnnotations": [{"key": "k", "valueExpression": "'v'"}]},
        {"validations": [{"expression": "quantity('1').isGreaterThan(quantity('0'))"}]},
    ],
)
def test_what_the_simulator_cannot_evaluate_it_refuses(server: Server, policies: Any, spec: dict[str, Any]) -> None:
    answer = policies("Validating", spec, "Audit", objectSelector={"matchLabels": {"nobody": "has"}}).created
    if server.name == SIMULATOR:
        answer.refused(422, "Invalid")
    else:
        assert answer.status == 201


# The policy that keeps each agent to its own node


@pytest.fixture
def nodehealths(admin: Client) -> None:
    for manifest in manifests():
        assert admin.create(CRDS, manifest).status in (201, 409)
    eventually(lambda: admin.get(HEALTHS).status == 200)


class Agent:
    """The client of an agent on its node, with the rights of every agent."""

    def __init__(self, server: Server, namespace: str, account: str) -> None:
        self.node = server.unique("node")
        server.admin.create("/api/v1/nodes", {"metadata": {"name": self.node}}).ok()
        pod = {
            "metadata": {"name": self.node},
            "spec": {
                "serviceAccountName": account,
                "nodeName": self.node,
                "containers": [{"name": "c", "image": "i"}],
            },
        }
        server.admin.create(f"/api/v1/namespaces/{namespace}/pods", pod).ok()
        bound = {"kind": "Pod", "apiVersion": "v1", "name": self.node}
        self.client = server.client(token_of(server, namespace, account, boundObjectRef=bound))
        self.body = {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "NodeHealth",
            "metadata": {"name": self.node},
        }


@pytest.fixture
def agents(server: Server, admin: Client, namespace: str, nodehealths: None) -> Iterator[tuple[Agent, Agent, str]]:
    """Two agents, and the name of the policy that keeps them apart."""
    account, name = server.unique("agent"), server.unique("own-node")
    make_account(server, namespace, account)
    rights = (rule("muster.dev", "nodehealths nodehealths/status", "get create update patch delete"),)
    grant(server, namespace, account, *rights, cluster=True)
    user = f"system:serviceaccount:{namespace}:{account}"
    key = "authentication.kubernetes.io/node-name"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["muster.dev"],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE", "DELETE"],
                    "resources": ["nodehealths", "nodehealths/status"],
                }
            ]
        },
        "matchConditions": [{"name": "agents", "expression": f"request.userInfo.username == '{user}'"}],
        "variables": [
            {
                "name": "node",
                "expression": f"has(request.userInfo.extra) && '{key}' in request.userInfo.extra "
                f"? request.userInfo.extra['{key}'][0] : ''",
            }
        ],
        "validations": [
            {
                "expression": "request.name == variables.node",
                "messageExpression": "'this agent runs on node \"' + variables.node + '\"'",
                "reason": "Forbidden",
            }
        ],
    }
    admin.create(f"{POLICIES}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec}).ok()
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    admin.create(f"{POLICIES}/validatingadmissionpolicybindings", binding).ok()
    mine, other = Agent(server, namespace, account), Agent(server, namespace, account)
    probe = {**mine.body, "metadata": {"name": server.unique("probe")}}
    eventually(lambda: refusal(mine.client.create(HEALTHS, probe, dryRun="All")).endswith(f'node "{mine.node}"'))
    yield mine, other, name
    admin.delete(f"{POLICIES}/validatingadmissionpolicybindings/{name}")
    admin.delete(f"{POLICIES}/validatingadmissionpolicies/{name}")
    for agent in (mine, other):
        admin.delete(f"{HEALTHS}/{agent.node}")
        admin.delete(f"/api/v1/nodes/{agent.node}")


def test_an_agent_writes_its_own_node_only(server: Server, agents: tuple[Agent, Agent, str]) -> None:
    mine, other, name = agents
    assert mine.client.create(HEALTHS, mine.body).status == 201
    assert other.client.apply(f"{HEALTHS}/{other.node}", other.body, manager="a", force="true").status == 201
    path, foreign = f"{HEALTHS}/{mine.node}", f"{HEALTHS}/{other.node}"
    client, label = mine.client, {"metadata": {"labels": {"a": "b"}}}
    applied = {**other.body, "status": {}}
    refused = {
        "create": client.create(HEALTHS, other.body),
        "update": client.replace(foreign, client.get(foreign).ok()),
        "patch": client.patch(foreign, label),
        "no-op patch": client.patch(foreign, {}),
        "apply": client.apply(foreign, other.body, manager="m", force="true"),
        "status": client.patch(f"{foreign}/status", {"status": {}}),
        "status apply": client.apply(f"{foreign}/status", applied, manager="m", force="true"),
        "delete": client.delete(foreign),
    }
    expected = (
        f"nodehealths.muster.dev \"{other.node}\" is forbidden: ValidatingAdmissionPolicy '{name}' with binding "
        f"'{name}' denied request: this agent runs on node \"{mine.node}\""
    )
    for what, answer in refused.items():
        assert answer.refused(403, "Forbidden") == expected, what
    assert client.patch(path, label).status == 200
    assert client.apply(f"{path}/status", {**mine.body, "status": {}}, manager="m", force="true").status == 200
    assert client.replace(path, client.get(path).ok()).status == 200
    assert client.delete(path).status == 200


def test_a_token_without_a_node_writes_nothing(
    server: Server, namespace: str, agents: tuple[Agent, Agent, str]
) -> None:
    mine, _, _ = agents
    account = server.admin.get(f"/api/v1/namespaces/{namespace}/pods/{mine.node}").ok()["spec"]["serviceAccountName"]
    with server.client(token_of(server, namespace, account)) as client:
        message = client.create(HEALTHS, mine.body).refused(403, "Forbidden")
    assert message.endswith('denied request: this agent runs on node ""')


def test_others_are_not_concerned(server: Server, admin: Client, agents: tuple[Agent, Agent, str]) -> None:
    _, other, _ = agents
    assert admin.create(HEALTHS, other.body).status == 201


# Mutating policies


def mutation(kind: str, expression: str) -> dict[str, Any]:
    field = "jsonPatch" if kind == "JSONPatch" else "applyConfiguration"
    return {"patchType": kind, field: {"expression": expression}}


TAINT = 'Object.spec.taints{key: "muster.dev/hold", effect: "NoSchedule"}'
HOLD = f"""has(object.spec.taints) && object.spec.taints.exists(t, t.key == "muster.dev/hold") ? [] : (
  has(object.spec.taints)
  ? [JSONPatch{{op: "add", path: "/spec/taints/-", value: {TAINT}}}]
  : [JSONPatch{{op: "add", path: "/spec/taints", value: [{TAINT}]}}])
"""
NODES = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]}


def keys(node: dict[str, Any]) -> list[str]:
    """Taints of a node, those left out that a real server gives every new node."""
    found = [taint["key"] for taint in node["spec"].get("taints", [])]
    return [key for key in found if not key.startswith("node.kubernetes.io/")]


def test_a_new_node_is_held(server: Server, admin: Client, policies: Any) -> None:
    spec = {"mutations": [mutation("JSONPatch", HOLD)], "reinvocationPolicy": "IfNeeded"}
    policy = policies("Mutating", spec, resourceRules=[NODES])

    def create(**spec: Any) -> dict[str, Any]:
        body = {**policy.labelled(server.unique("node")), "spec": spec}
        return admin.create("/api/v1/nodes", body, dryRun="All").ok()

    eventually(lambda: keys(create()))
    node = create()
    assert keys(node) == ["muster.dev/hold"]
    assert keys(create(taints=[{"key": "a", "effect": "NoExecute"}])) == ["a", "muster.dev/hold"]
    assert keys(create(taints=[{"key": "muster.dev/hold", "effect": "NoExecute"}])) == ["muster.dev/hold"]
    owned = [entry["fieldsV1"] for entry in node["metadata"]["managedFields"]]
    assert all("f:spec" not in fields for fields in owned), "what a policy adds is owned by nobody"


def test_an_applied_configuration(server: Server, admin: Client, policies: Any) -> None:
    expression = (
        'Object{metadata: Object.metadata{labels: {"muster.dev/state": variables.state}}, '
        "spec: Object.spec{unschedulable: true}}"
    )
    spec = {
        "variables": [{"name": "state", "expression": "'held'"}],
        "mutations": [mutation("ApplyConfiguration", expression)],
        "matchConditions": [{"name": "not-spared", "expression": "!('spared' in object.metadata.labels)"}],
        "reinvocationPolicy": "Never",
    }
    policy = policies("Mutating", spec, resourceRules=[NODES])

    def create(**labels: str) -> dict[str, Any]:
        return admin.create("/api/v1/nodes", policy.labelled(server.unique("node"), **labels), dryRun="All").ok()

    eventually(lambda: create()["spec"].get("unschedulable"))
    node = create(a="b")
    assert node["metadata"]["labels"] == {"a": "b", "policy": policy.name, "muster.dev/state": "held"}
    assert "unschedulable" not in create(spared="1")["spec"]


FAILING = [
    ("JSONPatch", '[JSONPatch{op: "add", path: "/metadata/labels/z", value: object.nope}]', "no such key: nope"),
    (
        "ApplyConfiguration",
        'Object{spec: Object.spec{taints: [Object.spec.taints{key: "z", effect: "NoSchedule"}]}}',
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
        ".spec.taints",
    ),
    (
        "ApplyConfiguration",
        'Object{nonsense: "x"}',
        "error applying patch: failed to convert patch object to typed object: "
        ".nonsense: field not declared in schema",
    ),
]


@pytest.mark.parametrize(("kind", "expression", "error"), FAILING)
def test_a_mutation_that_fails(
    server: Server, admin: Client, policies: Any, kind: str, expression: str, error: str
) -> None:
    spec = {"mutations": [mutation(kind, expression)], "reinvocationPolicy": "Never"}
    policy = policies("Mutating", spec, resourceRules=[NODES])
    body = policy.labelled(server.unique("node"))
    active(admin, "/api/v1/nodes", body)
    answer = admin.create("/api/v1/nodes", body, dryRun="All")
    message = answer.refused(403, "Invalid")
    assert message.startswith(f"policy '{policy.name}' with binding '{policy.binding}' denied request: ")
    assert message.endswith(error)
    assert answer.body["details"]["causes"] == [{"message": message}]


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {},
            [
                ("spec.mutations", "Required value: mutations must contain at least one item"),
                ("spec.reinvocationPolicy", "Required value"),
            ],
        ),
        (
            {"mutations": [mutation("JSONPatch", "[1]")], "reinvocationPolicy": "Never"},
            [
                (
                    "spec.mutations[0].jsonPatch.expression",
                    'Invalid value: "[1]": must evaluate to list(JSONPatch) but got list(int)',
                )
            ],
        ),
        (
            {"mutations": [mutation("ApplyConfiguration", '{"a":1}')], "reinvocationPolicy": "Never"},
            [
                (
                    "spec.mutations[0].applyConfiguration.expression",
                    'Invalid value: "{\\"a\\":1}": must evaluate to Object but got map(string, int)',
                )
            ],
        ),
    ],
)
def test_refused_mutating_policies(policies: Any, spec: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    answer = policies("Mutating", spec, resourceRules=[NODES]).created
    answer.refused(422, "Invalid")
    assert [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]] == causes


@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
def test_a_binding_counts_its_specs(server: Server, admin: Client, kind: str) -> None:
    place, name = f"{POLICIES}/{kind.lower()}admissionpolicybindings", server.unique("binding")
    actions = {"validationActions": ["Deny"]} if kind == "Validating" else {}
    try:
        made = admin.create(place, {"metadata": {"name": name}, "spec": {"policyName": "none", **actions}}).ok()
        labelled = admin.patch(f"{place}/{name}", {"metadata": {"labels": {"a": "b"}}}).ok()
        changed = admin.patch(f"{place}/{name}", {"spec": {"policyName": "another"}}).ok()
    finally:
        admin.delete(f"{place}/{name}")
    assert [found["metadata"]["generation"] for found in (made, labelled, changed)] == [1, 1, 2]
