"""Argo CD with Helm: the bundle is one chart that renders the Applications of `argocd`, some choices left to install.

The chart renders in two ways. As installed by a person it yields the parent Application alone; that one points at the
same chart again with `parent.enabled: false`, and Argo CD renders the Applications from it. Helm itself knows no
waves, so it must not create them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from muster import yamlio
from muster.configure.plan import Plan
from muster.configure.render import argocd
from muster.configure.render.repository import Repository

CHARTS = "local"
"""Folder of the bundle's own charts; what lies under `charts/` Helm would render as a part of this one."""
_TEMPLATES = ("_values.tpl", "applications.yaml", "parent.yaml")
# Kept out of the chart that Helm stores in a Secret of at most 1 MiB. Argo CD reads them from the repository.
_IGNORED = (f"/{CHARTS}/", "/supplied/", "/argocd-cm.yaml", "/bundle.yaml", "/checksums.txt", "/recipe.yaml", "/*.md")


def render(plan: Plan, repository: Repository) -> dict[str, str]:
    """Files by path inside the bundle. Raises BadInputError when a release has a name that is taken."""
    files = {
        ".helmignore": "".join(f"{pattern}\n" for pattern in _IGNORED),
        "Chart.yaml": yamlio.dumps(
            {
                "apiVersion": "v2",
                "name": argocd.PARENT,
                "version": "0.1.0",
                "description": "Argo CD Applications of a bundle.",
                "annotations": {"muster.dev/recipe": plan.recipe_digest},
            }
        ),
        "values.yaml": yamlio.dumps(_values(repository)),
        "values.schema.json": json.dumps(_schema(plan), indent=2) + "\n",
        "parent/parent.yaml": yamlio.dumps(argocd.parent({})),
        "argocd-cm.yaml": yamlio.dumps(argocd.health_rule(namespace="")),
    }
    for name in _TEMPLATES:
        files[f"templates/{name}"] = _template(name)
    # Paths of charts stay relative; the template puts address, revision and folder of the repository before them.
    for name, application in argocd.applications(plan, Repository(), CHARTS):
        files[f"applications/{name}.yaml"] = yamlio.dumps(application)
    return files | argocd.charts(plan, CHARTS)


def _template(name: str) -> str:
    folder = Path(__file__).parent / "chart_of_applications"
    return (folder / name).read_text(encoding="utf-8")


def _values(repository: Repository) -> dict[str, Any]:
    return {
        "parent": {"enabled": True},
        "repository": {"url": repository.url, "revision": repository.revision, "path": repository.path},
        "project": "default",
        "namespace": argocd.NAMESPACE,
        "destination": {"server": argocd.IN_CLUSTER},
        "releases": {},
    }


def _schema(plan: Plan) -> dict[str, Any]:
    """What may be set at install; anything else is a slip of the pen and is refused by Helm."""
    text = {"type": "string", "minLength": 1}
    release = _closed(
        {
            "values": {
                "description": "Merged over the locked values, a null included: a map, or YAML as text.",
                "type": ["object", "string"],
            }
        }
    )
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_closed(
            {
                "parent": _closed({"enabled": {"type": "boolean"}}),
                "repository": _closed({"url": text, "revision": text, "path": text}),
                "project": text,
                "namespace": text,
                "destination": _closed({"server": text}),
                "releases": _closed({r.name: release for r in plan.releases if not r.is_local}),
                # Helm adds this to every chart.
                "global": {"type": "object"},
            }
        ),
    }


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}
