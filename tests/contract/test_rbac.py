"""What roles allow, what they do not, and how a refusal reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.accounts import RBAC, REVIEWS, grant, holder, make_account, may, rule, token_of, user_name, whoami
from tests.contract.client import APPLY, Answer, Client
from tests.contract.server import Server, eventually

CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
POD = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def cannot(client: Client, verb: str, resource: str, where: str, *, group: str = "", name: str = "") -> str:
    """The refusal that a client should read."""
    plural = resource.partition("/")[0] + (f".{group}" if group else "")
    subject = f'{plural} "{name}"' if name else plural
    user = whoami(client)["username"]
    return f'{subject} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "{group}" {where}'


def within(namespace: str) -> str:
    return f'in the namespace "{namespace}"'


CLUSTER = "at the cluster scope"


def test_an_account_without_bindings_may_only_look_at_itself_and_at_what_is_served(
    server: Server, namespace: str
) -> None:
    with holder(server, namespace) as client:
        assert client.get("/api").status == 200
        assert client.get("/apis").status == 200
        assert client.get("/openapi/v3").status == 200
        refused = client.get("/metrics").refused(403, "Forbidden")
        assert refused == f'forbidden: User "{whoami(client)["username"]}" cannot get path "/metrics"'
        answer = client.get(CONFIG_MAPS.format(namespace))
        assert answer.refused(403, "Forbidden") == cannot(client, "list", "configmaps", within(namespace))
        assert answer.body["details"] == {"kind": "configmaps"}


def test_every_verb_has_its_own_right(server: Server, admin: Client, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    admin.create(path, {"metadata": {"name": "a"}, "data": {"k": "v"}}).ok()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    asked: dict[str, tuple[str, Any]] = {
        "get": ("a", lambda c: c.get(f"{path}/a")),
        "list": ("", lambda c: c.get(path)),
        "create": ("", lambda c: c.create(path, {"metadata": {"name": "b"}}, dryRun="All")),
        "update": ("a", lambda c: c.replace(f"{path}/a", body, dryRun="All")),
        "patch": ("a", lambda c: c.patch(f"{path}/a", {"data": {"k": "w"}}, dryRun="All")),
        "delete": ("a", lambda c: c.delete(f"{path}/a", dryRun="All")),
        "deletecollection": ("", lambda c: c.delete(path, dryRun="All")),
    }
    for granted in asked:
        with holder(server, namespace, rule("", "configmaps", granted)) as client:
            for verb, (name, act) in asked.items():
                answer: Answer = act(client)
                if verb == granted:
                    assert 200 <= answer.status < 300, (granted, verb, answer.body)
                else:
                    expected = cannot(client, verb, "configmaps", within(namespace), name=name)
                    assert answer.refused(403, "Forbidden") == expected


def test_watch_is_a_verb(server: Server, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    with holder(server, namespace, rule("", "configmaps", "list")) as client:
        answer = client.get(path, watch="true")
        assert answer.refused(403, "Forbidden") == cannot(client, "watch", "configmaps", within(namespace))
    with holder(server, namespace, rule("", "configmaps", "watch")) as client:
        assert client.get(path).refused(403, "Forbidden") == cannot(client, "list", "configmaps", within(namespace))
        with client.watch(path, timeoutSeconds="1") as watch:
            assert watch.status == 200


def test_apply_needs_patch_and_for_a_new_object_create_too(server: Server, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    with holder(server, namespace, rule("", "configmaps", "patch")) as client:
        answer = client.apply(f"{path}/a", body, manager="m")
        assert answer.refused(403, "Forbidden") == cannot(client, "create", "configmaps", within(namespace), name="a")
    with holder(server, namespace, rule("", "configmaps", "create patch")) as client:
        assert client.apply(f"{path}/a", body, manager="m").status == 201
    with holder(server, namespace, rule("", "configmaps", "patch")) as client:
        assert (
            client.request("PATCH", f"{path}/a", body, params={"fieldManager": "m"}, content_type=APPLY).status == 200
        )


def test_a_role_ends_at_its_namespace(server: Server, namespace: str) -> None:
    other = server.new_namespace()
    with holder(server, namespace, rule("", "configmaps", "list")) as client:
        assert client.get(CONFIG_MAPS.format(namespace)).status == 200
        expected = cannot(client, "list", "configmaps", within(other))
        assert client.get(CONFIG_MAPS.format(other)).refused(403, "Forbidden") == expected
        everywhere = client.get("/api/v1/configmaps")
        assert everywhere.refused(403, "Forbidden") == cannot(client, "list", "configmaps", CLUSTER)


def test_a_cluster_role_bound_in_a_namespace_ends_there(server: Server, admin: Client, namespace: str) -> None:
    name, account = server.unique("role"), server.unique("account")
    make_account(server, namespace, account)
    admin.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule("", "pods", "list")]}).ok()
    binding = {
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account}],
    }
    made = admin.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding).ok()
    assert made["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    with server.client(token_of(server, namespace, account)) as client:
        eventually(lambda: client.get(f"/api/v1/namespaces/{namespace}/pods").status == 200)
        assert client.get("/api/v1/pods").status == 403
        allowed = may(client, "list", "pods", namespace=namespace)
        assert allowed == {
            "allowed": True,
            "reason": f'RBAC: allowed by RoleBinding "{name}/{namespace}" of ClusterRole "{name}" '
            f'to ServiceAccount "{account}/{namespace}"',
        }


def test_a_right_for_all_of_a_group_and_everything(server: Server, namespace: str) -> None:
    with holder(server, namespace, rule("*", "*", "*")) as client:
        assert client.get(f"/api/v1/namespaces/{namespace}/pods").status == 200
        assert client.get(f"/apis/apps/v1/namespaces/{namespace}/daemonsets").status == 200
        assert client.get("/api/v1/nodes").status == 403
    with holder(server, namespace, rule("apps", "*", "list")) as client:
        assert client.get(f"/apis/apps/v1/namespaces/{namespace}/daemonsets").status == 200
        assert client.get(f"/api/v1/namespaces/{namespace}/pods").status == 403


def test_subresources_are_resources_of_their_own(server: Server, admin: Client, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    admin.create(pods, {"metadata": {"name": "p"}, **POD}).ok()
    status = {"status": {"phase": "Running"}}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": namespace}}
    with holder(server, namespace, rule("", "pods", "get patch create")) as client:
        assert client.patch(f"{pods}/p", {"metadata": {"labels": {"a": "b"}}}).status == 200
        expected = cannot(client, "patch", "pods/status", within(namespace), name="p")
        assert client.patch(f"{pods}/p/status", status).refused(403, "Forbidden") == expected
        expected = cannot(client, "create", "pods/eviction", within(namespace), name="p")
        assert client.create(f"{pods}/p/eviction", eviction).refused(403, "Forbidden") == expected
    with holder(server, namespace, rule("", "pods/status", "patch")) as client:
        assert client.patch(f"{pods}/p/status", status).status == 200
        expected = cannot(client, "get", "pods", within(namespace), name="p")
        assert client.get(f"{pods}/p").refused(403, "Forbidden") == expected
    with holder(server, namespace, rule("", "pods/eviction", "create")) as client:
        assert client.create(f"{pods}/p/eviction", eviction).status == 201


def test_rights_on_single_objects(server: Server, admin: Client, namespace: str) -> None:
    path = CONFIG_MAPS.format(namespace)
    for name in ("mine", "other"):
        admin.create(path, {"metadata": {"name": name}}).ok()
    with holder(server, namespace, rule("", "configmaps", "get list watch patch create", "mine")) as client:
        assert client.get(f"{path}/mine").status == 200
        assert client.patch(f"{path}/mine", {"data": {"a": "b"}}).status == 200
        for name, verb, answer in (
            ("other", "get", client.get(f"{path}/other")),
            ("other", "patch", client.patch(f"{path}/other", {})),
            ("", "list", client.get(path)),
            ("", "create", client.create(path, {"metadata": {"name": "mine"}})),
            ("other", "list", client.get(path, fieldSelector="metadata.name=other")),
        ):
            expected = cannot(client, verb, "configmaps", within(namespace), name=name)
            assert answer.refused(403, "Forbidden") == expected
        # Listing or watching one object by its name is a question about that object.
        listed = client.get(path, fieldSelector="metadata.name=mine").ok()
        assert [item["metadata"]["name"] for item in listed["items"]] == ["mine"]
        with client.watch(path, fieldSelector="metadata.name=mine", timeoutSeconds="1") as watch:
            assert watch.status == 200


def test_a_namespace_is_inside_itself(server: Server, namespace: str) -> None:
    with holder(server, namespace, rule("", "namespaces", "get")) as client:
        assert client.get(f"/api/v1/namespaces/{namespace}").status == 200
        expected = cannot(client, "get", "namespaces", within("default"), name="default")
        assert client.get("/api/v1/namespaces/default").refused(403, "Forbidden") == expected


def test_paths_that_are_no_resources(server: Server, admin: Client, namespace: str) -> None:
    name = server.unique("paths")
    rules = [{"nonResourceURLs": ["/livez/*"], "verbs": ["get"]}]
    admin.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules}).ok()
    subject = {"kind": "Group", "name": f"system:serviceaccounts:{namespace}"}
    binding = {"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": name}, "subjects": [subject]}
    made = admin.create(f"{RBAC}/clusterrolebindings", binding).ok()
    assert made["subjects"] == [{**subject, "apiGroup": "rbac.authorization.k8s.io"}]
    with holder(server, namespace) as client:
        eventually(lambda: client.get("/livez/ping").status == 200)
        assert client.get("/readyz/ping").status == 403


def test_what_does_not_exist_is_forbidden_before_it_is_not_found(
    server: Server, admin: Client, namespace: str
) -> None:
    with holder(server, namespace) as client:
        answer = client.get("/apis/nope.example/v1/things")
        assert answer.refused(403, "Forbidden") == cannot(client, "list", "things", CLUSTER, group="nope.example")
    assert admin.get("/apis/nope.example/v1/things").status == 404


def test_a_binding_to_a_missing_role_is_told(server: Server, admin: Client, namespace: str) -> None:
    name, account = server.unique("gone"), server.unique("account")
    make_account(server, namespace, account)
    binding = {
        "metadata": {"name": name},
        "roleRef": {"kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account}],
    }
    admin.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding).ok()
    missing = f'role.rbac.authorization.k8s.io "{name}" not found'
    with server.client(token_of(server, namespace, account)) as client:
        expected = cannot(client, "list", "pods", within(namespace)) + f": rbac: RBAC: {missing}"
        eventually(lambda: client.get(f"/api/v1/namespaces/{namespace}/pods").body["message"] == expected)
        assert may(client, "list", "pods", namespace=namespace) == {
            "allowed": False,
            "reason": f"rbac: RBAC: {missing}",
        }
        assert rules_of(client, namespace)["evaluationError"] == missing


def test_rights_end_with_the_binding(server: Server, admin: Client, namespace: str) -> None:
    account = server.unique("account")
    make_account(server, namespace, account)
    name = grant(server, namespace, account, rule("", "pods", "list"))
    path = f"/api/v1/namespaces/{namespace}/pods"
    with server.client(token_of(server, namespace, account)) as client:
        eventually(lambda: client.get(path).status == 200)
        admin.delete(f"{RBAC}/namespaces/{namespace}/rolebindings/{name}").ok()
        eventually(lambda: client.get(path).status == 403)


# Reviews


def rules_of(client: Client, namespace: str) -> dict[str, Any]:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = client.create(f"{REVIEWS}/selfsubjectrulesreviews", body)
    assert answer.status == 201
    status: dict[str, Any] = answer.ok()["status"]
    return status


def test_ones_own_rules(server: Server, namespace: str) -> None:
    with holder(server, namespace, rule("", "pods", "get list", "a")) as client:
        found = rules_of(client, namespace)
    assert found["incomplete"] is False
    assert rule("", "pods", "get list", "a") in found["resourceRules"]
    assert rule("authentication.k8s.io", "selfsubjectreviews", "create") in found["resourceRules"]
    assert {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]} in found[
        "nonResourceRules"
    ]


def test_the_administrators_rules(admin: Client, namespace: str) -> None:
    found = rules_of(admin, namespace)
    assert rule("*", "*", "*") in found["resourceRules"]
    assert {"verbs": ["*"], "nonResourceURLs": ["*"]} in found["nonResourceRules"]


def test_ones_own_access(server: Server, admin: Client, namespace: str) -> None:
    with holder(server, namespace, rule("", "pods", "get", "a")) as client:
        assert may(client, "get", "pods", namespace=namespace, name="a")["allowed"] is True
        assert may(client, "get", "pods", namespace=namespace, name="b") == {"allowed": False}
        assert may(client, "get", "pods", namespace=namespace) == {"allowed": False}
    assert may(admin, "delete", "nodes") == {"allowed": True}


def test_access_to_a_path(server: Server, namespace: str) -> None:
    def asked(path: str) -> dict[str, Any]:
        attributes = {"verb": "get", "path": path}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"nonResourceAttributes": attributes},
        }
        status: dict[str, Any] = client.create(f"{REVIEWS}/selfsubjectaccessreviews", body).ok()["status"]
        return status

    with holder(server, namespace) as client:
        assert asked("/api") == {
            "allowed": True,
            "reason": 'RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" '
            'to Group "system:authenticated"',
        }
        assert asked("/metrics") == {"allowed": False}


def test_access_of_others(server: Server, admin: Client, namespace: str) -> None:
    account = server.unique("account")
    make_account(server, namespace, account)
    grant(server, namespace, account, rule("", "pods", "list"))

    def asked(client: Client, resource: str) -> Answer:
        spec = {
            "user": user_name(namespace, account),
            "resourceAttributes": {"verb": "list", "resource": resource, "namespace": namespace},
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return client.create(f"{REVIEWS}/subjectaccessreviews", body)

    eventually(lambda: asked(admin, "pods").ok()["status"]["allowed"])
    assert asked(admin, "secrets").ok()["status"] == {"allowed": False}
    with holder(server, namespace) as client:
        expected = cannot(client, "create", "subjectaccessreviews", CLUSTER, group="authorization.k8s.io")
        assert asked(client, "pods").refused(403, "Forbidden") == expected


def test_a_review_of_nothing_is_refused(admin: Client) -> None:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}}
    message = admin.create(f"{REVIEWS}/selfsubjectaccessreviews", body).refused(422, "Invalid")
    assert message == (
        '.authorization.k8s.io "" is invalid: spec: Invalid value: null: exactly one of nonResourceAttributes or '
        "resourceAttributes must be specified"
    )


# Handing on rights


MANAGES = rule("rbac.authorization.k8s.io", "roles rolebindings clusterroles clusterrolebindings", "create patch")


def test_nobody_grants_what_he_does_not_hold(server: Server, namespace: str) -> None:
    roles = f"{RBAC}/namespaces/{namespace}/roles"
    held = rule("", "pods", "get", "a")
    with holder(server, namespace, MANAGES, held, cluster=True) as client:
        assert client.create(roles, {"metadata": {"name": "fine"}, "rules": [held]}).status == 201
        me = whoami(client)
        groups = " ".join(f'"{group}"' for group in me["groups"])
        grants = f'user "{me["username"]}" (groups=[{groups}]) is attempting to grant RBAC permissions '
        grants += "not currently held:\n"
        wanted = [
            {"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get", "list"]},
            rule("muster.dev", "nodehealths/status", "*", "n1"),
        ]
        answer = client.create(roles, {"metadata": {"name": "x"}, "rules": wanted})
        assert answer.refused(403, "Forbidden") == (
            f'roles.rbac.authorization.k8s.io "x" is forbidden: {grants}'
            '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}\n'
            '{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}\n'
            '{APIGroups:["muster.dev"], Resources:["nodehealths/status"], ResourceNames:["n1"], Verbs:["*"]}'
        )
        everything = {"rules": [rule("*", "*", "*")]}
        assert client.patch(f"{roles}/fine", everything).refused(403, "Forbidden") == (
            f'roles.rbac.authorization.k8s.io "fine" is forbidden: {grants}'
            '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}'
        )
        assert client.patch(f"{roles}/fine", {"metadata": {"labels": {"a": "b"}}}).status == 200


def test_nobody_binds_what_he_does_not_hold(server: Server, namespace: str) -> None:
    bindings = f"{RBAC}/namespaces/{namespace}/rolebindings"

    def binding(kind: str, role: str) -> dict[str, Any]:
        subject = {"kind": "User", "name": "somebody"}
        return {"metadata": {"name": "x"}, "roleRef": {"kind": kind, "name": role}, "subjects": [subject]}

    with holder(server, namespace, MANAGES, cluster=True) as client:
        message = client.create(bindings, binding("ClusterRole", "cluster-admin")).refused(403, "Forbidden")
        assert message.endswith(
            'not currently held:\n{APIGroups:["*"], Resources:["*"], Verbs:["*"]}\n'
            '{NonResourceURLs:["*"], Verbs:["*"]}'
        )
        missing = client.create(bindings, binding("Role", "missing"))
        assert missing.refused(404, "NotFound") == 'rolebindings.rbac.authorization.k8s.io "missing" not found'
        aggregated = {"metadata": {"name": server.unique("a")}, "aggregationRule": {"clusterRoleSelectors": [{}]}}
        message = client.create(f"{RBAC}/clusterroles", aggregated).refused(403, "Forbidden")
        assert message.endswith("is forbidden: must have cluster-admin privileges to use the aggregationRule")
    binds = rule("rbac.authorization.k8s.io", "clusterroles", "bind", "view")
    with holder(server, namespace, MANAGES, binds, cluster=True) as client:
        assert client.create(bindings, binding("ClusterRole", "view")).status == 201
    escalates = rule("rbac.authorization.k8s.io", "roles", "escalate")
    with holder(server, namespace, MANAGES, escalates, cluster=True) as client:
        role = {"metadata": {"name": "r"}, "rules": [rule("*", "*", "*")]}
        assert client.create(f"{RBAC}/namespaces/{namespace}/roles", role).status == 201


@pytest.mark.parametrize(
    ("plural", "body", "causes"),
    [
        ("roles", {"rules": [{"apiGroups": [""], "resources": ["pods"]}]}, [("rules[0].verbs", "Required value")]),
        (
            "roles",
            {"rules": [{"verbs": ["get"]}]},
            [
                ("rules[0].apiGroups", "Required value: resource rules must supply at least one api group"),
                ("rules[0].resources", "Required value: resource rules must supply at least one resource"),
            ],
        ),
        (
            "roles",
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
            [
                (
                    "rules[0].nonResourceURLs",
                    'Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
                )
            ],
        ),
        (
            "rolebindings",
            {},
            [
                ("roleRef.kind", 'Unsupported value: "": supported values: "Role", "ClusterRole"'),
                ("roleRef.name", "Required value"),
            ],
        ),
        (
            "rolebindings",
            {"roleRef": {"kind": "Role", "name": "x"}, "subjects": [{"kind": "What", "name": "x"}]},
            [
                (
                    "subjects[0].kind",
                    'Unsupported value: "What": supported values: "ServiceAccount", "User", "Group"',
                )
            ],
        ),
    ],
)
def test_refused_roles_and_bindings(
    admin: Client, namespace: str, plural: str, body: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    answer = admin.create(f"{RBAC}/namespaces/{namespace}/{plural}", {"metadata": {"name": "x"}, **body})
    answer.refused(422, "Invalid")
    assert [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]] == causes


def test_what_a_binding_refers_to_cannot_change(server: Server, admin: Client, namespace: str) -> None:
    account = server.unique("account")
    make_account(server, namespace, account)
    name = grant(server, namespace, account, rule("", "pods", "list"))
    other = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "other"}}
    answer = admin.patch(f"{RBAC}/namespaces/{namespace}/rolebindings/{name}", other)
    assert answer.refused(422, "Invalid") == (
        f'RoleBinding.rbac.authorization.k8s.io "{name}" is invalid: roleRef: Invalid value: '
        '{"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"other"}: field is immutable'
    )


def test_aggregated_roles_take_over_rules(server: Server, admin: Client, namespace: str, controllers: None) -> None:
    name, label = server.unique("aggregate"), server.unique("label")
    selector = {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}
    admin.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "aggregationRule": selector}).ok()
    rules = [rule("muster.dev", "nodehealths", "get list")]
    part = {"metadata": {"name": f"{name}-part", "labels": {label: "true"}}, "rules": rules}
    admin.create(f"{RBAC}/clusterroles", part).ok()
    eventually(lambda: admin.get(f"{RBAC}/clusterroles/{name}").ok()["rules"] == rules)
    admin.delete(f"{RBAC}/clusterroles/{name}-part").ok()
    eventually(lambda: not admin.get(f"{RBAC}/clusterroles/{name}").ok()["rules"])


def test_the_default_roles(admin: Client) -> None:
    for name in ("cluster-admin", "system:basic-user", "system:discovery", "system:public-info-viewer"):
        role = admin.get(f"{RBAC}/clusterroles/{name}").ok()
        binding = admin.get(f"{RBAC}/clusterrolebindings/{name}").ok()
        assert role["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults"}
        assert binding["roleRef"]["name"] == name
        assert role["rules"]


# Acting as somebody else


def acting(client: Client, path: str, **headers: str) -> Answer:
    return client.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_the_administrator_acts_as_somebody_else(server: Server, admin: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    refused = acting(admin, path, Impersonate_User="jane")
    assert refused.refused(403, "Forbidden") == (
        f'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "{namespace}"'
    )
    assert acting(admin, path, Impersonate_User="jane", Impersonate_Group="system:masters").status == 200


def test_others_do_not_act_as_somebody_else(server: Server, namespace: str) -> None:
    with holder(server, namespace, rule("", "pods", "list")) as client:
        answer = acting(client, f"/api/v1/namespaces/{namespace}/pods", Impersonate_User="jane")
        expected = cannot(client, "impersonate-on:user-info:list", "pods", within(namespace))
        assert answer.refused(403, "Forbidden") == expected
    with holder(server, namespace, rule("", "users", "impersonate", "jane"), cluster=True) as client:
        answer = acting(client, f"/api/v1/namespaces/{namespace}/pods", Impersonate_User="jane")
        assert 'User "jane" cannot list' in answer.refused(403, "Forbidden")
        answer = acting(client, f"/api/v1/namespaces/{namespace}/pods", Impersonate_User="joe")
        # Which of two rights the real server misses here depends on what the same user did before.
        assert "cannot impersonate" in answer.refused(403, "Forbidden")
