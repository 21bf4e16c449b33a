"""What somebody changed beside the deployer, held against the release: images, replicas, custom resources. Pure.

The record of a release keeps saying `deployed` when an object of it is edited, and the edited object can be well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from muster.configure.live.kinds import Workload
from muster.configure.live.ownership import Belonging, Possessions
from muster.configure.live.redact import shown
from muster.configure.values import path_text
from muster.resources.baseline import Drift, DriftClass

ABSENT = "(absent)"
_BY_HAND = "kubectl"


def hand_edits(component: str, mine: Possessions) -> Iterator[Drift]:
    """Each image and number of replicas of a workload that is not the release's own.

    Only what the release itself says is compared; a chart that leaves the replicas out leaves them to an autoscaler.
    """
    for belonging in sorted(mine.workloads, key=_place):
        owned, workload = belonging.owned, belonging.workload
        if owned is None:
            continue
        metadata, kind = workload.metadata, belonging.kind.value
        where = f"{kind} {metadata.namespace}/{metadata.name}"
        target = f"{kind.lower()}/{metadata.name}"
        live = _images(workload)
        for container, image in owned.images:
            found = live.get(container, ABSENT)
            if not same_image(image, found):
                yield Drift(
                    drift_class=DriftClass.VALUES,
                    component=component,
                    path=f"{where}: image of {container}",
                    expected=image,
                    found=found,
                    remedy=f"set it back ('kubectl set image {target} {container}={image} -n {metadata.namespace}'), "
                    "or bring the change into the recipe",
                )
        replicas = workload.spec.replicas
        # Scaled to 0 fails an assertion already.
        if owned.replicas and replicas and replicas != owned.replicas and not _autoscaled(workload):
            yield Drift(
                drift_class=DriftClass.VALUES,
                component=component,
                path=f"{where}: replicas",
                expected=str(owned.replicas),
                found=str(replicas),
                remedy=f"set it back ('kubectl scale {target} --replicas={owned.replicas} -n {metadata.namespace}'), "
                "or bring the change into the recipe",
            )


def edited_customs(component: str, mine: Possessions) -> Iterator[Drift]:
    """Each value of a custom resource that the release sets and that is another one now.

    What the release does not set (defaults, the fields of operators) is nobody's edit, nor is what the API server
    leaves out, or shows in another version of the kind.
    """
    present = {(c.group, c.kind, c.namespace, c.name): c for c in mine.customs}
    for (group, kind, namespace, name), owned in sorted(mine.listed.items()):
        live = present.get((group, kind, namespace, name)) or present.get((group, kind, "", name))
        if not owned.spec or live is None or live.object.get("apiVersion") != owned.api_version:
            continue
        where = f"{kind} {live.namespace}/{name}" if live.namespace else f"{kind} {name}"
        for path, wanted, found in _other_values(("spec",), owned.spec, live.object.get("spec")):
            yield Drift(
                drift_class=DriftClass.VALUES,
                component=component,
                path=f"{where}: {path_text(path)}",
                expected=shown(path, wanted),
                found=shown(path, found),
                remedy=f"deploy {component} again (with a Helm bundle: deploy.sh --all), or bring the change into "
                "the recipe",
            )


def _other_values(path: tuple[str, ...], wanted: Any, found: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted(str(k) for k in wanted):
            if found.get(key) is not None and wanted.get(key) is not None:
                yield from _other_values((*path, key), wanted[key], found[key])
    elif isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            yield path, wanted, found
            return
        for at, (a, b) in enumerate(zip(wanted, found, strict=True)):
            yield from _other_values((*path, f"[{at}]"), a, b)
    elif _kind(wanted) == _kind(found) and wanted != found:
        yield path, wanted, found


def _kind(value: Any) -> str:
    """What JSON calls it. YAML has spellings (dates, `yes`) that its readers take for different kinds."""
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__


def same_image(wanted: str, found: str) -> bool:
    """Whether both name the same image. Policies put a mirror in front of it, or its digest behind it: no change."""
    (name, digest), (other, other_digest) = _split(wanted), _split(found)
    return name == other and (not digest or not other_digest or digest == other_digest)


def _split(image: str) -> tuple[str, str]:
    """(last part of the name with its tag, digest)."""
    name, _, digest = image.partition("@")
    return name.rpartition("/")[2], digest


def _images(workload: Workload) -> dict[str, str]:
    pod = workload.spec.template.spec
    return {c.name: c.image for c in (*(pod.init_containers or ()), *(pod.containers or ()))}


def _autoscaled(workload: Workload) -> bool:
    """Whether something that is no person sets the replicas through the scale subresource, as autoscalers do."""
    managers = workload.metadata.managed_fields or ()
    return any(m.subresource == "scale" and not m.manager.startswith(_BY_HAND) for m in managers)


def _place(belonging: Belonging) -> tuple[str, str, str]:
    metadata = belonging.workload.metadata
    return (belonging.kind.value, metadata.namespace, metadata.name)
