"""Taking the GPU operator's clients off a node for a while, and giving them back whatever happens. Pure.

What the labels said before stands in an annotation of the Node itself, so whoever comes next can give them back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OFF_LABEL = "muster.dev/gpu-clients-off"
"""Marks nodes whose clients were taken off, so that they are found again."""
BEFORE_ANNOTATION = "muster.dev/gpu-clients-before"
OFF = "false"


@dataclass(frozen=True)
class Before:
    """What was changed, and for which Repair."""

    repair: str
    labels: Mapping[str, str]


def before_of(annotations: Mapping[str, str]) -> Before | None:
    """What the annotation says; None when there is none. One that cannot be read gives nothing back."""
    text = annotations.get(BEFORE_ANNOTATION)
    if text is None:
        return None
    try:
        found = json.loads(text)
        labels = {str(key): str(value) for key, value in found["labels"].items()}
        return Before(str(found["repair"]), labels)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Before("", {})


def take_off(repair: str, labels: Mapping[str, str], names: Sequence[str]) -> dict[str, Any]:
    """Merge patch of the Node's metadata. Labels that are absent or off already are nobody's to change."""
    changed = {name: labels[name] for name in names if name in labels and labels[name] != OFF}
    note = json.dumps({"repair": repair, "labels": changed}, sort_keys=True)
    return {
        "labels": {**dict.fromkeys(sorted(changed), OFF), OFF_LABEL: "true"},
        "annotations": {BEFORE_ANNOTATION: note},
    }


def give_back(labels: Mapping[str, str], before: Before, names: Sequence[str]) -> dict[str, Any]:
    """Merge patch of the Node's metadata. A label that somebody else changed meanwhile stays as it is.

    Only `names` are touched: the annotation is on an object that others may write.
    """
    back = {name: before.labels[name] for name in names if name in before.labels and labels.get(name) == OFF}
    return {"labels": {**back, OFF_LABEL: None}, "annotations": {BEFORE_ANNOTATION: None}}
