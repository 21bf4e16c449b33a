"""Reads back what an `argocd-helm` bundle holds: from its data, or from what Helm's engine renders."""

from __future__ import annotations

from typing import Any

from muster import yamlio
from tests.bundle.found import Found
from tests.bundle.read_argocd import releases_of


def read(files: dict[str, str]) -> list[Found]:
    """Releases with the choices that the bundle was built with."""
    values = yamlio.loads(files["values.yaml"], "values.yaml")
    assert values["parent"]["enabled"] is True, (
        "Helm knows no waves: installed by hand the chart makes the parent alone"
    )
    documents = []
    for name in sorted(n for n in files if n.startswith("applications/")):
        document = yamlio.loads(files[name], name)
        source = document["spec"]["source"]
        if source.get("path", "").startswith("local/"):
            source |= {"repoURL": values["repository"]["url"], "targetRevision": values["repository"]["revision"]}
        documents.append(document)
    return releases_of(documents, files, "")


def read_rendered(documents: list[Any], files: dict[str, str], folder: str) -> list[Found]:
    """Releases from the rendered Applications; `folder` is where the bundle lies, "" or ending in a slash."""
    return releases_of(documents, files, folder)
