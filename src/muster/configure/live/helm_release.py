"""Helm's own record of a release: the secret `sh.helm.release.v1.<name>.v<revision>`, read without Helm.

The value `release` of the secret is base64 (as in every secret) of base64 of gzipped JSON; the oldest records are
not gzipped. Helm, Helmfile and Flux keep such records, Argo CD does not. A secret is at most 1 MiB, but what it
unpacks to is bounded here: a record is input, and a hostile one must not fill the memory.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from muster.errors import BadInputError

SECRET_TYPE = "helm.sh/release.v1"  # noqa: S105 - a type of secret
OWNER_SELECTOR = "owner=helm"
NAME_PREFIX = "sh.helm.release.v1."
MAX_PACKED_BYTES = 2 * 1024 * 1024
"""The API server takes secrets up to 1 MiB; base64 makes a third more of it."""
MAX_RECORD_BYTES = 48 * 1024 * 1024
_GZIP = b"\x1f\x8b"
_CRD_KIND = re.compile(r"^kind:\s*['\"]?CustomResourceDefinition['\"]?\s*$", re.MULTILINE)
_CRD_NAME = re.compile(r"^  name:\s*['\"]?([a-z0-9-]+(?:\.[a-z0-9-]+)+)['\"]?\s*$", re.MULTILINE)
_DOCUMENT = re.compile(r"^---.*$", re.MULTILINE)


@dataclass(frozen=True)
class HelmRelease:
    """One revision of a release. `values` are those that the user gave, without the defaults of the chart.

    `status` is Helm's word (`deployed`, `failed`, `pending-upgrade`, `superseded`, ...). `manifest` is the YAML that
    was applied, hooks left out. `crds` are the names of the CRDs in the chart's folder `crds/`, which Helm installs
    and does not list in the manifest.
    """

    name: str
    namespace: str
    revision: int
    status: str
    chart: str
    chart_version: str
    app_version: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    manifest: str = ""
    description: str = ""
    crds: tuple[str, ...] = ()


class _Info(msgspec.Struct):
    status: str = ""
    description: str = ""


class _Metadata(msgspec.Struct):
    name: str = ""
    version: str = ""
    app_version: str = msgspec.field(name="appVersion", default="")


class _File(msgspec.Struct):
    name: str = ""
    data: bytes | None = None


class _Chart(msgspec.Struct):
    metadata: _Metadata | None = None
    files: list[_File] | None = None


class _Record(msgspec.Struct):
    """The part of a record that is read; templates, hooks and default values are skipped while decoding."""

    name: str
    namespace: str = ""
    version: int = 0
    info: _Info | None = None
    chart: _Chart | None = None
    config: dict[str, Any] | None = None
    manifest: str = ""


_decoder = msgspec.json.Decoder(_Record)


def decode_release(secret: Mapping[str, Any]) -> HelmRelease:
    """Read the record in `secret` (a Secret as the API gives it). Raises BadInputError in one sentence."""
    metadata = secret.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    where = f"The Helm record {str(metadata.get('namespace', ''))[:63]}/{str(metadata.get('name', ''))[:253]}"
    data = secret.get("data")
    packed = data.get("release") if isinstance(data, Mapping) else None
    if not isinstance(packed, str) or not packed:
        raise BadInputError(f"{where} holds no release; it was not written by Helm.")
    if len(packed) > MAX_PACKED_BYTES:
        raise BadInputError(f"{where} is larger than Kubernetes allows; it was not written by Helm.")
    try:
        record = _decoder.decode(_unpack(packed))
    except (ValueError, RecursionError, zlib.error, binascii.Error) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BadInputError(f"{where} cannot be read ({reason}); 'helm list' shows whether Helm can.") from error
    info, chart = record.info or _Info(), record.chart or _Chart()
    about = chart.metadata or _Metadata()
    return HelmRelease(
        name=record.name,
        namespace=record.namespace or str(metadata.get("namespace", "")),
        revision=record.version,
        status=info.status or "unknown",
        chart=about.name,
        chart_version=about.version,
        app_version=about.app_version,
        values=record.config or {},
        manifest=record.manifest,
        description=info.description[:1000],
        crds=_crds(chart.files or ()),
    )


def revision_of(secret_name: str) -> tuple[str, int] | None:
    """(release, revision) from the name of a record's secret, or None when it is no such name."""
    found = re.fullmatch(r"(.+)\.v(\d{1,9})", secret_name.removeprefix(NAME_PREFIX), re.ASCII)
    if found is None or not secret_name.startswith(NAME_PREFIX):
        return None
    return found[1], int(found[2])


def crd_names(text: str) -> list[str]:
    """Names of the CRDs in a stream of YAML documents, in order.

    By their lines, not by parsing: the CRDs of one chart can be megabytes, of which only the names matter.
    """
    found = []
    for document in _DOCUMENT.split(text):
        name = _CRD_NAME.search(document) if _CRD_KIND.search(document) else None
        if name is not None:
            found.append(name[1])
    return found


def _unpack(packed: str) -> bytes:
    inner = base64.b64decode(base64.b64decode(packed, validate=True), validate=True)
    if not inner.startswith(_GZIP):
        return inner
    unzip = zlib.decompressobj(wbits=31)
    plain = unzip.decompress(inner, MAX_RECORD_BYTES + 1)
    if len(plain) > MAX_RECORD_BYTES:
        raise ValueError(f"it unpacks to more than {MAX_RECORD_BYTES // 1024 // 1024} MiB")
    if not unzip.eof:
        raise ValueError("it is cut off")
    return plain


def _crds(files: list[_File] | tuple[_File, ...]) -> tuple[str, ...]:
    names: list[str] = []
    for file in files:
        if file.data and file.name.startswith("crds/"):
            names.extend(crd_names(file.data.decode("utf-8", errors="replace")))
    return tuple(dict.fromkeys(names))
