"""Stand-ins for charts: small ones, served from a chart repository of our own on loopback, and a plan over them."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from muster import yamlio
from muster.configure.plan import CrdPolicy, Plan, Release, Secret
from muster.configure.recipe import ManifestFile

CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  values: {{ .Values | toJson | quote }}
"""
# Strict readers refuse a mapping that repeats a key; charts in the wild do it, and Helm takes the last one.
REPEATED = CONFIG.replace("  name:", "  labels: {a: '1', a: '2'}\n  name:")
# Refuses to render until somebody creates the ConfigMap `go` beside it: a failure that can be mended from outside.
NEEDS_GO = '{{ if not (lookup "v1" "ConfigMap" .Release.Namespace "go") }}{{ fail "go is missing" }}{{ end }}\n'


def crd(plural: str, kind: str, field: str = "one") -> dict[str, Any]:
    """A CRD `<plural>.stand-in.example`, told apart by a field of its schema."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {field: {"type": "string"}}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.stand-in.example"},
        "spec": {
            "group": "stand-in.example",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }


def chart(name: str, version: str, files: dict[str, str]) -> bytes:
    """The archive of a chart."""
    everything = {"Chart.yaml": yamlio.dumps({"apiVersion": "v2", "name": name, "version": version}), **files}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in everything.items():
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


def charts(prefix: str = "", field: str = "one") -> dict[tuple[str, str], bytes]:
    """(name, version) -> archive, of every chart that `small_plan` names."""

    def crds(kind: str) -> str:
        return yamlio.dumps(crd(f"{prefix}{kind.lower()}s", f"{prefix.capitalize()}{kind}", field))

    config = {"templates/config.yaml": CONFIG}
    version = "1.0.0" if field == "one" else "2.0.0"
    return {
        ("shared-crds", version): chart("shared-crds", version, {**config, "crds/widgets.yaml": crds("Widget")}),
        ("base", "1.0.0"): chart("base", "1.0.0", config),
        ("operator", version): chart("operator", version, {**config, "crds/gizmos.yaml": crds("Gizmo")}),
        ("late", "1.0.0"): chart("late", "1.0.0", {"templates/config.yaml": REPEATED, "templates/go.yaml": NEEDS_GO}),
    }


def small_plan(repository: str, namespace: str, prefix: str = "", version: str = "1.0.0", retries: int = 1) -> Plan:
    """Five releases over three levels, one of them a chart inside the bundle. `late` fails until it is mended."""
    widget = {
        "apiVersion": "stand-in.example/v1",
        "kind": f"{prefix.capitalize()}Widget",
        "metadata": {"name": "yes", "namespace": namespace, "annotations": {"null": "{{ .Values.no }}"}},
    }

    def release(name: str, level: int, needs: tuple[str, ...] = (), **fields: Any) -> Release:
        return Release(
            name=name, component=name, role="main", namespace=namespace, depends_on=needs, level=level,  # type: ignore[arg-type]
            timeout_s=20, retries=retries, **fields,
        )  # fmt: skip

    def fetched(name: str, level: int, needs: tuple[str, ...] = (), at: str = "1.0.0", **fields: Any) -> Release:
        return release(name, level, needs, repository=repository, chart=name, version=at, **fields)

    shared = f"{prefix}widgets.stand-in.example"
    own = f"{prefix}gizmos.stand-in.example"
    return Plan(
        releases=(
            fetched("shared-crds", 0, at=version, crds=CrdPolicy.KEEP, provides=(shared,)),
            fetched("base", 0, values={"nothing": None, "empty": [], "yes": "no", "123": "1e3", "braces": "{{ x }}"}),
            fetched("operator", 1, ("base",), at=version, crds=CrdPolicy.REPLACE, provides=(own,)),
            fetched("late", 2, ("base", "operator")),
            release(
                "objects", 3, ("late", "shared-crds"), manifests=(ManifestFile(name="w.yaml", objects=[widget]),)
            ),
        ),
        namespaces={namespace: {"stand-in.example/checked": "true"}},
        secrets=(Secret(namespace=namespace, name="key", keys=("user", "password")),),
        recipe_digest="sha256:0",
    )


@contextmanager
def served(archives: dict[tuple[str, str], bytes]) -> Iterator[str]:
    """A chart repository over HTTP on loopback. Yields its address."""
    files = {f"/{name}-{version}.tgz": data for (name, version), data in archives.items()}
    entries: dict[str, list[dict[str, Any]]] = {}
    for name, version in archives:
        entry = {"apiVersion": "v2", "name": name, "version": version, "urls": [f"{name}-{version}.tgz"]}
        entries.setdefault(name, []).append(entry)
    files["/index.yaml"] = yamlio.dumps({"apiVersion": "v1", "entries": entries}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = files.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of the base class
            """Nothing: the tests look at what the programs do."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
