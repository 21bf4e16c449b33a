"""Discovery documents: which groups, versions and resources are served."""

from __future__ import annotations

from typing import Any

from muster.kube.api import Object
from muster.sim.api_kinds import ALL_VERBS, Kind, Registry

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERSION: dict[str, str] = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0+muster",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-05T08:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}

REVIEWS: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("authorization.k8s.io", "v1"): (
        ("localsubjectaccessreviews", "LocalSubjectAccessReview"),
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        ("subjectaccessreviews", "SubjectAccessReview"),
    ),
    ("authentication.k8s.io", "v1"): (
        ("selfsubjectreviews", "SelfSubjectReview"),
        ("tokenreviews", "TokenReview"),
    ),
}
"""Resources that are only asked (created), never stored."""

_CREATE_ONLY = {**REVIEWS, ("", "v1"): (("bindings", "Binding"),)}

_SUBRESOURCES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "status": ("", "", "", ("get", "patch", "update")),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "binding": ("", "v1", "Binding", ("create",)),
    "finalize": ("", "", "", ("update",)),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
}


def groups(registry: Registry) -> dict[str, list[str]]:
    """Versions per group, in the order of registration; the core group is left out."""
    found: dict[str, list[str]] = {}
    pairs = [(kind.group, kind.resource.version) for kind in registry.all()] + list(REVIEWS)
    for group, version in pairs:
        if group and version not in found.setdefault(group, []):
            found[group].append(version)
    return found


def group_document(registry: Registry, group: str) -> Object | None:
    """The APIGroup; None when the group is not served."""
    versions = groups(registry).get(group)
    if versions is None:
        return None
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": listed,
        "preferredVersion": listed[0],
    }


def group_list(registry: Registry) -> Object:
    documents = [group_document(registry, group) for group in groups(registry)]
    listed = [{k: v for k, v in d.items() if k not in ("kind", "apiVersion")} for d in documents if d is not None]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def core_versions() -> Object:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def resource_list(registry: Registry, group: str, version: str) -> Object | None:
    """The APIResourceList; None when the version is not served."""
    resources: list[dict[str, Any]] = []
    for kind in _of(registry, group, version):
        resources.append(_resource(kind))
        resources += [_subresource(kind, name) for name in _subresources(kind)]
    for plural, name in _CREATE_ONLY.get((group, version), ()):
        review = {
            "name": plural,
            "singularName": name.lower(),
            "namespaced": not group or plural.startswith("local"),
            "kind": name,
            "verbs": ["create"],
        }
        resources.append(review)
    if not resources:
        return None
    group_version = f"{group}/{version}" if group else version
    resources.sort(key=lambda resource: str(resource["name"]))
    # A real server leaves apiVersion out of the core group's list.
    head = {"kind": "APIResourceList", **({"apiVersion": "v1"} if group else {})}
    return {**head, "groupVersion": group_version, "resources": resources}


def _subresources(kind: Kind) -> list[str]:
    return sorted(name for name in kind.subresources if name in _SUBRESOURCES)


def _verbs(kind: Kind) -> list[str]:
    """Namespaces are deleted one by one only."""
    alone = kind.plural == "namespaces" and not kind.group
    return [verb for verb in ALL_VERBS if not (alone and verb == "deletecollection")]


def _of(registry: Registry, group: str, version: str) -> list[Kind]:
    return [kind for kind in registry.all() if kind.group == group and kind.resource.version == version]


def _resource(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": _verbs(kind),
    }
    if kind.short_names:
        found["shortNames"] = list(kind.short_names)
    if kind.categories:
        found["categories"] = list(kind.categories)
    return found


def _subresource(kind: Kind, name: str) -> dict[str, Any]:
    group, version, kind_name, verbs = _SUBRESOURCES[name]
    found: dict[str, Any] = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind_name or kind.name,
        "verbs": list(verbs),
    }
    if kind_name:
        found |= {"group": group, "version": version}
    return found


def aggregated(registry: Registry, *, core: bool) -> Object:
    """The APIGroupDiscoveryList of the core group or of all others."""
    served = {"": ["v1"]} if core else groups(registry)
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [_discovered(registry, group, version) for version in versions],
        }
        for group, versions in served.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _discovered(registry: Registry, group: str, version: str) -> dict[str, Any]:
    resources = []
    for kind in _of(registry, group, version):
        resource = {
            "resource": kind.plural,
            "responseKind": _response_kind(kind, kind.name),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "singularResource": kind.singular,
            "verbs": _verbs(kind),
            "shortNames": list(kind.short_names),
            "categories": list(kind.categories),
            "subresources": [_discovered_subresource(kind, name) for name in _subresources(kind)],
        }
        resources.append({name: value for name, value in resource.items() if value not in ([], ())})
    for plural, name in _CREATE_ONLY.get((group, version), ()):
        resources.append(
            {
                "resource": plural,
                "responseKind": {"group": "", "version": "", "kind": name},
                "scope": "Namespaced" if not group or plural.startswith("local") else "Cluster",
                "singularResource": name.lower(),
                "verbs": ["create"],
            }
        )
    resources.sort(key=lambda resource: str(resource["resource"]))
    return {"version": version, "freshness": "Current", "resources": resources}


def _response_kind(kind: Kind, name: str) -> dict[str, str]:
    """A built-in kind of the group version itself is told without both."""
    own = (
        {"group": "", "version": ""}
        if kind.custom is None
        else {"group": kind.group, "version": kind.resource.version}
    )
    return {**own, "kind": name}


def _discovered_subresource(kind: Kind, name: str) -> dict[str, Any]:
    group, version, kind_name, verbs = _SUBRESOURCES[name]
    response = _response_kind(kind, kind_name or kind.name)
    if kind_name and group:
        response |= {"group": group, "version": version}
    return {"subresource": name, "responseKind": response, "verbs": list(verbs)}
