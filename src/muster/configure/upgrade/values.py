"""What a change of single values does to a cluster: names, CRDs, stored data, parts of a chart, running work."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from muster.configure.recipe import RecipeComponent
from muster.configure.upgrade.storage import claims, shrinks
from muster.configure.upgrade.verdicts import Reason, blocked, care, safe
from muster.configure.values import ABSENT, Path, get, parse_path, path_text, same, whole_leaves

_NAME_KEYS: Final = frozenset({"nameOverride", "fullnameOverride", "namespaceOverride"})
_CRD_SWITCHES: Final = frozenset({"installCRDs", "installCrds", "createCRDs"})
_VOLUMES: Final = frozenset(
    {"persistence", "persistentVolume", "volumeClaimTemplate", "volumeClaimTemplates", "storageSpec"}
)
_DURATION = re.compile(r"(?:\d{1,9}(?:ms|[smhdwy]))+", re.ASCII)
_PART = re.compile(r"(\d+)(ms|[smhdwy])", re.ASCII)
_SECONDS: Final[dict[str, float]] = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([KMGTPE]?)i?B", re.ASCII)
"""Sizes and durations as Prometheus writes them; its units are powers of 1024 with and without the i."""
_SHOWN = 6

CAREFUL: Final[tuple[tuple[str, str, str], ...]] = (
    ("gpu-operator", "driver.upgradePolicy", ""),
    ("gpu-operator", "driver", "the driver is replaced on every GPU node, and work that uses a GPU there ends"),
    # The operator compares the revision of a driver pod's whole template with that of its DaemonSet.
    (
        "gpu-operator",
        "daemonsets.tolerations",
        "where the operator installs the driver it replaces the driver pods, node by node, and work there ends",
    ),
    ("gpu-operator", "toolkit", "the container runtime restarts on every GPU node"),
    ("gpu-operator", "cdi", "the container runtime restarts on every GPU node"),
    ("gpu-operator", "operator.runtimeClass", "pods that name the old RuntimeClass are no longer created"),
    ("gpu-operator", "mig", "GPUs are partitioned anew, which ends the work on them"),
    ("gpu-operator", "migManager", "GPUs may be partitioned anew, which ends the work on them"),
    ("gpu-operator", "sandboxWorkloads", "GPUs change between containers and virtual machines"),
    ("gpu-operator", "ccManager", "the confidential mode of GPUs changes, which resets them"),
    ("gpu-operator", "nfd", "node labels come from another Node Feature Discovery, and two of them contradict"),
    ("gpu-operator", "hostPaths", "driver and toolkit move to other folders of the nodes"),
    ("network-operator", "ofedDriver", "the network driver is replaced, and jobs that span nodes end"),
    ("nvidia-dra-driver-gpu", "nvidiaDriverRoot", "claims on GPUs fail until the driver is found at the new place"),
    ("nvidia-dra-driver-gpu", "resources", "device classes come or go, and claims on those that go stay pending"),
    ("nvsentinel", "global.dryRun", "it starts or stops to cordon, drain and restart nodes"),
)
"""(component, value path, what a change below it does; empty: nothing). The first that fits counts."""


def value_changes(old: RecipeComponent, new: RecipeComponent) -> Iterator[Reason]:
    """Reasons for each value that differs, in the order of the paths; those that are safe last, in one reason."""
    before, after = dict(whole_leaves(old.values)), dict(whole_leaves(new.values))
    harmless: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        earlier, later = before.get(path, ABSENT), after.get(path, ABSENT)
        if same(earlier, later):
            continue
        shown = f"{path_text(path)}: {_text(earlier)} -> {_text(later)}"
        found = _verdict(old, new, path, earlier, later, shown)
        if found is not None:
            yield found
        elif not _is_storage(new, path):
            harmless.append(path_text(path))
    if harmless:
        yield safe(f"values changed: {_some(harmless)}")


def _verdict(
    old: RecipeComponent, new: RecipeComponent, path: Path, before: Any, after: Any, shown: str
) -> Reason | None:
    if path[-1] in _NAME_KEYS:
        return blocked(
            f"{shown}: every object gets a new name or selector, which cannot be changed in place",
            f"keep the name, or uninstall {old.name} first",
        )
    found = _crds(old, new, path, before, after, shown)
    if found is None and not _is_storage(new, path):
        found = _data(path, before, after, shown)
    if found is not None:
        return found
    off = path[-1] == "enabled" and after is False and len(path) > 1
    if off and any(parse_path(text)[: len(path) - 1] == path[:-1] for text in claims(old)):
        return blocked(f"{shown}: it is turned off, and its volumes may go with it", "back up what they hold first")
    why = _careful(new, path)
    if why:
        return care(f"{shown}: {why}", "deploy while the nodes are drained, or node by node")
    if off and why is not None:
        return care(f"{shown}: it is turned off, and its objects go", "make sure that nobody needs it")
    if path[-1] in ("replicas", "replicaCount") and after == 0 and after is not False:
        return care(f"{shown}: no pod of it runs any more", "make sure that nobody needs it")
    return None


def _crds(
    old: RecipeComponent, new: RecipeComponent, path: Path, before: Any, after: Any, shown: str
) -> Reason | None:
    """Switches of charts that say whether they bring CRDs, and whether these outlive the release."""
    inside = len(path) > 1 and path[-2].lower() in ("crd", "crds")
    if path[-1] in _CRD_SWITCHES or (inside and path[-1] in ("enabled", "install", "create")):
        if after is True:
            remedy = "make sure that nothing else brings them"
            return care(f"{shown}: the chart brings its CRDs and replaces those that are there", remedy)
        keep = (*path[:-1], "keep")
        if get(old.values, keep) is True and get(new.values, keep) is True:
            return care(
                f"{shown}: the chart no longer brings its CRDs; they stay as they are",
                "upgrade them by hand from now on",
            )
        if before is True or after is False:
            return blocked(
                f"{shown}: the CRDs go, with every object of their kinds",
                "annotate the CRDs with helm.sh/resource-policy=keep first, or leave the switch on",
            )
    if (inside and path[-1] == "keep" and before is True) or (path[-1] == "cleanupCRD" and after is True):
        return care(
            f"{shown}: when the release is uninstalled, its CRDs go with every object of their kinds",
            "leave it as it is unless that is meant",
        )
    return None


def _data(path: Path, before: Any, after: Any, shown: str) -> Reason | None:
    """What a component has stored: how long it is kept, and volumes that the catalogue does not know."""
    if path[-1] in ("retention", "retentionSize"):
        first, second = (_amount(path[-1], value) for value in (before, after))
        if first is None or second is None:
            return care(f"{shown}: what is older or more is deleted", "make sure that it is not less than until now")
        gone = f"{shown}: what is older or more is deleted"
        return blocked(gone, "export what has to stay, or keep the value") if second < first else None
    if path[-1] in ("whenDeleted", "whenScaled") and after == "Delete":
        return care(f"{shown}: volumes go with their pods from now on", "back up what they hold before scaling down")
    empty = (ABSENT, None)
    if not any(part in _VOLUMES for part in path) or (before in empty and after in empty):
        return None
    if path[-1] == "enabled" and after is True:
        return care(f"{shown}: the volume is new and starts empty", "export what is there until now if it matters")
    if after in empty or (path[-1] == "enabled" and after is False):
        return blocked(f"{shown}: the volume may go, with what it holds", "back it up, or keep the value")
    if shrinks(before, after):
        return blocked(f"{shown}; a volume cannot shrink", "keep the size")
    return care(f"{shown}; a claim that is there is not changed in place", "look at the claim after deploying")


def _amount(key: str, value: Any) -> float | None:
    """Seconds or bytes, or None when the text is neither."""
    text = str(value)
    if key == "retention" and _DURATION.fullmatch(text):
        return sum(int(count) * _SECONDS[unit] for count, unit in _PART.findall(text))
    match = _SIZE.fullmatch(text)
    if key == "retentionSize" and match:
        return float(match[1]) * float(1024 ** "_KMGTPE".index(match[2] or "_"))
    return None


def _careful(component: RecipeComponent, path: Path) -> str | None:
    """What a change at `path` does to nodes or pods; empty when nothing is known, None when it does nothing."""
    for name, text, why in CAREFUL:
        if name == component.catalogue_name and _below(path, text):
            return why or None
    placement = component.placement
    if any(_below(path, text) for text in placement.accelerated_selectors):
        return "its pods leave the nodes that no longer match"
    if claims(component) and any(_below(path, text) for text in placement.system_selectors):
        return "its pods move to other nodes, which its volumes may not be reachable from"
    if component.storage.provides and "storageClasses" in path:
        return "storage classes come or go, and new claims on those that go stay pending"
    return ""


def _below(path: Path, prefix: str) -> bool:
    start = parse_path(prefix)
    return path[: len(start)] == start


def _is_storage(component: RecipeComponent, path: Path) -> bool:
    """Whether `storage_changes` speaks about this path already."""
    around = [parse_path(t)[:-1] for t in (*component.storage.class_paths, *component.storage.shared_class_paths)]
    return any(path[: len(prefix)] == prefix or prefix[: len(path)] == path for prefix in around)


def _text(value: Any) -> str:
    return "(not set)" if value is ABSENT else json.dumps(value, ensure_ascii=False)[:80]


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
