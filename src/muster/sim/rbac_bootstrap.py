"""The roles and bindings that every cluster begins with, as far as the simulated server has the resources for them.

Source: the default roles of https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.sim.identities import ADMIN_GROUP, AUTHENTICATED, UNAUTHENTICATED
from muster.sim.rbac import RBAC_GROUP

if TYPE_CHECKING:
    from muster.sim.store import Store

_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*")
_PROBES = ("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*")
_WORKLOADS = ("daemonsets", "deployments", "replicasets", "statefulsets")
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"


def _rule(verbs: tuple[str, ...], group: str, *resources: str) -> dict[str, list[str]]:
    return {"verbs": list(verbs), "apiGroups": [group], "resources": list(resources)}


def _urls(*urls: str) -> dict[str, list[str]]:
    return {"verbs": ["get"], "nonResourceURLs": list(urls)}


_VIEW = [
    _rule(_READ, "", "configmaps", "pods", "serviceaccounts", "services", "services/status"),
    _rule(_READ, "", "bindings", "namespaces/status", "pods/log", "pods/status"),
    _rule(_READ, "", "namespaces"),
    {"verbs": list(_READ), "apiGroups": ["", "events.k8s.io"], "resources": ["events"]},
    _rule(_READ, "apps", *(f"{name}{part}" for name in _WORKLOADS for part in ("", "/status"))),
    _rule(_READ, "batch", "jobs", "jobs/status"),
    _rule(_READ, "policy", "poddisruptionbudgets", "poddisruptionbudgets/status"),
]
_EDIT = [
    _rule(_READ, "", "secrets"),
    _rule(("impersonate",), "", "serviceaccounts"),
    _rule(_WRITE, "", "pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"),
    _rule(("create",), "", "pods/eviction"),
    _rule(_WRITE, "", "configmaps", "events", "secrets", "serviceaccounts", "services"),
    _rule(("create",), "", "serviceaccounts/token"),
    _rule(_WRITE, "apps", *_WORKLOADS),
    _rule(_WRITE, "batch", "jobs"),
    _rule(_WRITE, "policy", "poddisruptionbudgets"),
    _rule((*_WRITE, *_READ), "coordination.k8s.io", "leases"),
]
_ADMIN = [
    _rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews"),
    _rule((*_WRITE, *_READ), RBAC_GROUP, "rolebindings", "roles"),
]

_ROLES: tuple[tuple[str, list[dict[str, list[str]]], str], ...] = (
    ("cluster-admin", [_rule(("*",), "*", "*"), {"verbs": ["*"], "nonResourceURLs": ["*"]}], ""),
    ("system:discovery", [_urls(*_DISCOVERY, "/readyz", "/version", "/version/")], ""),
    ("system:monitoring", [_urls(*_PROBES), _rule(("get",), "", "nodes/metrics")], ""),
    (
        "system:basic-user",
        [
            _rule(("create",), "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
            _rule(("create",), "authentication.k8s.io", "selfsubjectreviews"),
        ],
        "",
    ),
    ("system:public-info-viewer", [_urls(*_PUBLIC)], ""),
    (
        "system:auth-delegator",
        [
            _rule(("create",), "authentication.k8s.io", "tokenreviews"),
            _rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
        ],
        "",
    ),
    ("system:aggregate-to-admin", _ADMIN, "admin"),
    ("system:aggregate-to-edit", _EDIT, "edit"),
    ("system:aggregate-to-view", _VIEW, "view"),
)
"""Name, rules, and the role that they are added to."""

_AGGREGATED = (("admin", ""), ("edit", "admin"), ("view", "edit"))
"""Name, and the role that takes over all of it."""

_BINDINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cluster-admin", (ADMIN_GROUP,)),
    ("system:basic-user", (AUTHENTICATED,)),
    ("system:discovery", (AUTHENTICATED,)),
    ("system:monitoring", ("system:monitoring",)),
    ("system:public-info-viewer", (AUTHENTICATED, UNAUTHENTICATED)),
)


def ensure(store: Store) -> None:
    """Create the default roles and bindings that a store lacks."""
    from muster.sim.store import WriteOptions

    options = WriteOptions(manager="kube-apiserver")
    for plural, objects in (("clusterroles", _roles()), ("clusterrolebindings", _bindings())):
        kind = store.registry_kind(RBAC_GROUP, "v1", plural)
        for obj in objects:
            if store.find(kind, ("", obj["metadata"]["name"])) is None:
                store.create(kind, obj, options=options)


def _metadata(name: str, **labels: str) -> dict[str, Any]:
    return {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults", **labels},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }


def _roles() -> list[dict[str, Any]]:
    roles: list[dict[str, Any]] = [
        {"metadata": _metadata(name, **({f"{_AGGREGATE}{target}": "true"} if target else {})), "rules": rules}
        for name, rules, target in _ROLES
    ]
    for name, target in _AGGREGATED:
        selector = {"matchLabels": {f"{_AGGREGATE}{name}": "true"}}
        metadata = _metadata(name, **({f"{_AGGREGATE}{target}": "true"} if target else {}))
        roles.append({"metadata": metadata, "aggregationRule": {"clusterRoleSelectors": [selector]}})
    return roles


def _bindings() -> list[dict[str, Any]]:
    return [
        {
            "metadata": _metadata(name),
            "subjects": [{"kind": "Group", "apiGroup": RBAC_GROUP, "name": group} for group in groups],
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name},
        }
        for name, groups in _BINDINGS
    ]
