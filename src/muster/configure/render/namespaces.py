"""The namespaces of a plan as objects."""

from __future__ import annotations

from typing import Any

from muster.configure.plan import Plan

_BUILT_IN = frozenset({"default", "kube-public", "kube-system"})


def namespace_objects(plan: Plan, annotations: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Every namespace that has to be made or needs labels, by name."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name}
            | ({"labels": labels} if labels else {})
            | ({"annotations": annotations} if annotations else {}),
        }
        for name, labels in plan.namespaces.items()
        if labels or name not in _BUILT_IN
    ]
