"""Components that changed their names, and what has to happen in a cluster that runs them under the old one.

Only names that the catalogues of the field have used; each entry says what the move means for objects that live on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rename:
    """`old` became `new`, or (`folded`) its content is part of `new` now."""

    old: str
    new: str
    remedy: str
    folded: bool = False


_NODEWRIGHT = (
    "wait until no Skyhook object is in progress, keep the CRD skyhooks.skyhook.nvidia.com (annotate it with "
    "helm.sh/resource-policy=keep), uninstall the old release, then deploy the new bundle"
)
_GATEWAY = (
    "the API groups of the two differ: install the new one beside the old, move Gateways and routes over to its "
    "GatewayClass, then uninstall the old release"
)

RENAMES: Final[tuple[Rename, ...]] = (
    Rename("skyhook-operator", "nodewright-operator", _NODEWRIGHT),
    Rename("skyhook-customizations", "nodewright-customizations", _NODEWRIGHT),
    Rename("kgateway", "agentgateway", _GATEWAY),
    Rename("kgateway-crds", "agentgateway-crds", _GATEWAY),
    Rename(
        "dynamo-crds",
        "dynamo-platform",
        "annotate the CRDs of the old release with helm.sh/resource-policy=keep and with meta.helm.sh/release-name "
        "and meta.helm.sh/release-namespace of dynamo-platform, uninstall the old release, then deploy the new "
        "bundle",
        folded=True,
    ),
)
"""Sources: NVIDIA/aicr recipes/registry.yaml, releases v0.11.1 to v0.22.0 (2026)."""

NAMESPACE_MOVES: Final[dict[tuple[str, str], str]] = {("skyhook", "nodewright"): _NODEWRIGHT}
"""(old namespace, new namespace) -> remedy, for moves that upstream made."""


def renamed(old: str) -> Rename | None:
    """What the component `old` became, or None."""
    return next((rename for rename in RENAMES if rename.old == old), None)
