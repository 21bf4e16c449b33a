"""Charts inside the bundle, for releases that consist of manifests alone."""

from __future__ import annotations

import json

from muster import yamlio
from muster.configure.plan import Release

# The manifests lie outside templates/, so that Helm reads them as they are and `{{` in them means nothing.
_TEMPLATE = """\
{{- range $path, $content := .Files.Glob "manifests/*.yaml" }}
{{ $.Files.Get $path }}
{{- end }}
"""


def local_chart(release: Release, folder: str) -> dict[str, str]:
    """Files of the chart, by path inside the bundle. With a manifest missing, the chart refuses to render."""
    files = {
        f"{folder}/Chart.yaml": yamlio.dumps(
            {
                "apiVersion": "v2",
                "name": release.name,
                "version": "0.1.0",
                "description": f"Manifests of the component {release.component}.",
            }
        ),
        f"{folder}/values.yaml": yamlio.dumps(release.values),
        f"{folder}/templates/manifests.yaml": _TEMPLATE,
    }
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
