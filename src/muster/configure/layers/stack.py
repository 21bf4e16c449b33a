"""Layers of users over the built-in catalogue: patches that merge, constraints that only narrow. Pure.

A file of a layer with the name of a file below it is a patch: maps merge, scalars and lists replace, lists of names
grow, a null deletes within values, constraints intersect. Two layers that set one value differently conflict, unless
the upper one lists the path under `overrides`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster import __version__
from muster.configure.catalogue import Catalogue, Layer, Overlay
from muster.configure.catalogue_check import check_catalogue, check_criterion
from muster.configure.criteria import VOCABULARY, Dimension
from muster.configure.layers.patch import FilePatch, Ledger
from muster.configure.layers.rules import Room, key_of, room_of
from muster.configure.layers.source import LayerHeader, LayerSource, digest_of
from muster.configure.versions import Range, Scheme, Version
from muster.errors import BadInputError


def layered(base: Catalogue, layers: Sequence[LayerSource]) -> Catalogue:
    """`base` (the built-in catalogue) with `layers` on top, lowest first; without layers it is `base` itself.

    The digest of the result covers `base` and every layer. Raises BadInputError naming the files for a patch that
    does not fit, a constraint that nothing satisfies and two layers that contradict each other.
    """
    if not layers:
        return base
    if base.layers:
        raise ValueError("give all layers at once: conflicts are looked for among them")
    stack = _Stack(base)
    for layer in layers:
        if layer.name in [below.name for below in stack.catalogue.layers]:
            raise BadInputError(f"Two layers are named {layer.name!r}; give each layer once, under its own name.")
        _check_requires(layer.header, base)
        stack.add(layer)
    return stack.catalogue


def _check_requires(header: LayerHeader, base: Catalogue) -> None:
    wanted = header.requires
    if not wanted:
        return
    if wanted.startswith("sha256:"):
        if wanted != base.digest:
            raise BadInputError(
                f"Layer {header.name} requires the catalogue {wanted[:80]}, and this version of Muster has "
                f"{base.digest}; look whether the layer still fits, then change 'requires' in its layer.yaml."
            )
        return
    # A development version counts as the version that it leads to.
    version = re.sub(r"\.?dev\d+$", "", __version__)
    try:
        fits = Range.parse(wanted, Scheme.CHART).contains(Version.parse(version, Scheme.CHART))
    except BadInputError as error:
        raise BadInputError(f"Layer {header.name}, requires: {error}") from error
    if not fits:
        raise BadInputError(
            f"Layer {header.name} requires Muster {wanted}, and this is {__version__}; use a version that fits, or "
            "look whether the layer fits this one and change 'requires' in its layer.yaml."
        )


@dataclass
class _Stack:
    """The catalogue so far, and what the layers in it did."""

    catalogue: Catalogue
    ledger: Ledger = field(default_factory=Ledger)

    def add(self, layer: LayerSource) -> None:
        catalogue = self.catalogue
        rooms: dict[Room, dict[str, Any]] = {
            Room.COMPONENTS: dict(catalogue.components),
            Room.OVERLAYS: dict(catalogue.overlays),
            Room.MIXINS: dict(catalogue.mixins),
            Room.MANIFESTS: dict(catalogue.manifests),
        }
        for file in sorted(layer.files):
            room, key = room_of(file), key_of(file)
            below = rooms[room].get(key)
            rooms[room][key] = FilePatch(self.ledger, layer, file, is_new=below is None).apply(below)
        self.catalogue = Catalogue(
            components=_sorted(rooms[Room.COMPONENTS]),
            overlays=_sorted(rooms[Room.OVERLAYS]),
            mixins=_sorted(rooms[Room.MIXINS]),
            manifests=_sorted(rooms[Room.MANIFESTS]),
            digest=digest_of([catalogue.digest, layer.digest]),
            layers=(*catalogue.layers, Layer(name=layer.name, digest=layer.digest)),
            vocabularies=_vocabularies(catalogue.vocabularies, layer, rooms[Room.OVERLAYS]),
            origins={
                source: {path: tuple(found) for path, found in sorted(paths.items())}
                for source, paths in sorted(self.ledger.origins.items())
            },
        )
        self._check(layer)

    def _check(self, layer: LayerSource) -> None:
        try:
            check_catalogue(self.catalogue)
        except BadInputError as error:
            raise BadInputError(f"Layer {layer.name} does not fit the catalogue below it: {error}") from error
        for file in sorted(layer.files):
            if room_of(file) is Room.OVERLAYS:
                for phase, checks in self.catalogue.overlays[key_of(file)].checks.items():
                    if not checks.checks:
                        raise BadInputError(
                            f"layer {layer.name}: {file} names no check in the phase {phase!r}, which would drop "
                            "what the overlays below it demand; list at least one of their checks."
                        )
            if room_of(file) is Room.MANIFESTS and file.split("/")[1] not in self.catalogue.components:
                raise BadInputError(f"layer {layer.name}: {file} belongs to no component; correct the folder's name.")


def _sorted(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entries[name] for name in sorted(entries)}


def _vocabularies(
    known: Mapping[str, tuple[str, ...]], layer: LayerSource, overlays: Mapping[str, Overlay]
) -> dict[str, tuple[str, ...]]:
    more = {dimension: list(values) for dimension, values in known.items()}
    for dimension, values in layer.header.criteria.items():
        for value in values:
            check_criterion(dimension, value, f"Layer {layer.name}, criteria in layer.yaml")
            more.setdefault(dimension, []).append(value)
    for overlay in overlays.values():
        for dimension, value in overlay.criteria.items():
            more.setdefault(dimension, []).append(value)
    builtin = {d.value: VOCABULARY[d] for d in Dimension}
    found = {d: tuple(sorted({*values} - {*builtin.get(d, ())})) for d, values in sorted(more.items())}
    return {dimension: values for dimension, values in found.items() if values}
