"""Role-based access control: from rules and bindings to a decision on one request. Pure.

Roles and bindings are read as the API stores them (rbac.authorization.k8s.io/v1). What the API server would say about
a decision is worded as the real one words it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from muster.kube.api import Object
from muster.sim.identities import ACCOUNT_PREFIX, User
from muster.sim.selectors import from_label_selector, labels_match

RBAC_GROUP = "rbac.authorization.k8s.io"
ALL = "*"


@dataclass(frozen=True)
class Attributes:
    """What is asked. With `path` it is a request for a path that is no resource; `name` "" means all of a kind."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def combined(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True)
class Rule:
    """One PolicyRule."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @staticmethod
    def read(raw: Any) -> Rule:
        """From the API's form; what is not a list of strings grants nothing."""
        values = raw if isinstance(raw, Mapping) else {}
        fields = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
        return Rule(*(_strings(values.get(name)) for name in fields))

    def to_json(self) -> dict[str, list[str]]:
        named = (
            *(("verbs", self.verbs), ("apiGroups", self.groups), ("resources", self.resources)),
            *(("resourceNames", self.names), ("nonResourceURLs", self.urls)),
        )
        return {name: list(values) for name, values in named if values}

    def __str__(self) -> str:
        named = (
            *(("APIGroups", self.groups), ("Resources", self.resources), ("NonResourceURLs", self.urls)),
            *(("ResourceNames", self.names), ("Verbs", self.verbs)),
        )
        parts = [f"{name}:[{' '.join(map(json.dumps, values))}]" for name, values in named if values]
        return "{" + ", ".join(parts) + "}"


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list | tuple) else ()


def rules_of(role: Object | None) -> tuple[Rule, ...]:
    raw = (role or {}).get("rules")
    return tuple(Rule.read(item) for item in raw) if isinstance(raw, list) else ()


def allows(rule: Rule, asked: Attributes) -> bool:
    """Whether one rule grants the request."""
    if not _has(rule.verbs, asked.verb):
        return False
    if asked.path:
        return any(_url_matches(url, asked.path) for url in rule.urls)
    return (
        _has(rule.groups, asked.group)
        and any(_resource_matches(resource, asked.resource, asked.subresource) for resource in rule.resources)
        and (not rule.names or asked.name in rule.names)
    )


def _has(values: Sequence[str], wanted: str) -> bool:
    return ALL in values or wanted in values


def _resource_matches(rule: str, resource: str, subresource: str) -> bool:
    if rule in (ALL, f"{resource}/{subresource}" if subresource else resource):
        return True
    return bool(subresource) and rule == f"*/{subresource}"


def _url_matches(rule: str, path: str) -> bool:
    return rule in (ALL, path) or (rule.endswith(ALL) and path.startswith(rule[:-1]))


# Who holds which rules


@dataclass(frozen=True)
class Grant:
    """The rules that one binding gives to a user. `missing` names the role when it does not exist."""

    source: str
    rules: tuple[Rule, ...]
    missing: str = ""


RoleOf = Callable[[str, str, str], Object | None]
"""Kind, namespace and name of a role -> the role, None when there is none."""


def grants_of(user: User, cluster: Iterable[Object], local: Iterable[Object], role_of: RoleOf) -> list[Grant]:
    """What ClusterRoleBindings (`cluster`) and the RoleBindings of one namespace (`local`) give to a user."""
    found = []
    for binding in (*cluster, *local):
        namespace = str(binding["metadata"].get("namespace", ""))
        subject = next((s for s in binding.get("subjects") or () if _applies(s, user, namespace)), None)
        if subject is not None:
            found.append(_grant(binding, subject, namespace, role_of))
    return found


def _grant(binding: Object, subject: Mapping[str, Any], namespace: str, role_of: RoleOf) -> Grant:
    reference = binding.get("roleRef") or {}
    kind, name = str(reference.get("kind", "")), str(reference.get("name", ""))
    role = role_of(kind, namespace if kind == "Role" else "", name)
    bound = f"{binding['metadata']['name']}/{namespace}" if namespace else str(binding["metadata"]["name"])
    whom = str(subject.get("name", ""))
    if subject.get("kind") == "ServiceAccount":
        whom += f"/{subject.get('namespace') or namespace}"
    kind_of_binding = "RoleBinding" if namespace else "ClusterRoleBinding"
    source = (
        f"{kind_of_binding} {json.dumps(bound)} of {kind} {json.dumps(name)} to {subject['kind']} {json.dumps(whom)}"
    )
    missing = f'{kind.lower()}.{RBAC_GROUP} "{name}" not found' if role is None else ""
    return Grant(source, rules_of(role), missing)


def _applies(subject: Any, user: User, namespace: str) -> bool:
    if not isinstance(subject, Mapping):
        return False
    name = subject.get("name")
    match subject.get("kind"):
        case "User":
            return name == user.name
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            return user.name == f"{ACCOUNT_PREFIX}{subject.get('namespace') or namespace}:{name}"
        case _:
            return False


@dataclass(frozen=True)
class Decision:
    """`reason` is what the API server tells: the binding that allows, or what stood in the way of finding one."""

    allowed: bool
    reason: str = ""


def decide(grants: Iterable[Grant], asked: Attributes) -> Decision:
    """Whether one of the grants allows the request."""
    missing = []
    for grant in grants:
        if any(allows(rule, asked) for rule in grant.rules):
            return Decision(True, f"RBAC: allowed by {grant.source}")
        if grant.missing and grant.missing not in missing:
            missing.append(grant.missing)
    if not missing:
        return Decision(False)
    return Decision(False, f"RBAC: {missing[0] if len(missing) == 1 else '[' + ', '.join(missing) + ']'}")


# Handing on rights


def not_covered(owned: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """The parts of `wanted` that `owned` does not hold, in the form in which a refusal lists them."""
    missing = [part for rule in wanted for part in _parts(rule) if not any(_covers(own, part) for own in owned)]
    return sorted(_compacted(missing), key=str)


def _parts(rule: Rule) -> list[Rule]:
    """One rule per verb and resource (and name), or per verb and URL."""
    parts = []
    for verb in rule.verbs:
        parts += [Rule((verb,), urls=(url,)) for url in rule.urls]
        for group in rule.groups:
            for resource in rule.resources:
                names: list[tuple[str, ...]] = [(name,) for name in rule.names] or [()]
                parts += [Rule((verb,), (group,), (resource,), name) for name in names]
    return parts


def _covers(own: Rule, part: Rule) -> bool:
    if not _has(own.verbs, part.verbs[0]):
        return False
    if part.urls:
        return any(_url_matches(url, part.urls[0]) for url in own.urls)
    resource, _, subresource = part.resources[0].partition("/")
    return (
        _has(own.groups, part.groups[0])
        and any(_resource_matches(mine, resource, subresource) for mine in own.resources)
        and (not own.names or (bool(part.names) and part.names[0] in own.names))
    )


def _compacted(parts: Iterable[Rule]) -> list[Rule]:
    """Parts that differ only in their verb, as one rule."""
    joined: dict[Rule, Rule] = {}
    for part in parts:
        key = replace(part, verbs=())
        verbs = joined[key].verbs if key in joined else ()
        joined[key] = replace(part, verbs=verbs if part.verbs[0] in verbs else verbs + part.verbs)
    return list(joined.values())


def aggregated_rules(role: Object, roles: Iterable[Object]) -> list[Any] | None:
    """The rules of an aggregated ClusterRole: those of every other role that it selects. None: not aggregated."""
    aggregation = role.get("aggregationRule")
    if not isinstance(aggregation, Mapping):
        return None
    rules: list[Any] = []
    for selector in aggregation.get("clusterRoleSelectors") or ():
        requirements = from_label_selector(selector)
        for other in roles:
            labels = other["metadata"].get("labels") or {}
            if other is not role and requirements is not None and labels_match(requirements, labels):
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules
