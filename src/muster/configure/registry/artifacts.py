"""Folders in OCI registries, through `oras`: pushed as one reproducible layer, pulled as what their digest says.

The artifact has one `tar+gzip` layer of the standard type, so that Argo CD and Flux can read it too; what it is
stands in `artifactType`. Credentials are those that `docker login` or `oras login` left in `~/.docker/config.json`.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.configure.registry.archive import MAX_PACKED_BYTES, pack, unpack
from muster.configure.registry.tree import read_tree, write_tree
from muster.errors import BadInputError, NotSatisfiedError

if TYPE_CHECKING:
    from muster.configure.registry.oci import Client

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_EMPTY = b"{}"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_REFERENCE = re.compile(
    r"oci://(?P<host>[A-Za-z0-9.-]{1,253}(?::\d{1,5})?|\[[0-9a-fA-F:]{2,45}\](?::\d{1,5})?)"
    r"/(?P<repository>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_LOOPBACK = re.compile(r"(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reference:
    """`oci://host[:port]/repository[:tag][@digest]` in its parts; absent ones are empty. The digest decides."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def is_loopback(self) -> bool:
        return _LOOPBACK.fullmatch(self.host) is not None

    def at(self, digest: str) -> str:
        """The reference that names exactly what has `digest`."""
        return f"oci://{self.host}/{self.repository}@{digest}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"oci://{self.host}/{self.repository}{tag}{'@' if self.digest else ''}{self.digest}"


def parse_reference(text: str) -> Reference:
    """Read an `oci://` reference. Raises BadInputError when it is none."""
    match = _REFERENCE.fullmatch(text) if len(text) <= 600 else None
    if match is None:
        raise BadInputError(
            f"{text[:200]!r} is no reference to a registry; write oci://host/repository:tag or "
            "oci://host/repository@sha256:<64 hex digits>, the repository in lower case."
        )
    return Reference(match["host"], match["repository"], match["tag"] or "", match["digest"] or "")


def manifest_of(packed: bytes, media_type: str) -> bytes:
    """The manifest of an artifact with the one layer `packed`. Same layer, same bytes."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": media_type,
        "config": _descriptor(EMPTY_TYPE, _EMPTY),
        "layers": [_descriptor(LAYER_TYPE, packed)],
    }
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def push_folder(folder: Path, reference: str, *, media_type: str, plain_http: bool = False) -> str:
    """Push the files of `folder` and return the digest of the manifest; the same files have the same digest.

    Without a tag the artifact is only known by its digest. Loopback registries are spoken to in plain HTTP, others
    only with `plain_http`. Raises BadInputError (folder, reference, credentials, extra `oci` missing) and
    UnreachableError.
    """
    parsed = parse_reference(reference)
    if parsed.digest:
        raise BadInputError(
            f"{reference[:200]} names a digest, which follows from what is pushed; give a tag or none."
        )
    packed = pack(read_tree(folder))
    manifest = manifest_of(packed, media_type)
    digest = digest_of(manifest)
    client = _client(parsed, plain_http)
    with tempfile.TemporaryDirectory(prefix="muster-") as scratch:
        for content in (_EMPTY, packed):
            blob = Path(scratch) / "blob"
            blob.write_bytes(content)
            client.upload(blob, _descriptor("application/octet-stream", content))
    client.put_manifest(parsed.tag or digest, manifest, MANIFEST_TYPE)
    return digest


def pull_folder(
    reference: str, folder: Path, *, media_type: str, plain_http: bool = False, require_digest: bool = False
) -> str:
    """Pull an artifact into `folder` (absent or empty; all of it or nothing) and return its digest; see `fetch`.

    Raises BadInputError also for a hostile archive and for a folder that holds something.
    """
    artifact = fetch(reference, media_type=media_type, plain_http=plain_http, require_digest=require_digest)
    write_tree(unpack(artifact.packed, str(artifact.reference)), folder)
    return artifact.digest


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a registry holds under a reference: the manifest and the one layer, as bytes that fit each other."""

    reference: Reference
    manifest: bytes
    packed: bytes

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)


def fetch(reference: str, *, media_type: str, plain_http: bool = False, require_digest: bool = False) -> Artifact:
    """The artifact `reference`, verified.

    `media_type` is what it must be. With `require_digest` a tag is refused, and the refusal names the digest that it
    has now. Raises BadInputError (reference, not found, another kind of artifact, credentials, extra `oci` missing),
    NotSatisfiedError when the content is not what the digest says, and UnreachableError.
    """
    parsed = parse_reference(reference)
    client = _client(parsed, plain_http)
    manifest = client.get_manifest(parsed.digest or parsed.tag or "latest", MANIFEST_TYPE)
    if require_digest and not parsed.digest:
        raise BadInputError(f"{parsed} names what can change; pin it: {parsed.at(digest_of(manifest))}")
    layer = _layer_of(parsed, manifest, media_type)
    artifact = Artifact(parsed, manifest, client.get_blob(layer["digest"], layer["size"]))
    verify(artifact, media_type)
    return artifact


def verify(artifact: Artifact, media_type: str) -> None:
    """Raise NotSatisfiedError unless manifest and layer are what the digests say."""
    layer = _layer_of(artifact.reference, artifact.manifest, media_type)
    if len(artifact.packed) != layer["size"] or digest_of(artifact.packed) != layer["digest"]:
        raise NotSatisfiedError(
            f"The content of {artifact.reference} is not what its manifest says (its digest is "
            f"{digest_of(artifact.packed)}); do not use it."
        )


def _layer_of(where: Reference, content: bytes, media_type: str) -> dict[str, Any]:
    """The descriptor of the one layer in a manifest. Raises NotSatisfiedError and BadInputError."""
    if where.digest and digest_of(content) != where.digest:
        raise NotSatisfiedError(f"{where} was answered with something else ({digest_of(content)}); do not use it.")
    try:
        manifest = json.loads(content)
        kind = manifest.get("artifactType")
        layers = manifest.get("layers")
        layer = layers[0] if isinstance(layers, list) and len(layers) == 1 else None
        size, digest = (layer["size"], layer["digest"]) if layer else (None, None)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise BadInputError(f"{where} has no manifest that can be read; push it again.") from error
    if kind != media_type:
        raise BadInputError(
            f"{where} is a {str(kind)[:80]!r}, not a {media_type}; look whether the reference is right."
        )
    if type(size) is not int or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise BadInputError(f"{where} does not hold one layer; push it again.")
    if not 0 < size <= MAX_PACKED_BYTES:
        raise BadInputError(f"{where} is larger than {MAX_PACKED_BYTES // 2**20} MiB; do not use it.")
    return {"size": size, "digest": digest}


def _client(reference: Reference, plain_http: bool) -> Client:
    try:
        from muster.configure.registry.oci import Client
    except ImportError as error:
        raise BadInputError(
            f"{reference} needs the extra 'oci'; install it with: pip install 'muster-gpu[oci]'."
        ) from error
    return Client(reference.host, reference.repository, plain_http or reference.is_loopback)
