"""Compile the YAML sources of the catalogue into `data/catalogue.json`: `python -m muster.configure.compile`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from muster import yamlio
from muster.configure.catalogue import Catalogue, Component, Mixin, Overlay, data_folder
from muster.configure.catalogue_check import check_catalogue, check_kube_version
from muster.errors import BadInputError


def read_sources(folder: Path) -> Catalogue:
    """Build a catalogue from the YAML files of `folder` and check it. Raises BadInputError naming the file."""
    components = {c.name: c for c in _read_all(folder / "components", Component)}
    overlays = {o.name: o for o in _read_all(folder / "overlays", Overlay)}
    mixins = {m.name: m for m in _read_all(folder / "mixins", Mixin)}
    manifests: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((folder / "manifests").glob("*/*.yaml")):
        manifests[f"{path.parent.name}/{path.name}"] = yamlio.loads_all(path.read_bytes(), str(path))
    catalogue = Catalogue(components=components, overlays=overlays, mixins=mixins, manifests=manifests)
    digest = hashlib.sha256(msgspec.json.encode(catalogue, order="sorted")).hexdigest()
    catalogue = msgspec.structs.replace(catalogue, digest=f"sha256:{digest}")
    check_catalogue(catalogue)
    for component in components.values():
        check_kube_version(component.kube_version, f"Component {component.name!r}")
    return catalogue


E = TypeVar("E", Component, Overlay, Mixin)


def _read_all(folder: Path, kind: type[E]) -> list[E]:
    entries = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            entry = msgspec.convert(yamlio.load(path), kind)
        except msgspec.ValidationError as error:
            raise BadInputError(f"{path} does not fit the catalogue: {error}.") from error
        if entry.name != path.stem:
            raise BadInputError(f"{path} holds the name {entry.name!r}; name and file must agree.")
        entries.append(entry)
    return entries


def compiled() -> bytes:
    """The bytes that `data/catalogue.json` must have."""
    return msgspec.json.format(msgspec.json.encode(read_sources(data_folder()), order="sorted"), indent=1) + b"\n"


def main() -> None:
    (data_folder() / "catalogue.json").write_bytes(compiled())


if __name__ == "__main__":
    main()
