"""Charts inside the bundle, for releases that consist of manifests alone, and short names for chart repositories."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from muster import yamlio
from muster.configure.plan import Release

# The manifests lie outside templates/, so that Helm reads them as they are and `{{` in them means nothing.
_TEMPLATE = """\
{{- range $path, $content := .Files.Glob "manifests/*.yaml" }}
{{ $.Files.Get $path }}
{{- end }}
"""
_MAX_ALIAS = 40
VERSION = "0.1.0"


def local_chart(release: Release, folder: str, version: str = VERSION) -> dict[str, str]:
    """Files of the chart, by path inside the bundle. With a manifest missing, the chart refuses to render."""
    files = chart_files(release.name, f"Manifests of the component {release.component}.", folder, version)
    files[f"{folder}/values.yaml"] = yamlio.dumps(release.values)
    for at, manifest in enumerate(release.manifests, start=1):
        if manifest.objects is not None:
            files[f"{folder}/manifests/{at:02d}-{manifest.name}"] = yamlio.dumps_all(manifest.objects)
    if release.missing:
        message = (
            f"manifests not supplied: {', '.join(release.missing)}; build the bundle again with --manifest NAME=FILE"
        )
        # The message is a JSON string, which is also a string of the template language.
        files[f"{folder}/templates/missing.yaml"] = "{{ fail " + json.dumps(message) + " }}\n"
    return files


def awaits_objects(release: Release) -> bool:
    """Whether the release is finished only when its objects are ready.

    A claim for a volume may be bound only when a pod uses it, and that pod belongs to a release that comes later.
    """
    kinds = [o.get("kind") for file in release.manifests for o in file.objects or ()]
    return "PersistentVolumeClaim" not in kinds


def chart_files(name: str, description: str, folder: str, version: str = VERSION) -> dict[str, str]:
    """A chart that renders every file of its `manifests/` as it stands."""
    chart: dict[str, Any] = {
        "apiVersion": "v2",
        "name": name,
        "version": version,
        "type": "application",
        "description": description,
    }
    return {f"{folder}/Chart.yaml": yamlio.dumps(chart), f"{folder}/templates/manifests.yaml": _TEMPLATE}


def repository_alias(repository: str) -> str:
    """A DNS label for a chart repository: its address in short, and a hash so that no two share a name."""
    address = repository.rstrip("/")
    short = re.sub(r"[^a-z0-9]+", "-", address.split("://", 1)[-1].lower())[:_MAX_ALIAS].strip("-")
    return f"{short}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"
