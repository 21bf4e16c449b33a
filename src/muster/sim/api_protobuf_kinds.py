"""Further kinds that kubectl sends as Kubernetes protobuf when it creates them: roles, accounts, tokens, budgets.

The field numbers are those of the published `generated.proto` files.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.sim.api_protobuf import Field

_META = {
    1: Field("name"),
    2: Field("generateName"),
    3: Field("namespace"),
    5: Field("uid"),
    6: Field("resourceVersion"),
    8: Field("creationTimestamp", "message", fields={}),
    11: Field("labels", "map", fields={1: Field("key"), 2: Field("value")}),
    12: Field("annotations", "map", fields={1: Field("key"), 2: Field("value")}),
    14: Field("finalizers", repeated=True),
}
_METADATA = Field("metadata", "message", fields=_META)
_REQUIREMENT = {1: Field("key"), 2: Field("operator"), 3: Field("values", repeated=True)}
_SELECTOR = {
    1: Field("matchLabels", "map", fields={1: Field("key"), 2: Field("value")}),
    2: Field("matchExpressions", "message", repeated=True, fields=_REQUIREMENT),
}
_RULE = {
    number: Field(name, repeated=True)
    for number, name in enumerate(("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"), start=1)
}
_RULES = Field("rules", "message", repeated=True, fields=_RULE)
_SUBJECT = {number: Field(name) for number, name in enumerate(("kind", "apiGroup", "name", "namespace"), start=1)}
_BINDING = {
    1: _METADATA,
    2: Field("subjects", "message", repeated=True, fields=_SUBJECT),
    3: Field("roleRef", "message", fields={1: Field("apiGroup"), 2: Field("kind"), 3: Field("name")}),
}
_AGGREGATION = {1: Field("clusterRoleSelectors", "message", repeated=True, fields=_SELECTOR)}
_BUDGET = {
    1: Field("minAvailable", "int-or-string"),
    2: Field("selector", "message", fields=_SELECTOR),
    3: Field("maxUnavailable", "int-or-string"),
    4: Field("unhealthyPodEvictionPolicy"),
}
_BOUND = {number: Field(name) for number, name in enumerate(("kind", "apiVersion", "name", "uid"), start=1)}
_TOKEN = {
    1: Field("audiences", repeated=True),
    3: Field("boundObjectRef", "message", fields=_BOUND),
    4: Field("expirationSeconds", "int"),
}

ACCESS_KINDS: Mapping[str, Mapping[int, Field]] = {
    "Role": {1: _METADATA, 2: _RULES},
    "ClusterRole": {1: _METADATA, 2: _RULES, 3: Field("aggregationRule", "message", fields=_AGGREGATION)},
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "ServiceAccount": {1: _METADATA, 4: Field("automountServiceAccountToken", "bool")},
    "PodDisruptionBudget": {1: _METADATA, 2: Field("spec", "message", fields=_BUDGET)},
    "TokenRequest": {1: _METADATA, 2: Field("spec", "message", fields=_TOKEN)},
}
