"""What the tests of layers share: a small catalogue, and layers as values and as folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from muster import yamlio
from muster.configure.catalogue import (
    Catalogue,
    Checks,
    Component,
    Manifests,
    Mixin,
    Overlay,
    Patch,
    Pin,
    Profile,
    ProfileValue,
    Source,
    SourceKind,
)
from muster.configure.layers.source import KIND, LayerHeader, LayerSource
from muster.resources.base import API_VERSION


def chart(name: str, **fields: Any) -> Component:
    source = Source(kind=SourceKind.HELM, repository="https://charts.example.com", chart=name, version="1.0.0")
    made = {"source": source, "namespace": name, "pin": Pin(source="its release page", date="2026-01")}
    return Component(name=name, **(made | fields))


def small_catalogue() -> Catalogue:
    """A base with one service, one profile, two charts and a manifest."""
    storage = Profile(
        name="disk",
        default="fast",
        values={
            "fast": ProfileValue(components={"store": Patch(values={"class": "ssd"})}),
            "cheap": ProfileValue(components={"store": Patch(values={"class": "hdd"})}),
        },
    )
    overlays = [
        Overlay(
            name="base",
            constraints={"kubernetes.version": ">= 1.30"},
            components={"agent": Patch(), "store": Patch(depends_on=("agent",))},
            checks={"deployment": Checks(checks=("ready",), constraints={"driver.version": ">= 580"})},
        ),
        Overlay(
            name="eks",
            base="base",
            criteria={"service": "eks"},
            mixins=("logs",),
            constraints={"kubernetes.version": ">= 1.32"},
            profile=storage,
            components={"agent": Patch(values={"image": {"pull": "Always"}})},
        ),
    ]
    return Catalogue(
        components={
            "agent": chart("agent", values={"version": "580.1", "args": ["-a"], "image": {"pull": "Never"}}),
            "store": chart("store", kube_version=">= 1.28", manifests=Manifests(post=("claim.yaml",))),
        },
        overlays={o.name: o for o in overlays},
        mixins={"logs": Mixin(name="logs", components={"agent": Patch(values={"logs": True})})},
        manifests={"store/claim.yaml": [config_map("claim", {"size": "1"})]},
        digest="sha256:" + "0" * 64,
    )


def config_map(name: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def layer(name: str = "acme", files: dict[str, Any] | None = None, **header: Any) -> LayerSource:
    return LayerSource(LayerHeader(api_version=API_VERSION, kind=KIND, name=name, **header), files or {})


def write_layer(folder: Path, name: str = "acme", files: dict[str, Any] | None = None, **header: Any) -> Path:
    """A layer as a folder; `files` maps names to content (text is written as it is)."""
    head = {"apiVersion": API_VERSION, "kind": KIND, "name": name} | header
    for file, content in {"layer.yaml": head, **(files or {})}.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, str):
            path.write_text(content)
        else:
            path.write_text(yamlio.dumps_all(content) if isinstance(content, list) else yamlio.dumps(content))
    return folder


def content_of(catalogue: Catalogue) -> dict[str, Any]:
    """What a catalogue says, without which layers it came from."""
    return {
        "components": catalogue.components,
        "overlays": catalogue.overlays,
        "mixins": catalogue.mixins,
        "manifests": catalogue.manifests,
        "vocabularies": catalogue.vocabularies,
    }
