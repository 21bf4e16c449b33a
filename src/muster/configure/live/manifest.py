"""The objects that a release owns, from the manifest in its Helm record.

Charts are not always tidy YAML (keys given twice, odd tags), and Helm took them all the same: what cannot be parsed
is told from its lines.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from muster.configure.live.helm_release import crd_names
from muster.configure.live.state import OwnedObject

CRD_GROUP, CRD_KIND = "apiextensions.k8s.io", "CustomResourceDefinition"
MAX_OBJECTS = 5000
MAX_BRACKETS = 20_000
"""Flow style nests by one character a level; a document with more of them is not parsed."""
MAX_CUSTOM = 64 * 1024
"""Characters of a custom resource that is parsed; larger ones are known by name alone."""
_MONITORING = "monitoring.coreos.com"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DOCUMENT = re.compile(r"^---.*$", re.MULTILINE)
_KIND = re.compile(r"^kind:\s*['\"]?([A-Za-z]+)", re.MULTILINE)
_NEEDS_PARSING = frozenset({"Deployment", "StatefulSet", "DaemonSet", "Job", "List"})
_API_VERSION = re.compile(r"^apiVersion:\s*['\"]?([A-Za-z0-9./-]+)", re.MULTILINE)
_METADATA = re.compile(r"^metadata:[^\n]*\n((?:[ \t#-][^\n]*(?:\n|\Z)|\n)*)", re.MULTILINE)


def owned_objects(manifest: str, crds: tuple[str, ...] = ()) -> tuple[OwnedObject, ...]:
    """Every object of the manifest and of the chart's folder `crds/`, each once, in their order."""
    found: dict[tuple[str, str, str, str], OwnedObject] = {}

    def add(owned: OwnedObject) -> None:
        found.setdefault((owned.group, owned.kind, owned.namespace, owned.name), owned)

    for document in _DOCUMENT.split(manifest):
        kind = _KIND.search(document)
        if kind is None or len(found) >= MAX_OBJECTS:
            continue
        if kind[1] == CRD_KIND:
            for name in crd_names(document):
                add(OwnedObject(CRD_GROUP, CRD_KIND, "", name))
            continue
        for owned in _from_text(document, kind[1]):
            add(owned)
    for name in crds:
        add(OwnedObject(CRD_GROUP, CRD_KIND, "", name))
    return tuple(found.values())


def _is_custom(document: str, kind: str) -> bool:
    """Whether somebody may edit the object by hand and mean the machine: no built-in kind, and none of the many."""
    api_version = _API_VERSION.search(document)
    group = api_version[1].rpartition("/")[0] if api_version is not None else ""
    custom = "." in group and not group.endswith(".k8s.io") and group != _MONITORING
    return custom and kind != CRD_KIND and len(document) <= MAX_CUSTOM


def _from_text(document: str, kind: str) -> list[OwnedObject]:
    if kind not in _NEEDS_PARSING and not _is_custom(document, kind):
        plain = _from_lines(document, kind)
        if plain is not None:
            return [plain]
    try:
        if document.count("[") + document.count("{") > MAX_BRACKETS:
            raise ValueError("too many brackets")
        parsed = yaml.load(document, Loader=_LOADER)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError):
        plain = _from_lines(document, kind)
        return [plain] if plain is not None else []
    if not isinstance(parsed, dict):
        return []
    items = parsed.get("items") if kind == "List" else [parsed]
    objects = [_from_object(item) for item in (items if isinstance(items, list) else [])[:MAX_OBJECTS]]
    return [owned for owned in objects if owned is not None]


def _from_lines(document: str, kind: str) -> OwnedObject | None:
    """Kind and name from the lines alone: most objects need no more, and parsing them all takes seconds."""
    api_version, metadata = _API_VERSION.search(document), _METADATA.search(document)
    if api_version is None or metadata is None:
        return None
    indent = re.match(r"(?:[ \t]*(?:#[^\n]*)?\n)*( +)", metadata[1])
    if indent is None:
        return None
    values = {}
    for key in ("name", "namespace"):
        line = re.search(
            rf"^{indent[1]}{key}:[ ]*(?:'([^'\n]*)'|\"([^\"\\\n]*)\"|([A-Za-z0-9][A-Za-z0-9.:_-]*))[ ]*(?:#[^\n]*)?$",
            metadata[1],
            re.MULTILINE,
        )
        values[key] = next((part for part in line.groups() if part), "") if line is not None else ""
        if line is None and re.search(rf"^{indent[1]}['\"]?{key}['\"]?\s*:", metadata[1], re.MULTILINE):
            return None
    if not values["name"]:
        return None
    return OwnedObject(api_version[1].rpartition("/")[0], kind, values["namespace"], values["name"])


def _from_object(value: Any) -> OwnedObject | None:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("name"):
        return None
    spec = value.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    replicas = spec.get("replicas")
    kind_is_custom = "." in str(value.get("apiVersion", "")).rpartition("/")[0]
    return OwnedObject(
        group=str(value.get("apiVersion", "")).rpartition("/")[0],
        kind=str(value.get("kind", "")),
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        replicas=replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else None,
        images=_images(spec),
        api_version=str(value.get("apiVersion", "")),
        spec=spec if kind_is_custom else None,
        expires=spec.get("ttlSecondsAfterFinished") is not None,
    )


def _images(spec: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """(container, image) of the pods of a workload, init containers first."""
    template = spec.get("template")
    pod = template.get("spec") if isinstance(template, dict) else None
    found: list[tuple[str, str]] = []
    for key in ("initContainers", "containers"):
        containers = pod.get(key) if isinstance(pod, dict) else None
        found += [
            (str(container.get("name", "")), container["image"])
            for container in (containers if isinstance(containers, list) else [])
            if isinstance(container, dict) and isinstance(container.get("image"), str)
        ]
    return tuple(found)
