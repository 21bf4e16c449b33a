"""A layer of a user as a value: its header and the content of its files. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from muster.configure.catalogue import Entry

KIND = "CatalogueLayer"
HEADER = "layer.yaml"


class LayerHeader(Entry, frozen=True, kw_only=True):
    """The content of `layer.yaml`."""

    api_version: str
    kind: str
    name: str
    description: str = ""
    requires: str = ""
    """Digest of the built-in catalogue (`sha256:...`) or a range of Muster versions (`>= 0.2 < 0.4`)."""
    criteria: dict[str, tuple[str, ...]] = {}
    """Values of a dimension that this layer makes known."""
    overrides: tuple[str, ...] = ()
    """Paths that this layer sets although a layer below it sets them differently: `components/<name>:<path>`. What
    lies below a path is covered too."""


@dataclass(frozen=True, slots=True)
class LayerSource:
    """A layer as it was read."""

    header: LayerHeader
    files: Mapping[str, Any]
    """`components/<name>.yaml` and so on -> content; a file of manifests is a list of objects."""

    @property
    def name(self) -> str:
        return self.header.name

    @property
    def digest(self) -> str:
        said = {"layer": msgspec.structs.asdict(self.header), "files": self.files}
        return digest_of(said)


def digest_of(content: Any) -> str:
    """`sha256:<hex>` over plain values, keys in order."""
    return f"sha256:{hashlib.sha256(msgspec.json.encode(content, order='sorted')).hexdigest()}"
