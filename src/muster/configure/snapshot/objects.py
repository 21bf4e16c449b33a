"""Pods, Helm releases, definitions, policies and storage classes as items of a snapshot. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from muster.configure.live.helm_release import HelmRelease
from muster.configure.snapshot.model import Item
from muster.configure.snapshot.values import readings_of
from muster.inventory.record import UnknownReading
from muster.resources.fingerprint import Reading, ReadingClass

STACK, CONFIG, VOLATILE = ReadingClass.STACK, ReadingClass.CONFIG, ReadingClass.VOLATILE

SERVICE_OWNERS = frozenset({"DaemonSet", "ReplicaSet", "StatefulSet", "Node"})
"""Owners of pods that stay. Images of jobs and bare pods come and go with the work."""
POLICIES: tuple[tuple[str, str, str], ...] = (
    ("nvidia.com", "v1", "clusterpolicies"),
    ("nvidia.com", "v1alpha1", "nvidiadrivers"),
    ("mellanox.com", "v1alpha1", "nicclusterpolicies"),
    ("configuration.net.nvidia.com", "v1alpha1", "nicconfigurationtemplates"),
    ("sriovnetwork.openshift.io", "v1", "sriovnetworknodepolicies"),
    ("sriovnetwork.openshift.io", "v1", "sriovoperatorconfigs"),
    ("skyhook.nvidia.com", "v1alpha1", "skyhooks"),
    ("nodewright.nvidia.com", "v1alpha1", "nodewrights"),
)
"""Group, version and plural of the resources that configure GPU and network operators. The version is the one to ask
where the definitions cannot be read; else it is the one that is stored."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_MAX = 1024


class _Reference(msgspec.Struct):
    kind: str = ""
    controller: bool = False


class _Meta(msgspec.Struct):
    owners: list[_Reference] = msgspec.field(name="ownerReferences", default_factory=list)


class _Container(msgspec.Struct):
    name: str = ""
    image: str = ""


class _ContainerStatus(msgspec.Struct):
    name: str = ""
    image_id: str = msgspec.field(name="imageID", default="")


class _PodSpec(msgspec.Struct):
    containers: list[_Container] = []
    init: list[_Container] = msgspec.field(name="initContainers", default_factory=list)


class _PodStatus(msgspec.Struct):
    phase: str = ""
    containers: list[_ContainerStatus] | None = msgspec.field(name="containerStatuses", default=None)
    init: list[_ContainerStatus] | None = msgspec.field(name="initContainerStatuses", default=None)


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _PodSpec
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


_pod = msgspec.json.Decoder(_Pod, strict=False)


@dataclass(frozen=True, slots=True)
class Use:
    """A container that uses an image. `digest` is empty until it has started."""

    repository: str
    tag: str
    pinned: str
    digest: str
    stays: bool


def uses_of(raw: bytes) -> tuple[Use, ...]:
    """The images of a pod (JSON). Raises msgspec.MsgspecError."""
    pod = _pod.decode(raw)
    stays = any(owner.controller and owner.kind in SERVICE_OWNERS for owner in pod.metadata.owners)
    started = {status.name: status.image_id for status in (pod.status.containers or []) + (pod.status.init or [])}
    return tuple(
        _use(container.image, started.get(container.name, ""), stays and pod.status.phase in ("Running", "Pending"))
        for container in pod.spec.containers + pod.spec.init
        if container.image
    )


def _use(image: str, image_id: str, stays: bool) -> Use:
    name, _, pinned = image.partition("@")
    # A colon before the last slash belongs to the port of the registry.
    head, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    found = _DIGEST.search(image_id.rpartition("@")[2]) if "@" in image_id else None
    digest = found[0] if found else ""
    return Use(f"{head}{slash}{last}"[:_MAX], tag or ("" if pinned else "latest"), pinned[:_MAX], digest, stays)


def images_of(uses: Iterable[Use]) -> tuple[Item, ...]:
    """One item per repository with every tag and digest in use: no tag hides another one."""
    by_repository: dict[str, dict[str, tuple[set[str], bool]]] = {}
    for use in uses:
        readings = by_repository.setdefault(use.repository, {})
        for name in ([f"tag.{use.tag}"] if use.tag else []) + ([f"digest.{use.pinned}"] if use.pinned else []):
            digests, stays = readings.setdefault(name, (set(), False))
            digests |= {use.digest} - {""}
            readings[name] = (digests, stays or use.stays)
    return tuple(_image(repository, by_repository[repository]) for repository in sorted(by_repository))


def _image(repository: str, found: Mapping[str, tuple[set[str], bool]]) -> Item:
    readings, unknown = [], []
    for name in sorted(found):
        digests, stays = found[name]
        if name.startswith("digest."):
            readings.append(Reading(name=name, value="used", reading_class=STACK if stays else VOLATILE))
        elif digests:
            value = ",".join(sorted(digests))[:_MAX]
            readings.append(Reading(name=name, value=value, reading_class=STACK if stays else VOLATILE))
        else:
            readings.append(Reading(name=name, value="", reading_class=VOLATILE))
            unknown.append(
                UnknownReading(name=name, reason="no container of it has started, so its digest is unknown")
            )
    return Item(name=repository, readings=tuple(readings), unknown=tuple(unknown))


def release_item(release: HelmRelease) -> Item:
    """A Helm release with its values, secrets hidden."""
    about = (
        ("chart", release.chart, STACK),
        ("chart_version", release.chart_version, STACK),
        ("app_version", release.app_version, STACK),
        ("status", release.status, CONFIG),
        ("revision", str(release.revision), VOLATILE),
    )
    readings = [Reading(name=name, value=value[:_MAX], reading_class=kind) for name, value, kind in about if value]
    if release.values:
        readings += readings_of("values", release.values, CONFIG)
    return Item(name=release.name, namespace=release.namespace, readings=_by_name(readings))


class _CrdName(msgspec.Struct):
    name: str = ""


class _CrdVersion(msgspec.Struct):
    name: str
    served: bool = False
    storage: bool = False


class _CrdNames(msgspec.Struct):
    plural: str = ""
    kind: str = ""


class _CrdSpec(msgspec.Struct):
    group: str = ""
    scope: str = ""
    names: _CrdNames = msgspec.field(default_factory=_CrdNames)
    versions: list[_CrdVersion] = []


class _CrdCondition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _CrdStatus(msgspec.Struct):
    conditions: list[_CrdCondition] | None = None


class Definition(msgspec.Struct):
    """The part of a CustomResourceDefinition that is kept; its schemas are skipped while decoding."""

    metadata: _CrdName
    spec: _CrdSpec
    status: _CrdStatus = msgspec.field(default_factory=_CrdStatus)


definition_of = msgspec.json.Decoder(Definition, strict=False).decode


def crd_item(crd: Definition) -> Item:
    """A definition: its versions and whether the API server accepts objects of it."""
    established = next((c.status for c in crd.status.conditions or [] if c.type == "Established"), "")
    readings = [
        Reading(name="versions", value=",".join(v.name for v in crd.spec.versions if v.served), reading_class=STACK),
        Reading(name="stored", value=stored_version(crd), reading_class=STACK),
        Reading(name="scope", value=crd.spec.scope, reading_class=STACK),
    ]
    unknown: tuple[UnknownReading, ...] = ()
    if established:
        readings.append(Reading(name="established", value=established, reading_class=CONFIG))
    else:
        unknown = (UnknownReading(name="established", reason="the API server has not said yet"),)
    return Item(name=crd.metadata.name, readings=_by_name(readings), unknown=unknown)


def stored_version(crd: Definition) -> str:
    return next((version.name for version in crd.spec.versions if version.storage), "")


def policy_item(resource: str, obj: Mapping[str, Any]) -> Item:
    """A policy: its specification (secrets hidden) and the state that its operator reports."""
    metadata = obj.get("metadata") if isinstance(obj.get("metadata"), Mapping) else {}
    readings = list(readings_of("spec", obj.get("spec") or {}, CONFIG))
    status = obj.get("status")
    if isinstance(status, Mapping) and isinstance(status.get("state"), str):
        readings.append(Reading(name="state", value=status["state"][:_MAX], reading_class=VOLATILE))
    name = str((metadata or {}).get("name", ""))
    return Item(
        name=f"{resource}/{name}", namespace=str((metadata or {}).get("namespace", "")), readings=_by_name(readings)
    )


_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def storage_class_item(obj: Mapping[str, Any]) -> Item:
    """A storage class."""
    metadata = obj.get("metadata") if isinstance(obj.get("metadata"), Mapping) else {}
    annotations = (metadata or {}).get("annotations")
    default = isinstance(annotations, Mapping) and annotations.get(_DEFAULT_CLASS) == "true"
    readings = [
        Reading(name="provisioner", value=str(obj.get("provisioner", ""))[:_MAX], reading_class=STACK),
        Reading(name="default", value="yes" if default else "no", reading_class=CONFIG),
        *(
            Reading(name=name, value=str(obj[key])[:_MAX], reading_class=CONFIG)
            for key, name in (
                ("reclaimPolicy", "reclaim_policy"),
                ("volumeBindingMode", "binding_mode"),
                ("allowVolumeExpansion", "expansion"),
            )
            if obj.get(key) is not None
        ),
    ]
    if obj.get("parameters"):
        readings += readings_of("parameters", obj["parameters"], CONFIG)
    return Item(name=str((metadata or {}).get("name", "")), readings=_by_name(readings))


def _by_name(readings: Iterable[Reading]) -> tuple[Reading, ...]:
    return tuple(sorted(readings, key=lambda reading: reading.name))
