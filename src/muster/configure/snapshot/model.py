"""The snapshot of a cluster as a file holds it."""

from __future__ import annotations

from datetime import datetime

from muster.inventory.record import UnknownReading
from muster.resources.base import API_VERSION, Model
from muster.resources.fingerprint import Reading

KIND = "ClusterSnapshot"


class Taint(Model, frozen=True, kw_only=True):
    """A taint as the Node object has it. Key and effect together are its identity."""

    key: str
    value: str = ""
    effect: str


class NodeEntry(Model, frozen=True, kw_only=True):
    """One node: what its Node object says, and what Muster's agent on it says where it was asked.

    Labels are kept as they are, key by key: joining them into one text would let different labels look alike.
    """

    node: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    reported: tuple[Reading, ...] = ()
    """Readings of the Node object."""
    readings: tuple[Reading, ...] = ()
    """Readings of the agent, named as in `muster.inventory.readings`; empty when it was not asked or is silent."""
    unknown: tuple[UnknownReading, ...] = ()


class Item(Model, frozen=True, kw_only=True):
    """One image, release, definition, policy or storage class."""

    name: str
    namespace: str = ""
    readings: tuple[Reading, ...] = ()
    unknown: tuple[UnknownReading, ...] = ()


class ClusterSnapshot(Model, frozen=True, kw_only=True):
    """Everything sorted by name. What could not be read stands in `unknown`, with the reason."""

    api_version: str = API_VERSION
    kind: str = KIND
    taken_at: datetime
    readings: tuple[Reading, ...] = ()
    unknown: tuple[UnknownReading, ...] = ()
    nodes: tuple[NodeEntry, ...] = ()
    images: tuple[Item, ...] = ()
    """By repository; each tag and each digest in use is a reading of its own."""
    releases: tuple[Item, ...] = ()
    """Helm releases, newest revision. Values that look like secrets are hidden."""
    crds: tuple[Item, ...] = ()
    policies: tuple[Item, ...] = ()
    """Custom resources that configure GPU and network operators, named `<plural>.<group>/<name>`."""
    storage_classes: tuple[Item, ...] = ()
