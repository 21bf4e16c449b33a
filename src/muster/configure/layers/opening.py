"""Reading layers of the catalogue from folders and registries, and opening the catalogue with them on top.

A layer is a folder: `layer.yaml`, `components/<name>.yaml`, `overlays/<name>.yaml`, `mixins/<name>.yaml` and
`manifests/<component>/<file>.yaml`; a `README.md` beside them is not read. What they may say stands in `layering`.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from muster import yamlio
from muster.configure import values
from muster.configure.catalogue import Catalogue, load
from muster.configure.criteria import Dimension
from muster.configure.layers.source import HEADER, KIND, LayerHeader, LayerSource
from muster.configure.layers.stack import layered
from muster.configure.registry.tree import Tree, read_tree
from muster.errors import BadInputError, MusterError
from muster.resources.base import API_VERSION

__all__ = ["MEDIA_TYPE", "LayerSource", "layered", "open_catalogue", "open_layer", "read_layer"]

MEDIA_TYPE = "application/vnd.muster.catalogue.v1"
MAX_LAYERS = 20
MAX_BYTES = 16 * 1024 * 1024
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?", re.ASCII)
_FILE = re.compile(
    r"(components|overlays|mixins)/[a-z0-9]([a-z0-9.-]{0,98}[a-z0-9])?\.yaml"
    r"|manifests/[a-z0-9][a-z0-9-]{0,52}/[a-z0-9][a-z0-9.-]{0,99}\.yaml",
    re.ASCII,
)
_OVERRIDE = re.compile(r"(components|overlays|mixins|manifests)/[^:]{1,160}:.{1,400}", re.DOTALL)
_IGNORED = frozenset({"README.md", "LICENSE"})


def read_layer(folder: Path) -> LayerSource:
    """Read the layer in `folder`.

    Raises BadInputError naming the file for anything that is no part of a layer, a link, a file of more than 10 MiB,
    and YAML that is malformed or hostile.
    """
    return layer_of(read_tree(folder), str(folder))


def layer_of(tree: Tree, place: str) -> LayerSource:
    """The layer that `tree` holds; `place` (a folder or a reference) names it in errors. Raises BadInputError."""
    if sum(len(file.content) for file in tree.values()) > MAX_BYTES:
        raise BadInputError(f"{place} is larger than {MAX_BYTES // 2**20} MiB; a layer holds patches, not files.")
    unknown = [name for name in tree if name not in (HEADER, *_IGNORED) and not _FILE.fullmatch(name)]
    if unknown:
        raise BadInputError(
            f"{place}/{unknown[0]} is no file of a catalogue layer; a layer holds {HEADER}, components/, overlays/, "
            "mixins/ (<name>.yaml) and manifests/<component>/<file>.yaml."
        )
    if HEADER not in tree:
        raise BadInputError(f"{place} holds no {HEADER}; a catalogue layer needs one with its name.")
    files: dict[str, Any] = {}
    for name, file in tree.items():
        where = f"{place}/{name}"
        if name in _IGNORED:
            continue
        documents = yamlio.loads_all(file.content, where, 1000 if name.startswith("manifests/") else 1)
        content: Any = documents[0]
        if name.startswith("manifests/"):
            content = [document for document in documents if document is not None]
        values.check(content, where)
        if not isinstance(content, (dict, list)) or not content:
            raise BadInputError(f"{where} holds nothing that can be used; fill it or remove it.")
        files[name] = content
    header = _header(files.pop(HEADER), f"{place}/{HEADER}")
    return LayerSource(header, files)


def _header(content: Any, path: str) -> LayerHeader:
    try:
        header = msgspec.convert(content, LayerHeader)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path} does not describe a catalogue layer: {error}.") from error
    if header.kind != KIND or header.api_version != API_VERSION:
        raise BadInputError(f"{path} must have apiVersion {API_VERSION} and kind {KIND}.")
    if not _NAME.fullmatch(header.name):
        raise BadInputError(f"{path}: the name {header.name[:60]!r} is no DNS label of at most 53 characters.")
    for dimension in header.criteria:
        if dimension not in set(Dimension):
            known = ", ".join(d.value for d in Dimension)
            raise BadInputError(f"{path}: no dimension is named {dimension[:60]!r}; there are {known}.")
    for text in header.overrides:
        if not _OVERRIDE.fullmatch(text):
            raise BadInputError(
                f"{path}: the override {text[:120]!r} names no path; write for example "
                "components/gpu-operator:values.driver.version."
            )
    return header


def open_catalogue(refs: Sequence[str] = ()) -> Catalogue:
    """The built-in catalogue with the layers `refs` on top, lowest first; without `refs` it is the built-in one.

    A ref is a folder or `oci://host/repository@sha256:...`. Raises BadInputError, NotSatisfiedError (an artifact that
    is not what its digest says) and UnreachableError.
    """
    if not refs:
        return load()
    if len(refs) > MAX_LAYERS:
        raise BadInputError(f"{len(refs)} catalogue layers are given; at most {MAX_LAYERS} can be used, merge some.")
    return layered(load(), [open_layer(ref) for ref in refs])


def open_layer(ref: str) -> LayerSource:
    """The layer in a folder, or in a registry through the cache; see `open_catalogue`."""
    if ref.startswith("oci://"):
        from muster.configure.registry.archive import unpack

        return layer_of(unpack(_fetched(ref), ref), ref)
    if "://" in ref:
        raise BadInputError(f"{ref[:200]} is neither a folder nor an oci:// reference with a digest.")
    return read_layer(Path(ref))


def _fetched(ref: str) -> bytes:
    """The packed layer `ref`: from the cache when that holds what the digest says, else from the registry."""
    from muster.configure.registry.artifacts import Artifact, fetch, parse_reference, verify

    parsed = parse_reference(ref)
    cache = cache_folder()
    if cache is None:
        return fetch(ref, media_type=MEDIA_TYPE, require_digest=True).packed
    manifest, packed = (cache / f"{parsed.digest.replace(':', '-')}{end}" for end in (".json", ".tar.gz"))
    if parsed.digest:
        try:
            artifact = Artifact(parsed, manifest.read_bytes(), packed.read_bytes())
            verify(artifact, MEDIA_TYPE)
        except (OSError, MusterError):
            pass  # not there, or damaged: fetched again
        else:
            return artifact.packed
    # A tag is refused here, and the refusal says which digest it has.
    artifact = fetch(ref, media_type=MEDIA_TYPE, require_digest=True)
    _keep(packed, artifact.packed)
    _keep(manifest, artifact.manifest)
    return artifact.packed


def _keep(path: Path, content: bytes) -> None:
    """Put a file into the cache, whole or not at all; a cache that cannot be written is no reason to fail."""
    partial: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".muster-", dir=path.parent)
        partial = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        partial.replace(path)
    except OSError:
        if partial is not None:
            partial.unlink(missing_ok=True)


def cache_folder() -> Path | None:
    """Where pulled layers are kept, two files a digest: `$XDG_CACHE_HOME/muster/catalogue`.

    None for a user without a home, such as the one that a container runs as: then nothing is kept.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if not root.is_absolute():
        try:
            root = Path.home() / ".cache"
        except RuntimeError:
            return None
    return root / "muster" / "catalogue"
